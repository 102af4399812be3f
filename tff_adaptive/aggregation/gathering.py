"""Aggregation factories that see all updates of a cohort at once, as one matrix.

The server then holds m d numbers for m clients and d coordinates, and gathering them copies
m^2 d / 2 numbers. In every engine the rows are in the order of the clients, so that results have
the same bits.
"""

import collections
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils.gathered import gather, rows_type

# (updates [m, d], weights [m]) -> aggregate [d]. m >= 1, and weights are above 0.
Rule: TypeAlias = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class Outcome(NamedTuple):
  """The result of a `StatefulRule`.

  Attributes:
    aggregate: The aggregate, [d].
    state: The state of the next round.
    measurements: Scalars by name, which become columns of metrics.csv.
  """

  aggregate: tf.Tensor
  state: Any = ()
  measurements: Mapping[str, tf.Tensor] = collections.OrderedDict()


class StatefulRule:
  """A rule with a state between rounds, or with measurements; see `RuleFactory`."""

  def initial_state(self, num_coordinates: int, dtype: tf.DType) -> Any:
    """Returns the state before the first round: nested tensors, () for none."""
    del num_coordinates, dtype
    return ()

  def combine(self, state: Any, updates: tf.Tensor, weights: tf.Tensor) -> Outcome:
    """Returns the result of a round, from updates [m, d] and weights [m] above 0, with m >= 1."""
    raise NotImplementedError


class _Plain(StatefulRule):
  """A rule that is only a function of the updates and their weights."""

  def __init__(self, rule: Rule) -> None:
    self._rule = rule

  def combine(self, state: Any, updates: tf.Tensor, weights: tf.Tensor) -> Outcome:
    return Outcome(self._rule(updates, weights), state)


class _Layout:
  """The places of a value's tensors in a row of d numbers."""

  def __init__(self, value_type: Any) -> None:
    self._specs = tff.types.type_to_tf_tensor_specs(value_type)
    leaves = tf.nest.flatten(self._specs)
    for leaf in leaves:
      if not leaf.dtype.is_floating or not leaf.shape.is_fully_defined():
        raise TypeError(
          f'a rule on all updates takes floats of known shapes, found {leaf.dtype.name} of shape'
          f' {leaf.shape}: give the weights of a model, say.'
        )
    # All in one dtype, because they become one row; wider ones must not lose digits.
    self.dtype = tf.float32
    if any(leaf.dtype == tf.float64 for leaf in leaves):
      self.dtype = tf.float64
    self._sizes = [leaf.shape.num_elements() for leaf in leaves]
    self.num_coordinates = sum(self._sizes)

  def row(self, value: Any) -> tf.Tensor:
    """Returns a value as a row, [d]."""
    leaves = [tf.reshape(tf.cast(leaf, self.dtype), [-1]) for leaf in tf.nest.flatten(value)]
    return tf.concat(leaves, 0)

  def value(self, row: tf.Tensor) -> Any:
    """Returns the value that a row [d] stands for."""
    specs = tf.nest.flatten(self._specs)
    pieces = tf.split(row, self._sizes)
    leaves = [
      tf.cast(tf.reshape(piece, spec.shape), spec.dtype) for piece, spec in zip(pieces, specs)
    ]
    return tf.nest.pack_sequence_as(self._specs, leaves)


class RuleFactory(tff.aggregators.WeightedAggregationFactory):
  """A factory of aggregates by a rule on all updates of a cohort.

  Updates with weight 0 or with a number that is not finite are left out. If none is left, the
  aggregate is NaN, as that of `tff.aggregators.MeanFactory` without weights, and the state stays.
  """

  def __init__(self, rule: Rule | StatefulRule) -> None:
    """Creates the factory.

    Args:
      rule: A function (updates [m, d], weights [m]) -> [d], or a `StatefulRule`.

    All tensors of an update are one row, in float32, or in float64 if one of them is float64.
    """
    if not isinstance(rule, StatefulRule):
      rule = _Plain(rule)
    self._rule = rule

  def create(self, value_type: Any, weight_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values and weights of the given types."""
    rule = self._rule
    layout = _Layout(value_type)

    @tff.tensorflow.computation
    def initial_state() -> Any:
      return rule.initial_state(layout.num_coordinates, layout.dtype)

    @tff.tensorflow.computation(value_type, weight_type)
    def as_row(value: Any, weight: Any) -> Any:
      row = layout.row(value)
      is_finite = tf.reduce_all(tf.math.is_finite(row))
      # A client that diverged gets weight 0, by which `_of_used` leaves its row out.
      weight = tf.where(is_finite, tf.cast(weight, layout.dtype), 0)
      return tf.where(is_finite, row, tf.zeros_like(row)), weight

    state_type = initial_state.type_signature.result
    gathered_type = rows_type(as_row.type_signature.result)

    @tff.tensorflow.computation(state_type, gathered_type)
    def combine(state: Any, gathered: Any) -> Any:
      outcome = _of_used(rule, state, *gathered)
      measurements = collections.OrderedDict(outcome.measurements)
      return layout.value(outcome.aggregate), outcome.state, measurements

    @tff.federated_computation
    def initialize() -> Any:
      return tff.federated_eval(initial_state, tff.SERVER)

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.types.FederatedType(value_type, tff.CLIENTS),
      tff.types.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state: Any, value: Any, weight: Any) -> tff.templates.MeasuredProcessOutput:
      rows = tff.federated_map(as_row, (value, weight))
      result, after, measurements = tff.federated_map(combine, (state, gather(rows)))
      return tff.templates.MeasuredProcessOutput(after, result, measurements)

    return tff.templates.AggregationProcess(initialize, next_fn)


class ClientNormsFactory(tff.aggregators.WeightedAggregationFactory):
  """A factory that also measures `client_norms`, the 2-norm of each client's update, [m].

  The norms are in the order of the clients. What is measured beside is in `aggregate`.
  """

  def __init__(
    self,
    inner: tff.aggregators.WeightedAggregationFactory | None = None,
    cosines: bool = False,
  ) -> None:
    """Creates the factory.

    Args:
      inner: The factory that aggregates; None means the mean.
      cosines: Whether to measure `client_cosines` too, the cosine of each update to the aggregate,
        [m]. All updates of a cohort are then in memory.
    """
    if inner is None:
      inner = tff.aggregators.MeanFactory()
    self._inner = inner
    self._cosines = cosines

  def create(self, value_type: Any, weight_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values and weights of the given types."""
    inner = self._inner
    if isinstance(inner, tff.aggregators.UnweightedAggregationFactory):
      inner = tff.aggregators.as_weighted_aggregator(inner)
    process = inner.create(value_type, weight_type)
    layout = _Layout(value_type)

    @tff.tensorflow.computation(value_type)
    def norm(value: Any) -> Any:
      return tf.norm(layout.row(value))

    result_type = process.next.type_signature.result.result.member

    @tff.tensorflow.computation(value_type, result_type)
    def cosine(value: Any, aggregate: Any) -> Any:
      # NaN for an update of zero, such as that of a client that is left out: it has no direction.
      one = layout.row(value)
      other = layout.row(aggregate)
      return tf.reduce_sum(one * other) / (tf.norm(one) * tf.norm(other))

    @tff.federated_computation(
      process.initialize.type_signature.result,
      tff.types.FederatedType(value_type, tff.CLIENTS),
      tff.types.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state: Any, value: Any, weight: Any) -> tff.templates.MeasuredProcessOutput:
      output = process.next(state, value, weight)
      measurements = collections.OrderedDict(client_norms=gather(tff.federated_map(norm, value)))
      if self._cosines:
        aggregate = tff.federated_broadcast(output.result)
        measurements['client_cosines'] = gather(tff.federated_map(cosine, (value, aggregate)))
      measurements['aggregate'] = output.measurements
      return tff.templates.MeasuredProcessOutput(
        output.state, output.result, tff.federated_zip(measurements)
      )

    return tff.templates.AggregationProcess(process.initialize, next_fn)


def _of_used(rule: StatefulRule, state: Any, updates: tf.Tensor, weights: tf.Tensor) -> Outcome:
  """Returns the result of a rule on the updates whose weight is above 0."""
  is_used = weights > 0

  # Masking copies all m d numbers, so only where a client is left out.
  def of_some() -> Any:
    rows, counted = tf.cond(
      tf.reduce_all(is_used),
      lambda: (updates, weights),
      lambda: (tf.boolean_mask(updates, is_used), tf.boolean_mask(weights, is_used)),
    )
    # Rules read d when they are traced; it must not get lost in the condition.
    rows.set_shape([None, updates.shape[1]])
    counted.set_shape([None])
    outcome = rule.combine(state, rows, counted)
    aggregate = tf.ensure_shape(outcome.aggregate, [updates.shape[1]])
    return tuple(outcome._replace(aggregate=aggregate))

  def of_none() -> Any:
    # For the form of the rule's state and measurements; the branches of `tf.cond` must agree.
    like = rule.combine(
      state, tf.zeros([1, updates.shape[1]], updates.dtype), tf.ones([1], weights.dtype)
    )
    nothing = tf.fill([updates.shape[1]], tf.cast(math.nan, updates.dtype))
    return tuple(like._replace(aggregate=nothing, state=state))

  return Outcome(*tf.cond(tf.reduce_any(is_used), of_some, of_none))
