"""Private sums and means whose state fits in a checkpoint and holds the seed of the noise.

tensorflow_privacy draws noise from TensorFlow's own generator, so a resumed run would differ from
one that was not interrupted. Here the state of a query has the seed and a count of draws. Clipping,
adaptation of the norm and the size of the noise are those of the library.
"""

import collections
from collections.abc import Sequence
from typing import Any, NamedTuple

import dp_accounting
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_adaptive._utils import private_apis


class SeededGaussianSumQuery(tfp.GaussianSumQuery):
  """tensorflow_privacy's `GaussianSumQuery`, with noise from a seed in the query's global state."""

  _GlobalState = collections.namedtuple('_GlobalState', ['l2_norm_clip', 'stddev', 'draws', 'seed'])

  def __init__(self, l2_norm_clip: float, stddev: float, seed: Sequence[int]) -> None:
    """Creates the query. `seed` is two 64-bit integers, which no other query may have."""
    super().__init__(l2_norm_clip, stddev)
    self._seed = tuple(seed)

  def make_global_state(self, l2_norm_clip: Any, stddev: Any) -> Any:
    """Returns the state before the first draw."""
    return self._GlobalState(
      tf.cast(l2_norm_clip, tf.float32),
      tf.cast(stddev, tf.float32),
      tf.constant(0, tf.int64),
      tf.constant(self._seed, tf.int64),
    )

  def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
    """Returns the sum with the noise of this round, the next state and the privacy event."""
    stddev = global_state.stddev
    draws = global_state.draws
    leaves = tf.nest.flatten(sample_state)
    noised = []
    for i, leaf in enumerate(leaves):
      # All 128 bits: a folded seed has only 32, which an attacker could try one by one.
      seed = global_state.seed + tf.stack([draws, i])
      # A seed for each draw and each tensor: the same noise twice would cancel in a difference.
      noise = stddev * tf.random.stateless_normal(tf.shape(leaf), seed)
      noised.append(leaf + tf.cast(noise, leaf.dtype))
    event = dp_accounting.GaussianDpEvent(stddev / global_state.l2_norm_clip)
    after = global_state._replace(draws=draws + 1)
    return tf.nest.pack_sequence_as(sample_state, noised), after, event


class SeededAdaptiveClipSumQuery(tfp.QuantileAdaptiveClipSumQuery):
  """`QuantileAdaptiveClipSumQuery` of tensorflow_privacy, with noise from seeds in its state."""

  def __init__(self, seeds: Sequence[int], **options: float) -> None:
    """Creates the query from two seeds (four 64-bit integers) and the base class's options."""
    super().__init__(**options)
    clip = options['initial_l2_norm_clip']
    total = SeededGaussianSumQuery(clip, options['noise_multiplier'] * clip, seeds[:2])
    # A client adds 1/2 or -1/2 to the count.
    count = SeededGaussianSumQuery(0.5, options['clipped_count_stddev'], seeds[2:])
    below = tfp.NormalizedQuery(count, denominator=options['expected_num_records'])
    private_apis.replace_queries(self, total, below)

  def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
    """Calls the base class, then restores the seed and advances the count in the new state."""
    # The base class makes a new state of the sum for the adapted norm: with draws = 0, and with the
    # seed of this process, which may have resumed another's run.
    result, after, event = super().get_noised_result(sample_state, global_state)
    before = global_state.sum_state
    sum_state = after.sum_state._replace(draws=before.draws + 1, seed=before.seed)
    return result, after._replace(sum_state=sum_state), event

  def derive_metrics(self, global_state: Any) -> collections.OrderedDict:
    """Returns the clipping norm of the next round."""
    return collections.OrderedDict(clip_norm=global_state.sum_state.l2_norm_clip)


class _State(NamedTuple):
  """The state between rounds, with TFF's names; see `_utils.noise_states`.

  Attributes:
    query_state: The state of the query.
    agg_state: The state of the sum.
  """

  query_state: Any
  agg_state: Any


class PrivateMeanFactory(tff.aggregators.UnweightedAggregationFactory):
  """A factory of private means: sums with noise, divided by the size of the cohort.

  The state of its processes has no privacy event, which contains strings, unlike that of
  `tff.aggregators.DifferentiallyPrivateFactory`; `aggregation.accounting` computes epsilon instead.
  Tensors of the state that grow from round to round, the nodes of a tree, are empty at first.
  """

  def __init__(self, query: tfp.SumAggregationDPQuery, clients_per_round: int) -> None:
    """Creates the factory from a query that clips, sums and adds noise, for cohorts of one size."""
    # Divided by a fixed number: the true number of updates would need noise of its own.
    self._sum = query
    self._query = tfp.NormalizedQuery(query, float(clients_per_round))

  def create(self, value_type: Any) -> tff.templates.AggregationProcess:
    """Creates the process for values of the given type."""
    process = tff.aggregators.DifferentiallyPrivateFactory(self._query).create(value_type)
    specs = tff.types.type_to_tf_tensor_specs(value_type)

    @tff.tensorflow.computation
    def event() -> Any:
      state = self._query.initial_global_state()
      sample = self._query.initial_sample_state(specs)
      return self._query.get_noised_result(sample, state)[2].to_named_tuple()

    whole_type = process.initialize.type_signature.result
    query_type = whole_type.member.query_state

    @tff.tensorflow.computation(query_type)
    def emptied(state: Any) -> Any:
      def without_rows(leaf: Any) -> Any:
        if _grows(leaf):
          return leaf[:0]
        return leaf

      return tf.nest.map_structure(without_rows, state)

    @tff.tensorflow.computation(query_type)
    def begun(state: Any) -> Any:
      if not any(map(_grows, tf.nest.flatten(state))):
        return state
      tree = state.numerator_state  # With its own seed: this process may resume another run.
      is_first = tf.equal(tf.size(tree.tree_state.level_buffer_idx), 0)
      tree = tf.cond(is_first, lambda: self._sum.reset_state(None, tree), lambda: tree)
      return state._replace(numerator_state=tree)

    @tff.federated_computation
    def initialize() -> Any:
      whole = process.initialize()
      return tff.federated_zip(
        _State(tff.federated_map(emptied, whole.query_state), whole.agg_state)
      )

    @tff.federated_computation(
      initialize.type_signature.result, tff.types.FederatedType(value_type, tff.CLIENTS)
    )
    def next_fn(state: Any, value: Any) -> tff.templates.MeasuredProcessOutput:
      python_container = whole_type.member.python_container
      whole = python_container(
        tff.federated_map(begun, state.query_state),
        state.agg_state,
        tff.federated_eval(event, tff.SERVER),
        tff.federated_value(False, tff.SERVER),
      )
      output = process.next(tff.federated_zip(whole), value)
      after = _State(output.state.query_state, output.state.agg_state)
      return tff.templates.MeasuredProcessOutput(
        tff.federated_zip(after), output.result, output.measurements
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def _grows(leaf: tf.Tensor) -> bool:
  return bool(leaf.shape.rank) and leaf.shape[0] is None
