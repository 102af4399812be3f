"""Gaussian sums of tensorflow_privacy whose noise comes from (seed, round), statelessly.

tensorflow_privacy draws noise from TensorFlow's own generator: two runs of a seed, or a resumed
one, would differ. Here the state of the query counts the rounds. Clipping, the adaptation of the
norm and the size of the noise are the library's.
"""

import collections
from typing import Any

import dp_accounting
import tensorflow as tf
import tensorflow_privacy as tfp

from tff_adaptive._utils import private_apis, seeds

# No round and no client has such a number: `seeds.fold` of a client takes those.
_UPDATES, _COUNTS = -1, -2


class SeededGaussianSumQuery(tfp.GaussianSumQuery):
  """`tfp.GaussianSumQuery` with noise of its own."""

  _GlobalState = collections.namedtuple('_GlobalState', ['l2_norm_clip', 'stddev', 'draws'])

  def __init__(self, l2_norm_clip: float, stddev: float, seed: int, salt: int = _UPDATES) -> None:
    """Creates the query, of the run's seed, 0 to 2^62 - 1, and a salt for each query of a run."""
    super().__init__(l2_norm_clip, stddev)
    self._seed, self._salt = seed, salt

  def make_global_state(self, l2_norm_clip: Any, stddev: Any) -> Any:
    """The state before anything is drawn."""
    return self._GlobalState(
      tf.cast(l2_norm_clip, tf.float32), tf.cast(stddev, tf.float32), tf.constant(0, tf.int32)
    )

  def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
    """Adds the noise of this round."""
    seed = seeds.fold(seeds.base(self._seed), self._salt, global_state.draws)
    leaves = tf.nest.flatten(sample_state)
    noised = [
      leaf
      + tf.cast(
        global_state.stddev * tf.random.stateless_normal(tf.shape(leaf), seeds.fold(seed, i)),
        leaf.dtype,
      )
      for i, leaf in enumerate(leaves)
    ]
    event = dp_accounting.GaussianDpEvent(global_state.stddev / global_state.l2_norm_clip)
    after = global_state._replace(draws=global_state.draws + 1)
    return tf.nest.pack_sequence_as(sample_state, noised), after, event


class SeededAdaptiveClipSumQuery(tfp.QuantileAdaptiveClipSumQuery):
  """`tfp.QuantileAdaptiveClipSumQuery`, geometric, with noise of its own."""

  def __init__(self, seed: int, **options: float) -> None:
    """Creates the query: `seed` as for `SeededGaussianSumQuery`, the rest as for the base class."""
    super().__init__(**options)
    clip = options['initial_l2_norm_clip']
    total = SeededGaussianSumQuery(clip, options['noise_multiplier'] * clip, seed)
    # A record of the count is 1/2 or -1/2.
    count = SeededGaussianSumQuery(0.5, options['clipped_count_stddev'], seed, _COUNTS)
    below = tfp.NormalizedQuery(count, denominator=options['expected_num_records'])
    private_apis.replace_queries(self, total, below)

  def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
    """As the base class, which makes a new state of the sum: its count of rounds goes on."""
    result, after, event = super().get_noised_result(sample_state, global_state)
    counted = after.sum_state._replace(draws=global_state.sum_state.draws + 1)
    return result, after._replace(sum_state=counted), event

  def derive_metrics(self, global_state: Any) -> collections.OrderedDict:
    """The clipping norm of the next round."""
    return collections.OrderedDict(clip_norm=global_state.sum_state.l2_norm_clip)
