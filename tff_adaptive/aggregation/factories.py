"""From an aggregator's entry and options to TFF's aggregation factory."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_adaptive._utils import validation
from tff_adaptive.aggregation import private_mean, queries, table
from tff_adaptive.registry import entries

Factory: TypeAlias = (
  tff.aggregators.WeightedAggregationFactory | tff.aggregators.UnweightedAggregationFactory
)
Values = Mapping[str, Any]
_TREE = 0x7EE  # Distinguishes the noise of a tree from what else comes from the run's seed.


@dataclasses.dataclass(frozen=True)
class Cohort:
  """What an aggregator may need to know besides its options.

  Attributes:
    clients_per_round: Clients of a cohort, as many in every round, >= 1.
    weights: The model's trainable weights, or arrays like them.
    is_weighted: Whether clients are weighed.
    seed: Seeds the noise, 0 to 2^62 - 1.
  """

  clients_per_round: int
  weights: Sequence[Any]
  is_weighted: bool = True
  seed: int = 0

  def __post_init__(self) -> None:
    hint = 'give the clients of a cohort, such as 10'
    validation.whole_number('clients_per_round', self.clients_per_round, 1, hint)
    validation.whole_number('seed', self.seed, 0, 'give a seed such as 0', high=2**62 - 1)


def build_aggregator(
  aggregator: entries.Aggregator | str, values: Values, cohort: Cohort
) -> Factory | None:
  """Builds an aggregator of the table.

  Args:
    aggregator: An entry of `AGGREGATORS`, or its name.
    values: Option -> value; defaults for what is not there.
    cohort: Who is aggregated.

  Returns:
    The `aggregator` argument of the builders: a TFF aggregation factory, or None for the mean.

  Raises:
    TypeError: If a value is of another kind.
    ValueError: If there is no such aggregator or option, a value is out of its range, or noise is
      to be added and no multiplier is given.
  """
  entry = table.aggregator(aggregator) if isinstance(aggregator, str) else aggregator
  options = entry.values(values)
  if entry.is_private and options['noise_multiplier'] is None:
    raise ValueError(f'{entry.name} wants a noise_multiplier: give 1.0, say.')
  return entries.resolve(entry.build)(options, cohort)


def mean(values: Values, cohort: Cohort) -> None:
  """The mean, which the algorithms take by themselves."""
  del values, cohort


def clipping(values: Values, cohort: Cohort) -> Factory:
  """The mean of updates clipped to a fixed 2-norm, or to one adapted as TFF does."""
  if values['norm'] is not None:
    return tff.aggregators.clipping_factory(values['norm'], _mean(cohort))
  return _robust(cohort, zeroing=False)


def zeroing(values: Values, cohort: Cohort) -> Factory:
  """The mean of updates without those that have a coordinate beyond a norm, fixed or adapted."""
  if values['norm'] is not None:
    return tff.aggregators.zeroing_factory(values['norm'], _mean(cohort))
  return _robust(cohort, clipping=False)


def robust(values: Values, cohort: Cohort) -> Factory:
  """`tff.learning.robust_aggregator`."""
  return _robust(cohort, **values)


def compression(values: Values, cohort: Cohort) -> Factory:
  """`tff.learning.compression_aggregator`, with any number of bits and any threshold."""
  encoded = tff.aggregators.EncodedSumFactory.quantize_above_threshold(
    quantization_bits=values['bits'], threshold=values['threshold']
  )
  quantized = _mean(cohort, encoded)
  return tff.learning.robust_aggregator(
    zeroing=values['zeroing'],
    clipping=values['clipping'],
    weighted=cohort.is_weighted,
    debug_measurements_fn=lambda _: quantized,
  )


def secure(values: Values, cohort: Cohort) -> Factory:
  """`tff.learning.secure_aggregator`."""
  return tff.learning.secure_aggregator(weighted=cohort.is_weighted, **values)


def dp_gaussian(values: Values, cohort: Cohort) -> Factory:
  """`tff.aggregators.DifferentiallyPrivateFactory.gaussian_...`, its noise a function of the seed.

  "Learning Differentially Private Recurrent Language Models" (McMahan et al., 2018); adaptive
  clipping: "Differentially Private Learning with Adaptive Clipping" (Andrew et al., 2021).
  """
  z, clip = values['noise_multiplier'], values['clip']
  if values['adaptive']:
    from tff_adaptive.aggregation import accounting  # It imports SciPy, which takes long.

    stddev = accounting.count_stddev(cohort.clients_per_round, values['count_stddev'])
    query = queries.SeededAdaptiveClipSumQuery(
      cohort.seed,
      initial_l2_norm_clip=clip,
      noise_multiplier=accounting.update_noise_multiplier(z, stddev),
      target_unclipped_quantile=values['quantile'],
      learning_rate=values['clip_learning_rate'],
      clipped_count_stddev=stddev,
      expected_num_records=float(cohort.clients_per_round),
    )
  else:
    query = queries.SeededGaussianSumQuery(clip, clip * z, cohort.seed)
  return private_mean.PrivateMeanFactory(query, cohort.clients_per_round)


def dp_tree(values: Values, cohort: Cohort) -> Factory:
  """`tff.aggregators.DifferentiallyPrivateFactory.tree_aggregation`.

  "Practical and Private (Deep) Learning without Sampling or Shuffling" (Kairouz et al., 2021).
  """
  query = tfp.TreeResidualSumQuery.build_l2_gaussian_query(
    values['clip'],
    values['noise_multiplier'],
    tuple(tf.TensorSpec(w.shape, w.dtype) for w in cohort.weights),
    noise_seed=_noise_seed(cohort.seed),
    use_efficient=True,
  )
  return private_mean.PrivateMeanFactory(query, cohort.clients_per_round)


def _noise_seed(seed: int) -> int:
  """A seed from 0 to 2^62 - 1 for tensorflow_privacy, whose k-th draw is seeded by seed + k.

  Of two neighbouring seeds one run would have the noise of the other a draw later.
  """
  (word,) = np.random.SeedSequence([seed, _TREE]).generate_state(1, np.uint64)
  return int(word >> np.uint64(2))


def _mean(cohort: Cohort, sum_factory: Any = None) -> Factory:
  factory = (
    tff.aggregators.MeanFactory if cohort.is_weighted else (tff.aggregators.UnweightedMeanFactory)
  )
  return factory(sum_factory)


def _robust(cohort: Cohort, **options: bool) -> Factory:
  return tff.learning.robust_aggregator(weighted=cohort.is_weighted, **options)
