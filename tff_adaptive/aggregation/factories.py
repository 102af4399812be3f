"""Builds TFF aggregation factories from the entries of `AGGREGATORS` and their options."""

import dataclasses
import math
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_adaptive._utils import validation
from tff_adaptive.aggregation import gathering, queries, robust as robust_rules, table
from tff_adaptive.registry import entries

Factory: TypeAlias = (
  tff.aggregators.WeightedAggregationFactory | tff.aggregators.UnweightedAggregationFactory
)
Values = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Cohort:
  """Facts about the cohorts that an aggregator may need in addition to its options.

  Attributes:
    clients_per_round: Number of clients in every cohort, >= 1.
    weights: The model's trainable weights, or arrays of the same shapes and dtypes.
    noise_seed: Seed of the noise for privacy, from 0 to 2^62 - 1. The noise is then reproducible,
      and hides nothing from those who know the seed. None draws a secret seed from the operating
      system and keeps it in the state.
  """

  clients_per_round: int
  weights: Sequence[Any]
  noise_seed: int | None = None

  def __post_init__(self) -> None:
    hint = 'give the clients of a cohort, such as 10'
    validation.whole_number('clients_per_round', self.clients_per_round, 1, hint)
    hint = 'give a seed such as 0, or None'
    validation.whole_number('noise_seed', self.noise_seed or 0, 0, hint, high=2**62 - 1)


def build_aggregator(
  aggregator: entries.Aggregator | str, values: Values, cohort: Cohort
) -> Factory | None:
  """Builds an aggregator of `AGGREGATORS`.

  Args:
    aggregator: An entry of `AGGREGATORS`, or its name.
    values: Options of the aggregator by name. Those left out have their defaults.
    cohort: Facts about the cohorts.

  Returns:
    The `aggregator` argument of the builders: a TFF aggregation factory, or None for the mean. A
    factory with noise is for one run: a process that begins again draws the same noise.

  Raises:
    TypeError: If a value has the wrong type.
    ValueError: If there is no such aggregator or option, a value is out of its range, or an
      aggregator with noise has no noise multiplier.
  """
  entry = aggregator
  if isinstance(entry, str):
    entry = table.aggregator(entry)
  options = entry.values(values)
  # It has no default: how much privacy a run needs is for its owner to say.
  if entry.is_private and options['noise_multiplier'] is None:
    raise ValueError(f'{entry.name} needs a noise_multiplier: give 1.0, say.')
  return entries.resolve(entry.build)(options, cohort)


def mean(values: Values, cohort: Cohort) -> None:
  """Returns None, which stands for the mean of the updates."""
  del values, cohort


def clipping(values: Values, cohort: Cohort) -> Factory:
  """Builds the mean of updates clipped to the 2-norm `norm`; None adapts the norm as in TFF."""
  if values['norm'] is not None:
    return tff.aggregators.clipping_factory(values['norm'], tff.aggregators.MeanFactory())
  return tff.learning.robust_aggregator(zeroing=False)


def zeroing(values: Values, cohort: Cohort) -> Factory:
  """Builds the mean with updates set to 0 that exceed `norm` in a coordinate; None adapts it."""
  if values['norm'] is not None:
    return tff.aggregators.zeroing_factory(values['norm'], tff.aggregators.MeanFactory())
  return tff.learning.robust_aggregator(clipping=False)


def robust(values: Values, cohort: Cohort) -> Factory:
  """Builds `tff.learning.robust_aggregator`; for the arguments see `build_aggregator`."""
  return tff.learning.robust_aggregator(**values)


def compression(values: Values, cohort: Cohort) -> Factory:
  """Builds `tff.learning.compression_aggregator` with the given number of bits and threshold."""
  encoded = tff.aggregators.EncodedSumFactory.quantize_above_threshold(
    quantization_bits=values['bits'], threshold=values['threshold']
  )
  quantized = tff.aggregators.MeanFactory(encoded)
  # TFF gives the innermost mean to this function and takes what it returns in its place. Its own
  # `compression_aggregator` is the same with a fixed number of bits and threshold.
  options = {name: values[name] for name in ('zeroing', 'clipping')}
  return tff.learning.robust_aggregator(debug_measurements_fn=lambda _: quantized, **options)


def secure(values: Values, cohort: Cohort) -> Factory:
  """Builds `tff.learning.secure_aggregator`; for the arguments see `build_aggregator`."""
  return tff.learning.secure_aggregator(**values)


def dp_gaussian(values: Values, cohort: Cohort) -> Factory:
  """Builds TFF's DP-FedAvg with a fixed or adaptive clipping norm, and noise from a seed.

  "Learning Differentially Private Recurrent Language Models" (McMahan et al., 2018); adaptive
  clipping: "Differentially Private Learning with Adaptive Clipping" (Andrew et al., 2021).
  """
  z = values['noise_multiplier']
  clip = values['clip']
  if values['adaptive']:
    from tff_adaptive.aggregation import accounting  # It imports SciPy, which takes long.

    # The noise on the count takes its part of z, so that the run as a whole has z.
    stddev = accounting.count_stddev(cohort.clients_per_round, values['count_stddev'])
    query = queries.SeededAdaptiveClipSumQuery(
      _noise_seeds(cohort),
      initial_l2_norm_clip=clip,
      noise_multiplier=accounting.update_noise_multiplier(z, stddev),
      target_unclipped_quantile=values['quantile'],
      learning_rate=values['clip_learning_rate'],
      clipped_count_stddev=stddev,
      expected_num_records=float(cohort.clients_per_round),
    )
  else:
    query = queries.SeededGaussianSumQuery(clip, clip * z, _noise_seeds(cohort)[:2])
  return queries.PrivateMeanFactory(query, cohort.clients_per_round)


def dp_tree(values: Values, cohort: Cohort) -> Factory:
  """Builds DP-FTRL's private mean, like `DifferentiallyPrivateFactory.tree_aggregation` of TFF.

  "Practical and Private (Deep) Learning without Sampling or Shuffling" (Kairouz et al., 2021).
  """
  query = tfp.TreeResidualSumQuery.build_l2_gaussian_query(
    values['clip'],
    values['noise_multiplier'],
    tuple(tf.TensorSpec(w.shape, w.dtype) for w in cohort.weights),
    noise_seed=tuple(_noise_seeds(cohort)[:2]),  # A single seed would be repeated.
    use_efficient=True,
  )
  return queries.PrivateMeanFactory(query, cohort.clients_per_round)


def median(values: Values, cohort: Cohort) -> Factory:
  """Builds the coordinate-wise median of the updates."""
  del values, cohort
  return gathering.RuleFactory(robust_rules.median)


def trimmed_mean(values: Values, cohort: Cohort) -> Factory:
  """Builds the coordinate-wise trimmed mean of the updates."""
  rule = robust_rules.TrimmedMean(values['trim'])
  size = cohort.clients_per_round
  if rule.trim and not rule.cut(size):
    hint = 'take the mean'
    if size > 2:
      hint = f'give {math.ceil(100 / size) / 100:g} or more'
    raise ValueError(f'trim is {rule.trim:g}, which cuts off no client of {size}: {hint}.')
  return gathering.RuleFactory(rule)


def krum(values: Values, cohort: Cohort) -> Factory:
  """Builds Krum: the update nearest to its neighbours."""
  return _krum(robust_rules.Krum(values['attackers'], 1), cohort)


def multi_krum(values: Values, cohort: Cohort) -> Factory:
  """Builds Multi-Krum: the mean of the updates nearest to their neighbours."""
  return _krum(robust_rules.Krum(values['attackers'], values['selected']), cohort)


def _krum(rule: robust_rules.Krum, cohort: Cohort) -> Factory:
  """Builds Krum or Multi-Krum; raises ValueError if the cohorts are too small for its options."""
  size = cohort.clients_per_round
  if rule.attackers + 2 >= size:
    raise ValueError(
      f'attackers is {rule.attackers}, so that of {size} clients none has the m - f - 2 nearest'
      f' others of which a score is the sum: give fewer, or {rule.attackers + 3} or more clients.'
    )
  if (rule.selected or 1) > size:
    raise ValueError(f'selected is {rule.selected}, of {size} clients: give {size} or fewer.')
  return gathering.RuleFactory(rule)


def geometric_median(values: Values, cohort: Cohort) -> Factory:
  """Builds the geometric median of the updates, by smoothed Weiszfeld steps (RFA)."""
  del cohort
  return gathering.RuleFactory(robust_rules.GeometricMedian(**values))


def norm_bounding(values: Values, cohort: Cohort) -> Factory:
  """Builds the mean of updates scaled down to a norm; None is the median norm of the cohort."""
  del cohort
  return gathering.RuleFactory(robust_rules.NormBounding(values['norm']))


def centred_clipping(values: Values, cohort: Cohort) -> Factory:
  """Builds the last aggregate plus the mean of the clipped differences from it."""
  del cohort
  return gathering.RuleFactory(robust_rules.CentredClipping(**values))


def _noise_seeds(cohort: Cohort) -> list[int]:
  """Returns two noise seeds, four 64-bit integers; close values of `noise_seed` give unlike seeds.

  The k-th draw has the seed plus k. With neighbouring seeds one run would repeat the noise of the
  other, one draw later.
  """
  entropy = cohort.noise_seed
  if entropy is None:
    entropy = secrets.randbits(128)
  words = np.random.SeedSequence(entropy).generate_state(4, np.uint64)
  return [int(word) for word in words.view(np.int64)]
