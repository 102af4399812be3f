"""Clients that are not always there, take their time and fail: a population in virtual time."""

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive import population
from tff_adaptive._utils import suggestions, validation
from tff_adaptive.population import rounds, speed as speed_lib

from .. import fields, options

if TYPE_CHECKING:
  from .. import settings as settings_lib

FILES = ('availability', 'client_profiles')
_KINDS: Mapping[str, Any] = {
  'always': population.Always,
  'independent': population.Independent,
  'diurnal': population.Diurnal,
}
# A column of client profiles -> whose option of which name it takes the place of.
_OPTION_OF = {'probability': ('independent', 'probability'), 'phase': ('diurnal', 'phases')}
_SIGMAS = ('speed_sigma', 'bandwidth_sigma')
# A flag -> the columns that say the same.
_IN_COLUMNS = {
  **{name: (name,) for name in speed_lib.COLUMNS},
  'speed_sigma': ('seconds_per_step',),
  'bandwidth_sigma': ('downlink', 'uplink'),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Population(fields.Group):
  """The settings of a population; None throughout for a run without one."""

  TITLE = 'Clients as they are (none of these: every client drawn finishes, and no virtual clock)'

  availability: str | None = fields.flag(
    'Who can be drawn: always; independent, with a probability; diurnal, a part of each day; or'
    ' FILE.csv with the columns client, from, until, in virtual seconds, which repeats. Default'
    ' always.'
  )
  availability_option: tuple[str, ...] = fields.flag(
    'An option of it, NAME=VALUE: probability=0.5 of independent; period=24, unit=hours (or'
    ' rounds), share=0.5 of diurnal. May be repeated.',
    [],
  )
  client_profiles: str | None = fields.flag(
    'FILE.csv with a line for each client: client, and one or more of seconds_per_step, downlink,'
    ' uplink, probability (of independent), phase (0 to 1, of diurnal).'
  )
  seconds_per_step: float | None = fields.number(
    'Virtual seconds of a local step, the median over the clients. Default 0.1.',
    validation.above_zero,
    1,
  )
  speed_sigma: float | None = fields.number(
    'How the seconds per step differ: sigma of a log-normal, drawn once a run. Default 0: alike.',
    validation.at_least_zero,
    0,
  )
  downlink: float | None = fields.number(
    'Bandwidth to a client, the median, in 10^6 bytes a virtual second. Default 10.',
    validation.above_zero,
    1,
  )
  uplink: float | None = fields.number(
    'Bandwidth from a client, likewise. Default 1.', validation.above_zero, 1
  )
  bandwidth_sigma: float | None = fields.number(
    'How both bandwidths differ: sigma of a log-normal. Default 0: alike.',
    validation.at_least_zero,
    0,
  )
  round_deadline: float | None = fields.number(
    'Virtual seconds after which a round closes. Default none.', validation.above_zero, 60
  )
  stragglers: str | None = fields.flag(
    'A client that cannot take all its steps before the deadline: drop, it is left out; partial, it'
    ' takes as many as fit. Default drop.',
    choices=rounds.STRAGGLERS,
    needs='round_deadline',
  )
  over_select: float | None = fields.number(
    'So many times --clients_per_round clients are drawn; the round closes when'
    ' --clients_per_round have finished. Default 1.',
    validation.at_least_one,
    1.3,
  )
  dropout_rate: float | None = fields.number(
    'Probability that a client that was drawn fails, at a random step. Default 0.',
    validation.in_unit_interval,
    0.3,
  )

  @classmethod
  def defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of a population, if any of its flags was given."""
    if all(values[f.name] in (None, []) for f in dataclasses.fields(cls)):
      return {}
    speed = {f.name: f.default for f in dataclasses.fields(speed_lib.Speed) if f.name != 'profiles'}
    return {
      'availability': 'always',
      **speed,
      'stragglers': 'drop',
      'over_select': 1.0,
      'dropout_rate': 0.0,
    }

  def check(self, settings: 'settings_lib.Settings') -> None:
    """Refuses names and options that there are not."""
    del settings
    kind, profiles = self.availability, self.client_profiles
    if kind is None:
      return
    if kind not in _KINDS and not _is_file(kind):
      raise ValueError(
        f'--availability: {suggestions.unknown("availability", kind, [*_KINDS, "FILE.csv"])}'
      )
    if profiles is not None and not _is_file(profiles):
      raise ValueError(f'--client_profiles={profiles}: give a file whose name ends in .csv.')
    self._option_values()

  def files(self) -> dict[str, dict[str, str]]:
    """Returns the CSV files by flag, path and sha256, as config.json records them."""
    found = {}
    for name in FILES:
      path = getattr(self, name)
      if _is_file(path):
        try:
          with open(path, 'rb') as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        except OSError as error:
          raise ValueError(f'--{name}={path} cannot be read ({error.strerror}).') from None
        found[name] = {'path': path, 'sha256': digest}
    return found

  def build(self, given: Mapping[str, Any]) -> population.Population | None:
    """Returns the population, by what the user gave; None if the settings describe none."""
    if self.availability is None:
      return None
    profiles: dict[str, dict[str, float]] = {}
    if self.client_profiles is not None:
      profiles = population.read_profiles(self.client_profiles)
      self._check_profiles(profiles, given)
    assert self.over_select is not None
    assert self.dropout_rate is not None
    return population.Population(
      availability=self._availability(profiles),
      speed=population.Speed(
        **{name: getattr(self, name) for name in (*speed_lib.COLUMNS, *_SIGMAS)},
        profiles={name: profiles[name] for name in speed_lib.COLUMNS if name in profiles},
      ),
      round_deadline=self.round_deadline,
      over_select=self.over_select,
      stragglers=self.stragglers or 'drop',
      dropout_rate=self.dropout_rate,
    )

  def _availability(self, profiles: Mapping[str, Mapping[str, float]]) -> population.Availability:
    kind = str(self.availability)
    if _is_file(kind):
      intervals = population.read_trace(kind)
      try:
        return population.Trace(intervals)
      except ValueError as error:
        raise ValueError(f'--availability={kind}: {error}') from None
    values = self._option_values()
    for column, (owner, name) in _OPTION_OF.items():
      if column in profiles and owner == kind:
        values[name] = profiles[column]
    made: population.Availability = _KINDS[kind](**values)
    return made

  def _option_values(self) -> dict[str, Any]:
    """Returns the options of an availability; ValueError if it has no such option, or bad ones."""
    kind = str(self.availability)
    values = options.parse('availability_option', self.availability_option)
    own = dataclasses.fields(_KINDS[kind]) if kind in _KINDS else ()
    allowed = [field.name for field in own if field.name != 'phases']
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
    self, profiles: Mapping[str, Mapping[str, float]], given: Mapping[str, Any]
  ) -> None:
    """Refuses a column that nothing would use, or that a flag gives too."""
    path, kind = self.client_profiles, self.availability
    chosen = options.parse('availability_option', self.availability_option)
    for column, (owner, name) in _OPTION_OF.items():
      if column in profiles and kind != owner:
        raise ValueError(
          f'{path} has the column {column}, which is of --availability={owner}; found {kind}.'
        )
      if column in profiles and name in chosen:
        raise ValueError(f'--availability_option={name}=... is in {path} too: leave one out.')
    for flag, columns in _IN_COLUMNS.items():
      if flag in given and {*columns} <= {*profiles}:
        raise ValueError(
          f'--{flag} is in {path} too, as {" and ".join(columns)}: leave one of them out.'
        )


def _is_file(value: str | None) -> bool:
  """Whether a flag's value names a CSV file."""
  return value is not None and value.endswith('.csv')
