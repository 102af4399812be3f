"""Gaussian sums of tensorflow_privacy whose noise comes from a seed in their state, statelessly.

tensorflow_privacy draws noise from TensorFlow's own generator: a resumed run would differ from one
that was not interrupted. Here the state of a query has the seed, and counts the rounds. Clipping,
the adaptation of the norm and the size of the noise are the library's.
"""

import collections
from collections.abc import Sequence
from typing import Any

import dp_accounting
import tensorflow as tf
import tensorflow_privacy as tfp

from tff_adaptive._utils import private_apis


class SeededGaussianSumQuery(tfp.GaussianSumQuery):
  """`tfp.GaussianSumQuery` with noise of its own."""

  _GlobalState = collections.namedtuple('_GlobalState', ['l2_norm_clip', 'stddev', 'draws', 'seed'])

  def __init__(self, l2_norm_clip: float, stddev: float, seed: Sequence[int]) -> None:
    """Creates the query, of a seed that no other query has: two integers of 64 bits."""
    super().__init__(l2_norm_clip, stddev)
    self._seed = tuple(seed)

  def make_global_state(self, l2_norm_clip: Any, stddev: Any) -> Any:
    """The state before anything is drawn."""
    return self._GlobalState(
      tf.cast(l2_norm_clip, tf.float32),
      tf.cast(stddev, tf.float32),
      tf.constant(0, tf.int64),
      tf.constant(self._seed, tf.int64),
    )

  def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
    """Adds the noise of this round."""
    stddev, draws, seed = global_state.stddev, global_state.draws, global_state.seed
    leaves = tf.nest.flatten(sample_state)
    noised = [
      leaf
      + tf.cast(
        # All 128 bits: a folded seed has 32, which can be tried one after the other.
        stddev * tf.random.stateless_normal(tf.shape(leaf), seed + tf.stack([draws, i])),
        leaf.dtype,
      )
      for i, leaf in enumerate(leaves)
    ]
    event = dp_accounting.GaussianDpEvent(stddev / global_state.l2_norm_clip)
    after = global_state._replace(draws=draws + 1)
    return tf.nest.pack_sequence_as(sample_state, noised), after, event


class SeededAdaptiveClipSumQuery(tfp.QuantileAdaptiveClipSumQuery):
  """`tfp.QuantileAdaptiveClipSumQuery`, geometric, with noise of its own."""

  def __init__(self, seeds: Sequence[int], **options: float) -> None:
    """Creates the query of two seeds, four integers of 64 bits; the rest as for the base class."""
    super().__init__(**options)
    clip = options['initial_l2_norm_clip']
    total = SeededGaussianSumQuery(clip, options['noise_multiplier'] * clip, seeds[:2])
    # A record of the count is 1/2 or -1/2.
    count = SeededGaussianSumQuery(0.5, options['clipped_count_stddev'], seeds[2:])
    below = tfp.NormalizedQuery(count, denominator=options['expected_num_records'])
    private_apis.replace_queries(self, total, below)

  def get_noised_result(self, sample_state: Any, global_state: Any) -> Any:
    """As the base class, which makes a new state of the sum: its seed and its count go on."""
    result, after, event = super().get_noised_result(sample_state, global_state)
    before = global_state.sum_state
    sum_state = after.sum_state._replace(draws=before.draws + 1, seed=before.seed)
    return result, after._replace(sum_state=sum_state), event

  def derive_metrics(self, global_state: Any) -> collections.OrderedDict:
    """The clipping norm of the next round."""
    return collections.OrderedDict(clip_norm=global_state.sum_state.l2_norm_clip)
