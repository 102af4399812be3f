"""The flags of aggregation and privacy: fields, checks, and what is planned from them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import validation
from tff_adaptive.aggregation import table
from tff_adaptive.registry import entries

from . import fields, options

GROUP = 'Aggregation and privacy'


@dataclasses.dataclass(frozen=True, kw_only=True)
class AggregatorSettings:
  """The settings of aggregation and privacy; see `--help` for what each means."""

  aggregator: str = fields.flag(
    GROUP, 'How the server combines updates: of the list above.', 'mean'
  )
  aggregator_option: tuple[str, ...] = fields.flag(
    GROUP, 'An option of the aggregator, NAME=VALUE; see the list above. May be repeated.', []
  )
  target_epsilon: float | None = fields.flag(
    GROUP,
    'For dp_gaussian and dp_tree: take the least noise with which all rounds together have this'
    ' epsilon at --delta.',
    None,
    validation.above_zero,
    'give an epsilon such as 8',
  )
  delta: float | None = fields.flag(
    GROUP,
    'delta of the epsilon that is reported. Default N^-1.1, N the number of clients.',
    None,
    validation.in_unit_interval,
    'give a delta such as 1e-5',
  )

  @property
  def aggregator_entry(self) -> entries.Aggregator:
    """The aggregator's entry."""
    return table.aggregator(self.aggregator)

  @property
  def aggregator_options(self) -> dict[str, Any]:
    """All options of the aggregator, by name."""
    return values(self.aggregator_entry, self.aggregator_option)


def values(entry: entries.Aggregator, pairs: Sequence[str]) -> dict[str, Any]:
  """Returns all options of an aggregator: those given, checked, and defaults.

  Args:
    entry: The aggregator.
    pairs: NAME=VALUE each.

  Raises:
    ValueError: In one line that names the flag, if one is unknown or out of its range.
  """
  given = options.parse('aggregator_option', pairs)
  kinds = {h.name: h.kind for h in entry.hyperparameters}
  for name, value in given.items():
    if kinds.get(name) is float and type(value) is int:
      given[name] = float(value)
  try:
    return entry.values(given)
  except (TypeError, ValueError) as error:
    raise ValueError(f'--aggregator_option: {error}') from None


def check(
  given: Mapping[str, Any], algorithm: registry.Algorithm, correction: Mapping[str, Any]
) -> None:
  """Refuses an aggregator that there is not, or that does not go with the rest.

  Args:
    given: Flag name -> value, defaults filled in.
    algorithm: The algorithm's entry.
    correction: The hyperparameters of its correction.

  Raises:
    ValueError: In one line that names the flag and the hint.
  """
  entry = _entry(given['aggregator'])
  chosen = values(entry, given['aggregator_option'])
  try:
    table.check(entry, algorithm, correction, given['client_weighting'])
  except ValueError as error:
    raise ValueError(f'--aggregator: {error}') from None
  if entry.name == 'secure' and given['engine'] == 'native':
    raise ValueError(
      "--aggregator=secure does not go with --engine=native: TFF's own runtime has no secure sums;"
      ' leave out --engine.'
    )
  if not entry.is_private:
    for name in ('target_epsilon', 'delta'):
      if given[name] is not None:
        private = ', '.join(a.name for a in table.AGGREGATORS.values() if a.is_private)
        raise ValueError(f'--{name} is for --aggregator {private}: leave it out.')
    return
  if given['delta'] == 0:
    raise ValueError('--delta must be above 0, found 0: noise of a Gaussian gives no epsilon then.')
  if (chosen['noise_multiplier'] is None) == (given['target_epsilon'] is None):
    raise ValueError(
      f'--aggregator={entry.name} wants either --target_epsilon or'
      ' --aggregator_option=noise_multiplier=VALUE: give one of them.'
    )


def default_weighting(name: str) -> dict[str, str]:
  """Returns the weighting of clients that an aggregator asks for; none if it takes any."""
  return {} if _entry(name).is_weighted else {'client_weighting': 'uniform'}


def _entry(name: str) -> entries.Aggregator:
  try:
    return table.aggregator(name)
  except ValueError as error:
    raise ValueError(f'--aggregator: {error}') from None
