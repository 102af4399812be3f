"""The flags of a run whose clients come, take their time and fail."""

import dataclasses
import hashlib

from tff_adaptive._utils import validation

from . import fields

GROUP = 'Clients as they are (none of these: every client drawn finishes, and no virtual clock)'
_NUMBER = 'give a number such as 1'


@dataclasses.dataclass(frozen=True, kw_only=True)
class PopulationSettings:
  """What the flags say of a population; None throughout for a run without one."""

  availability: str | None = fields.flag(
    GROUP,
    'Who can be drawn: always; independent, with a probability; diurnal, a part of each day; or'
    ' FILE.csv with the columns client, from, until, in virtual seconds, which repeats. Default'
    ' always.',
  )
  availability_option: tuple[str, ...] = fields.flag(
    GROUP,
    'An option of it, NAME=VALUE: probability=0.5 of independent; period=24, unit=hours (or'
    ' rounds), share=0.5 of diurnal. May be repeated.',
    [],
  )
  client_profiles: str | None = fields.flag(
    GROUP,
    'FILE.csv with a line for each client: client, and one or more of seconds_per_step, downlink,'
    ' uplink, probability (of independent), phase (0 to 1, of diurnal).',
  )
  seconds_per_step: float | None = fields.flag(
    GROUP,
    'Virtual seconds of a local step, the median over the clients. Default 0.1.',
    None,
    validation.above_zero,
    _NUMBER,
  )
  speed_sigma: float | None = fields.flag(
    GROUP,
    'How the seconds per step differ: sigma of a log-normal, drawn once a run. Default 0: alike.',
    None,
    validation.at_least_zero,
    'give 0 for clients alike',
  )
  downlink: float | None = fields.flag(
    GROUP,
    'Bandwidth to a client, the median, in 10^6 bytes a virtual second. Default 10.',
    None,
    validation.above_zero,
    _NUMBER,
  )
  uplink: float | None = fields.flag(
    GROUP,
    'Bandwidth from a client, likewise. Default 1.',
    None,
    validation.above_zero,
    _NUMBER,
  )
  bandwidth_sigma: float | None = fields.flag(
    GROUP,
    'How both bandwidths differ: sigma of a log-normal. Default 0: alike.',
    None,
    validation.at_least_zero,
    'give 0 for clients alike',
  )
  round_deadline: float | None = fields.flag(
    GROUP,
    'Virtual seconds after which a round closes. Default none.',
    None,
    validation.above_zero,
    'give seconds such as 60',
  )
  stragglers: str | None = fields.flag(
    GROUP,
    'A client that cannot take all its steps before the deadline: drop, it is left out; partial, it'
    ' takes as many as fit. Default drop.',
  )
  over_select: float | None = fields.flag(
    GROUP,
    'So many times --clients_per_round clients are drawn; the round closes when'
    ' --clients_per_round have finished. Default 1.',
    None,
    validation.at_least_one,
    'give a factor such as 1.3',
  )
  dropout_rate: float | None = fields.flag(
    GROUP,
    'Probability that a client that was drawn fails, at a random step. Default 0.',
    None,
    validation.in_unit_interval,
    'give a probability such as 0.3',
  )

  def population_files(self) -> dict[str, dict[str, str]]:
    """Returns the CSV files by flag, path and sha256, as config.json records them."""
    found = {}
    for name in ('availability', 'client_profiles'):
      path = getattr(self, name)
      if is_file(path):
        try:
          with open(path, 'rb') as file:
            digest = hashlib.sha256(file.read()).hexdigest()
        except OSError as error:
          raise ValueError(f'--{name}={path} cannot be read ({error.strerror}).') from None
        found[name] = {'path': path, 'sha256': digest}
    return found


def is_file(value: str | None) -> bool:
  """Whether a flag's value names a CSV file."""
  return value is not None and value.endswith('.csv')
