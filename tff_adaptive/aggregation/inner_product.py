"""The part of the server's aggregation in which attackers send a product of the others' mean."""

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

_UNMARKED = -1024.0  # The inverse of `client.attacks.MARK`.


class InnerProductFactory(tff.aggregators.WeightedAggregationFactory):
  """A factory in which attackers send -s times the weighted mean of the updates of the others.

  "Fall of Empires: Breaking Byzantine-tolerant SGD by Inner Product Manipulation" (Xie et al., UAI
  2020), for experiments. Attackers know the others' updates of the round. Their weights are
  negative, as `ClientTraining(attack='inner_product')` marks them; see `client.attacks`.
  """

  def __init__(
    self, scale: float, inner: tff.aggregators.WeightedAggregationFactory | None = None
  ) -> None:
    """Creates the factory.

    Args:
      scale: s.
      inner: The factory that aggregates what all clients send; None means the mean.
    """
    self._scale = scale
    if inner is None:
      inner = tff.aggregators.MeanFactory()
    self._inner = inner

  def create(self, value_type: Any, weight_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values and weights of the given types."""
    inner = self._inner
    if isinstance(inner, tff.aggregators.UnweightedAggregationFactory):
      inner = tff.aggregators.as_weighted_aggregator(inner)
    process = inner.create(value_type, weight_type)
    scale = self._scale

    @tff.tensorflow.computation(value_type, weight_type)
    def of_honest(value: Any, weight: Any) -> Any:
      # An attacker's weight is negative, so it counts 0 here.
      counted = tf.cast(tf.maximum(weight, 0), tf.float32)
      weighted = [counted * tf.cast(leaf, tf.float32) for leaf in tf.nest.flatten(value)]
      return collections.OrderedDict(total=tuple(weighted), weight=counted)

    sums_type = of_honest.type_signature.result

    @tff.tensorflow.computation(value_type, weight_type, sums_type)
    def sent(value: Any, weight: Any, sums: Any) -> Any:
      is_attacker = weight < 0

      def of_leaf(leaf: tf.Tensor, total: tf.Tensor) -> tf.Tensor:
        # 0 if all clients of the cohort are attackers.
        mean = tf.math.divide_no_nan(total, sums['weight'])
        return tf.where(is_attacker, tf.cast(-scale * mean, leaf.dtype), leaf)

      leaves = map(of_leaf, tf.nest.flatten(value), sums['total'])
      # The inner factory must see the weight that an honest client would have.
      weight = tf.where(is_attacker, tf.cast(_UNMARKED, weight.dtype) * weight, weight)
      return tf.nest.pack_sequence_as(value, list(leaves)), weight

    @tff.federated_computation(
      process.initialize.type_signature.result,
      tff.types.FederatedType(value_type, tff.CLIENTS),
      tff.types.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state: Any, value: Any, weight: Any) -> tff.templates.MeasuredProcessOutput:
      sums = tff.federated_sum(tff.federated_map(of_honest, (value, weight)))
      received = tff.federated_map(sent, (value, weight, tff.federated_broadcast(sums)))
      return process.next(state, received[0], received[1])

    return tff.templates.AggregationProcess(process.initialize, next_fn)
