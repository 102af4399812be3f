"""The aggregators as plain data, and a check of the algorithms that each accepts.

Code is named as 'module:function', so that this module does not import TensorFlow.
"""

from collections.abc import Mapping
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import user_code, validation
from tff_adaptive.registry import described, user_parts
from tff_adaptive.registry.entries import (
  SUM_IN_SECRET,
  Aggregator,
  Hyperparameter,
  by_name,
  named,
)

_ABOVE_ZERO = validation.above_zero
_HINT = 'give a norm such as 1.0, or leave it out'
_ZEROING = Hyperparameter('zeroing', bool, True, 'Zero updates that are far too large')
_CLIPPING = Hyperparameter('clipping', bool, True, 'Clip updates to an adapted 2-norm')
_NOISE = 'z: the standard deviation of the noise on a sum of updates is z times the clipping norm'
_NOISE_MULTIPLIER = Hyperparameter(
  'noise_multiplier', float, None, _NOISE, _ABOVE_ZERO, 'give a multiplier such as 1.0'
)
_QUANTILE = 'The share of updates left unclipped that the norm adapts to'
_COUNT_STDDEV = 'Noise on the count of unclipped updates; a twentieth of a cohort unless given'


def _norm(what: str) -> Hyperparameter:
  what = f'{what}; adapted to the cohorts unless given'
  return Hyperparameter('norm', float, None, what, _ABOVE_ZERO, _HINT)


def _bits(name: str, value: Any, hint: str) -> Any:
  validation.whole_number(name, value, 1, hint, 16)
  return value


def _clip(default: float) -> Hyperparameter:
  what = 'The 2-norm that updates are clipped to; the first one where it adapts'
  return Hyperparameter('clip', float, default, what, _ABOVE_ZERO, 'give a norm such as 0.1')


def _entry(
  name: str, description: str, *hyperparameters: Hyperparameter, promise: str = '', **options: Any
) -> Aggregator:
  """Returns the entry of an aggregator, built by the function of the same name in `factories`."""
  build = f'tff_adaptive.aggregation.factories:{name}'
  return Aggregator(name, description, build, hyperparameters, promise=promise, **options)


def _trim(name: str, value: Any, hint: str) -> Any:
  if not 0 <= validation.real(name, value, hint) < 0.5:
    raise ValueError(f'{name} must be in [0, 0.5), found {value}: {hint}.')
  return value


_ATTACKERS = Hyperparameter(
  'attackers', int, 1, 'f: how many clients of a cohort may send anything', validation.whole
)
_MEDIAN_NORM = 'the median of the cohort unless given'
# A promise is the verb in the messages of `check`, which refuses algorithms that would break it.
_ROBUST: dict[str, Any] = {'promise': 'bound'}
_PRIVATE: dict[str, Any] = {'promise': 'clip and noise', 'is_weighted': False, 'is_private': True}

AGGREGATORS: Mapping[str, Aggregator] = by_name(
  _entry('mean', 'the weighted mean of the updates'),
  _entry('clipping', 'updates are clipped to a 2-norm', _norm('The 2-norm'), promise='clip'),
  _entry(
    'zeroing',
    'updates with a coordinate far too large count as zero',
    _norm('The largest coordinate'),
    promise='bound',
  ),
  _entry(
    'robust',
    "TFF's robust aggregator: zeroing and clipping",
    _ZEROING,
    _CLIPPING,
    promise='bound',
  ),
  _entry(
    'compression',
    "large tensors of an update are quantized at random, without bias, by TensorFlow's own"
    ' generator: a repeated or resumed run may differ in its last bits',
    Hyperparameter('bits', int, 8, 'Bits of a coordinate, 1 to 16', _bits, 'give 8, say'),
    Hyperparameter(
      'threshold', int, 20000, 'Tensors of more elements are quantized', validation.whole
    ),
    _ZEROING,
    _CLIPPING,
  ),
  _entry(
    'secure',
    'updates are summed as integers, as in a secure sum',
    _ZEROING,
    _CLIPPING,
    promise=SUM_IN_SECRET,
  ),
  _entry(
    'median',
    'the median of each coordinate; all updates of a cohort are in memory, as with the next six',
    is_weighted=False,
    **_ROBUST,
  ),
  _entry(
    'trimmed_mean',
    'the mean of each coordinate without its largest and smallest values',
    Hyperparameter('trim', float, 0.1, 'The share cut off at each end', _trim, 'give 0.2, say'),
    is_weighted=False,
    **_ROBUST,
  ),
  _entry(
    'krum',
    'the one update that is nearest to its neighbours',
    _ATTACKERS,
    is_weighted=False,
    **_ROBUST,
  ),
  _entry(
    'multi_krum',
    'the mean of the updates that are nearest to their neighbours',
    _ATTACKERS,
    Hyperparameter(
      'selected', int, None, 'How many; the cohort less f unless given', validation.count
    ),
    is_weighted=False,
    **_ROBUST,
  ),
  _entry(
    'geometric_median',
    'the point with the least sum of distances to the updates: RFA',
    Hyperparameter('iterations', int, 4, 'Weiszfeld steps of a round', validation.count),
    Hyperparameter('smoothing', float, 1e-6, 'nu: the least distance that counts', _ABOVE_ZERO),
    **_ROBUST,
  ),
  _entry(
    'norm_bounding',
    'updates are scaled down to a 2-norm that follows the cohort, or is given',
    Hyperparameter('norm', float, None, f'The 2-norm; {_MEDIAN_NORM}', _ABOVE_ZERO, _HINT),
    **_ROBUST,
  ),
  _entry(
    'centred_clipping',
    'differences of the updates from the last aggregate are clipped',
    Hyperparameter(
      'radius', float, None, f'tau: the largest 2-norm; {_MEDIAN_NORM}', _ABOVE_ZERO, _HINT
    ),
    Hyperparameter('iterations', int, 1, 'Steps of a round', validation.count),
    **_ROBUST,
  ),
  _entry(
    'dp_gaussian',
    'clipped updates with Gaussian noise, cohorts drawn at random: DP-FedAvg',
    _NOISE_MULTIPLIER,
    _clip(0.1),
    Hyperparameter('adaptive', bool, True, 'Adapt the clipping norm to a quantile'),
    Hyperparameter(
      'quantile', float, 0.5, _QUANTILE, validation.up_to_one, 'give 0.5 for the median'
    ),
    Hyperparameter(
      'clip_learning_rate', float, 0.2, 'How fast the norm adapts', validation.at_least_zero
    ),
    Hyperparameter(
      'count_stddev', float, None, _COUNT_STDDEV, _ABOVE_ZERO, 'give a twentieth of a cohort'
    ),
    **_PRIVATE,
  ),
  _entry(
    'dp_tree',
    'clipped updates with noise on a tree of rounds, for any cohorts: DP-FTRL',
    _NOISE_MULTIPLIER,
    _clip(1.0),
    **_PRIVATE,
  ),
)


def aggregator(name: str) -> Aggregator:
  """Returns the entry of an aggregator.

  Args:
    name: A name in `AGGREGATORS`, or 'FILE.py:NAME'. NAME is a function of a `factories.Cohort`
      that returns a TFF aggregation factory; its further arguments, with defaults, are options. It
      may have the attributes `is_weighted` (False if the factory takes no weights) and `promise`;
      see `entries.Aggregator`.

  Raises:
    ValueError: If there is none of this name, or the file cannot be used.
  """
  if not user_code.is_reference(name):
    return named('aggregator', name, AGGREGATORS)
  part = user_parts.load(name, 'a function of a cohort that returns a TFF aggregation factory')
  return Aggregator(
    part.name,
    "a user's own",
    lambda values, cohort: part.definition(cohort, **values),
    part.hyperparameters,
    is_weighted=bool(getattr(part.definition, 'is_weighted', True)),
    promise=str(getattr(part.definition, 'promise', '')),
  )


def check(
  entry: Aggregator,
  algorithm: registry.Algorithm,
  values: Mapping[str, Any],
  client_weighting: str,
  client_optimizer_state: str = 'reset',
) -> None:
  """Checks that what an aggregator promises, such as clipping, holds for all that moves the model.

  An aggregator acts on the updates only. If a client also sends something else that moves the
  model, clipping, noise or a secure sum of the updates does not limit or hide its influence.

  Args:
    entry, algorithm: The registry's entries of the aggregator and of the algorithm.
    values: The hyperparameters of the algorithm's correction by name.
    client_weighting: The weighting of the clients, such as 'uniform'.
    client_optimizer_state: See `ClientTraining.optimizer_state`.

  Raises:
    ValueError: If the promise does not hold, or clients have weights and the aggregator takes none.
  """
  if not entry.is_weighted and client_weighting != 'uniform':
    raise ValueError(
      f'{entry.name} has no weights, but client_weighting is {client_weighting!r}: give uniform.'
    )
  _check_compression(entry, algorithm)
  if not entry.promise:
    return
  # Uploads do not pass the aggregator; FedNova's |a_i|, say, could be any number.
  if algorithm.uploads:
    raise ValueError(
      f'{entry.name} does not {entry.promise} all that moves the model: a client of'
      f' {algorithm.name} also sends {algorithm.uploads}. Take another algorithm, such as fed_avg'
      ' or fed_dyn.'
    )
  if client_optimizer_state == 'average':
    raise ValueError(
      f"{entry.name} does not {entry.promise} the states of the clients' optimizers, whose average"
      ' moves the model: give client_optimizer_state reset or keep.'
    )
  if entry.is_private and values.get('scale_mu'):
    raise ValueError(
      f'{entry.name} adds no noise to the mean number of examples, by which scale_mu moves the'
      ' model: leave scale_mu out.'
    )


def _check_compression(entry: Aggregator, algorithm: registry.Algorithm) -> None:
  """Raises ValueError if an aggregator cannot follow the compressors of an algorithm."""
  names = [part.name for part in described.classes_of(algorithm) if part.compresses]
  if not names:
    return
  compressors = '+'.join(names)
  if entry.name == 'secure':
    raise ValueError(
      f'secure does not go with {compressors}: in a secure sum a client sends every coordinate'
      f' under a mask, whatever {compressors} left out; leave one of them out.'
    )
  if entry.name == 'compression':
    raise ValueError(
      f'compression does not go with {compressors}, which compresses already: leave one of them'
      ' out; quantize rounds as compression does.'
    )
