"""Settings of clients that are sometimes away, slow, or fail, in virtual time."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_adaptive import population
from tff_adaptive._utils import suggestions, user_code, validation
from tff_adaptive.population import rounds, speed as speed_lib
from tff_adaptive.registry import user_parts

from .. import fields, options

_KINDS: Mapping[str, Any] = {
  'always': population.Always,
  'independent': population.Independent,
  'diurnal': population.Diurnal,
}
# The fields of the dataclasses of a population that are not flags of the same names.
_BUILT = ('availability', 'speed', 'profiles')
# For a column of client profiles, the availability and its argument that the column sets.
_ARGUMENT_OF = {'probability': ('independent', 'probability'), 'phase': ('diurnal', 'phases')}
# For a flag, the columns of client profiles that set the same values.
_IN_COLUMNS = {
  **{name: (name,) for name in speed_lib.COLUMNS},
  'speed_sigma': ('seconds_per_step',),
  'bandwidth_sigma': ('downlink', 'uplink'),
  'availability_option=probability': ('probability',),
}


def options_of(availability: str) -> list[str]:
  """Returns the options of a built-in availability; [] for something else."""
  if availability not in _KINDS:
    return []
  names = [field.name for field in dataclasses.fields(_KINDS[availability])]
  return [name for name in names if name != 'phases']


@dataclasses.dataclass(frozen=True, kw_only=True)
class Population(fields.Group):
  """Settings of unavailable, slow and failing clients; all None or empty if none is given."""

  TITLE = 'Unavailable, slow and failing clients (by default every drawn client finishes)'

  availability: str | None = fields.flag(
    'When clients are available: always; independent, with a probability; diurnal, a part of each'
    ' day; or by a trace FILE.csv with the columns client, from, until, in virtual seconds, which'
    ' repeats; or your own, FILE.py:NAME. Default always.'
  )
  availability_option: tuple[str, ...] = fields.flag(
    'An option of --availability, NAME=VALUE: probability=0.5 for independent; period=24, unit='
    'hours (or rounds), share=0.5 for diurnal. May be repeated.',
    [],
  )
  client_profiles: str | None = fields.flag(
    'FILE.csv with a line for each client: client, and one or more of seconds_per_step, downlink,'
    ' uplink, probability (for independent), phase (0 to 1, for diurnal).'
  )
  speed: str | None = fields.flag(
    "The clients' speed of your own, FILE.py:NAME, in place of the next flags and of profiles."
  )
  speed_option: tuple[str, ...] = fields.flag(
    'An option of --speed, NAME=VALUE. May be repeated.', [], needs='speed'
  )
  seconds_per_step: float | None = fields.number(
    'Median virtual seconds of a local step over the clients. Default 0.1.', validation.above_zero
  )
  speed_sigma: float | None = fields.number(
    'Sigma of the log-normal spread of the seconds per step over clients. Default 0: no spread.',
    validation.at_least_zero,
  )
  downlink: float | None = fields.number(
    'Median bandwidth to a client, in 10^6 bytes a virtual second. Default 10.',
    validation.above_zero,
  )
  uplink: float | None = fields.number(
    'Median bandwidth from a client, in the same unit. Default 1.', validation.above_zero
  )
  bandwidth_sigma: float | None = fields.number(
    'Sigma of the log-normal spread of both bandwidths. Default 0: no spread.',
    validation.at_least_zero,
  )
  round_deadline: float | None = fields.number(
    'Virtual seconds after which a round closes. Default none.', validation.above_zero
  )
  stragglers: str | None = fields.flag(
    'What to do with a client that cannot take all its steps before the deadline: drop leaves it'
    ' out; partial has it take as many steps as fit. Default drop.',
    choices=rounds.STRAGGLERS,
    needs='round_deadline',
  )
  over_select: float | None = fields.number(
    'Factor by which more clients are drawn than --clients_per_round. The round closes when'
    ' --clients_per_round have finished. Default 1.',
    validation.at_least_one,
  )
  dropout_rate: float | None = fields.number(
    'Probability that a drawn client fails at a random step. Default 0.',
    validation.in_unit_interval,
  )

  @classmethod
  def defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults of a population if a flag of this group was given, else {}."""
    names = [f.name for f in dataclasses.fields(cls)]
    # Without any of these flags there is no population, and config.json says None for each.
    if all(values[name] in (None, []) for name in names):
      return {}
    by_default: dict[str, Any] = {}
    for kind in (population.Population, population.Speed):
      by_default.update({field.name: field.default for field in dataclasses.fields(kind)})
    has_flag = [name for name in names if name in by_default and name not in _BUILT]
    defaults = {name: by_default[name] for name in has_flag}
    return {**defaults, 'availability': 'always'}

  def check(self) -> None:
    """Raises ValueError for an unknown availability or option, or profiles not in a .csv file."""
    if self.availability is None:
      return
    if not _is_file(self.availability) and not user_code.is_reference(self.availability):
      fields.check_name('availability', self.availability, (*_KINDS, 'FILE.csv', 'FILE.py:NAME'))
    path = self.client_profiles
    if path is not None and not _is_file(path):
      raise ValueError(f'--client_profiles={path}: give a file whose name ends in .csv.')
    if self.speed is not None:
      self._own_speed()
    self._options()

  def sources(self) -> dict[str, user_code.UserCode]:
    """See `fields.Group.sources`."""
    sources = {}
    for flag in ('availability', 'speed'):
      value = getattr(self, flag)
      if value is not None and user_code.is_reference(value):
        sources[flag] = user_code.load(value)[1]
    return sources

  def _own_speed(self) -> Any:
    """Returns the user's own speed."""
    if not user_code.is_reference(str(self.speed)):
      raise ValueError(f'--speed={self.speed}: give a class of your own, FILE.py:NAME.')
    with fields.about('speed'):
      part = user_parts.load(str(self.speed), 'a class with the method times of population.Speed')
      speed = part.build(options.parse('speed_option', self.speed_option))
      if not hasattr(speed, 'times'):
        raise ValueError(f'{part.name} has no method times: give it that of population.Speed.')
      return speed

  def files(self) -> dict[str, str]:
    """Returns the paths of CSV files by the name of the flag that gives the path."""
    named = {name: getattr(self, name) for name in ('availability', 'client_profiles')}
    return {name: path for name, path in named.items() if _is_file(path)}

  def build(self, given: Mapping[str, Any]) -> population.Population | None:
    """Returns the population, or None if no flag of it was given. `given` is that of `Settings`."""
    if self.availability is None:
      return None
    profiles: dict[str, dict[str, float]] = {}
    if self.client_profiles is not None:
      profiles = population.read_profiles(self.client_profiles)
      self._check_profiles(profiles, given)
    speed: Any
    if self.speed is None:
      of_speed = {name: profiles[name] for name in speed_lib.COLUMNS if name in profiles}
      speed = population.Speed(**self._flags_of(population.Speed), profiles=of_speed)
    else:
      speed = self._own_speed()
    return population.Population(
      **self._flags_of(population.Population),
      availability=self._availability(profiles),
      speed=speed,
    )

  def _flags_of(self, kind: type) -> dict[str, Any]:
    """Returns the values of the flags that have the names of fields of a dataclass."""
    names = [field.name for field in dataclasses.fields(kind) if field.name not in _BUILT]
    return {name: getattr(self, name) for name in names}

  def _availability(self, profiles: Mapping[str, Mapping[str, float]]) -> population.Availability:
    kind = str(self.availability)
    if _is_file(kind):
      intervals = population.read_trace(kind)
      with fields.about(f'availability={kind}'):
        return population.Trace(intervals)
    if user_code.is_reference(kind):
      return self._own_availability(kind)
    values = self._options()
    for column, (owner, name) in _ARGUMENT_OF.items():
      if column in profiles and owner == kind:
        values[name] = profiles[column]
    availability: population.Availability = _KINDS[kind](**values)
    return availability

  def _own_availability(self, reference: str) -> population.Availability:
    """Returns the user's own availability."""
    with fields.about('availability'):
      part = user_parts.load(reference, 'a class with the method bind of population.Availability')
      availability = part.build(options.parse('availability_option', self.availability_option))
      if not hasattr(availability, 'bind'):
        raise ValueError(
          f'{part.name} has no method bind: give it that of population.Availability.'
        )
      return availability

  def _options(self) -> dict[str, Any]:
    """Returns the availability's options. Raises ValueError if one is unknown or invalid."""
    kind = str(self.availability)
    if user_code.is_reference(kind):
      self._own_availability(kind)
      return options.parse('availability_option', self.availability_option)
    allowed = options_of(kind)
    with fields.about('availability_option'):
      values = options.parse('availability_option', self.availability_option)
      for name in values:
        if name not in allowed:
          raise ValueError(suggestions.unknown(f'option of {kind}', name, allowed))
      if kind in _KINDS:
        _KINDS[kind](**values)
    return values

  def _check_profiles(
    self, profiles: Mapping[str, Mapping[str, float]], given: Mapping[str, Any]
  ) -> None:
    """Raises ValueError if a column of `profiles` has no use, or a flag gives its values too."""
    path = self.client_profiles
    for column, (owner, _) in _ARGUMENT_OF.items():
      if column in profiles and self.availability != owner:
        raise ValueError(
          f'{path} has the column {column}, which needs --availability={owner}, found'
          f' {self.availability}.'
        )
    names = {*given}
    names.update(f'availability_option={name}' for name in self._options())
    for flag, columns in _IN_COLUMNS.items():
      if flag in names and {*columns} <= {*profiles}:
        raise ValueError(
          f'--{flag} is in {path} too, as {" and ".join(columns)}: leave one of them out.'
        )


def _is_file(value: str | None) -> bool:
  """Returns whether a flag's value is the name of a CSV file."""
  return value is not None and value.endswith('.csv')
