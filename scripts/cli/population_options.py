"""From the flags of a population to `tff_adaptive.population.Population`; no TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive import population
from tff_adaptive._utils import suggestions
from tff_adaptive.population import rounds, speed as speed_lib

from . import options, population_settings

if TYPE_CHECKING:
  from . import settings as settings_lib

FILES = ('availability', 'client_profiles')
NAMES = tuple(f.name for f in dataclasses.fields(population_settings.PopulationSettings))
_KINDS: Mapping[str, Any] = {
  'always': population.Always,
  'independent': population.Independent,
  'diurnal': population.Diurnal,
}
# A column of client profiles -> whose option of which name it takes the place of.
_OPTION_OF = {'probability': ('independent', 'probability'), 'phase': ('diurnal', 'phases')}
_SIGMAS = ('speed_sigma', 'bandwidth_sigma')
_SIGMA_OF = {'seconds_per_step': 'speed_sigma'}
_DEFAULTS = {
  'availability': 'always',
  **{
    field.name: field.default
    for field in dataclasses.fields(speed_lib.Speed)
    if field.name != 'profiles'
  },
  'stragglers': 'drop',
  'over_select': 1.0,
  'dropout_rate': 0.0,
}


def check(values: dict[str, Any]) -> None:
  """Checks the flags and fills in their defaults, if any of them was given.

  Args:
    values: Flag name -> value, checked each for itself; changed in place.

  Raises:
    ValueError: With one line that names the flag, the value and the hint.
  """
  if all(values[name] in (None, []) for name in NAMES):
    return
  kind = values['availability']
  if kind is not None and kind not in _KINDS and not population_settings.is_file(kind):
    raise ValueError(
      f'--availability: {suggestions.unknown("availability", kind, [*_KINDS, "FILE.csv"])}'
    )
  profiles = values['client_profiles']
  if profiles is not None and not population_settings.is_file(profiles):
    raise ValueError(f'--client_profiles={profiles}: give a file whose name ends in .csv.')
  stragglers = values['stragglers']
  if stragglers is not None and stragglers not in rounds.STRAGGLERS:
    unknown = suggestions.unknown('stragglers', stragglers, rounds.STRAGGLERS)
    raise ValueError(f'--stragglers: {unknown}')
  if stragglers is not None and values['round_deadline'] is None:
    raise ValueError(f'--stragglers={stragglers} is for a deadline: give --round_deadline=60, say.')
  for name, default in _DEFAULTS.items():
    if values[name] is None:
      values[name] = default
  _option_values(values['availability'], values['availability_option'])


def build(settings: 'settings_lib.Settings') -> population.Population | None:
  """Returns the population that the settings describe, None if they describe none.

  Raises:
    ValueError: If a file cannot be read, or says what a flag says too.
  """
  if settings.availability is None:
    return None
  if settings.aggregator_entry.is_private:
    raise ValueError(
      f'--aggregator={settings.aggregator} does not go with --availability and the like: its'
      ' epsilon supposes that each round is drawn from all clients, and that all of it finish.'
    )
  profiles: dict[str, dict[str, float]] = {}
  if settings.client_profiles is not None:
    profiles = population.read_profiles(settings.client_profiles)
    _check_profiles(settings, profiles)
  return population.Population(
    availability=_availability(settings, profiles),
    speed=population.Speed(
      **{name: getattr(settings, name) for name in (*speed_lib.COLUMNS, *_SIGMAS)},
      profiles={name: profiles[name] for name in speed_lib.COLUMNS if name in profiles},
    ),
    round_deadline=settings.round_deadline,
    over_select=_given(settings.over_select),
    stragglers=settings.stragglers or 'drop',
    dropout_rate=_given(settings.dropout_rate),
  )


def _given(value: float | None) -> float:
  """A value that `check` has filled in."""
  assert value is not None
  return value


def _availability(
  settings: 'settings_lib.Settings', profiles: Mapping[str, Mapping[str, float]]
) -> population.Availability:
  kind = str(settings.availability)
  if population_settings.is_file(kind):
    intervals = population.read_trace(kind)
    try:
      return population.Trace(intervals)
    except ValueError as error:
      raise ValueError(f'--availability={kind}: {error}') from None
  values = _option_values(kind, settings.availability_option)
  for column, (owner, name) in _OPTION_OF.items():
    if column in profiles and owner == kind:
      values[name] = profiles[column]
  made: population.Availability = _KINDS[kind](**values)
  return made


def _option_values(kind: str, pairs: Any) -> dict[str, Any]:
  """Returns the options of an availability; ValueError if it has no such option, or bad ones."""
  values = options.parse('availability_option', pairs)
  allowed = []
  if kind in _KINDS:
    fields = [field.name for field in dataclasses.fields(_KINDS[kind])]
    allowed = [name for name in fields if name != 'phases']
  for name in values:
    if name not in allowed:
      known = f'; it has {", ".join(allowed)}' if allowed else ''
      raise ValueError(
        f'--availability_option={name}=...: {kind} has no such option{known}; leave it out.'
      )
  try:
    if kind in _KINDS:
      _KINDS[kind](**values)
  except (TypeError, ValueError) as error:
    raise ValueError(f'--availability_option: {error}') from None
  return values


def _check_profiles(
  settings: 'settings_lib.Settings', profiles: Mapping[str, Mapping[str, float]]
) -> None:
  """Refuses a column that nothing would use, or that a flag gives too."""
  path, kind = settings.client_profiles, settings.availability
  options_given = options.parse('availability_option', settings.availability_option)
  for column, (owner, name) in _OPTION_OF.items():
    if column in profiles and kind != owner:
      raise ValueError(
        f'{path} has the column {column}, which is of --availability={owner}; found {kind}.'
      )
    if column in profiles and name in options_given:
      raise ValueError(f'--availability_option={name}=... is in {path} too: leave one of them out.')
  for column in speed_lib.COLUMNS:
    for flag in (column, _SIGMA_OF.get(column)):
      if column in profiles and flag in settings.given:
        raise ValueError(f'--{flag} is in {path} too, as {column}: leave one of them out.')
  links = ('downlink', 'uplink')
  if 'bandwidth_sigma' in settings.given and all(link in profiles for link in links):
    raise ValueError(f'--bandwidth_sigma: {path} has downlink and uplink: leave one of them out.')
