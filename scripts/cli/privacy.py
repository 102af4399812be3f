"""The noise of a private run, and what accounts for it; no TensorFlow.

Accounting imports SciPy, which takes long, so it is imported for private runs only.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tff_adaptive.training import cohorts

from . import settings as settings_lib

if TYPE_CHECKING:
  from tff_adaptive.aggregation import accounting


@dataclasses.dataclass(frozen=True)
class Plan:
  """How private a run is to be.

  Attributes:
    accountant: Gives epsilon by rounds.
    delta: At this delta.
  """

  accountant: 'accounting.Accountant'
  delta: float


def plan(settings: settings_lib.Settings, num_clients: int) -> Plan | None:
  """Returns the noise and the accountant of a run; None if it adds no noise.

  Args:
    settings: What is asked for.
    num_clients: Clients that may be drawn.

  Raises:
    ValueError: In one line, if no noise gives the epsilon that is asked for, or the noise is too
      much for the noise on counts.
  """
  if not settings.aggregator_entry.is_private:
    return None
  from tff_adaptive.aggregation import accounting

  options = settings.aggregator_options
  delta = settings.delta or accounting.default_delta(num_clients)
  make = _accountant(settings, num_clients)
  noise = options['noise_multiplier']
  try:
    if noise is None:
      noise = accounting.noise_multiplier_for(
        settings.target_epsilon or 0.0, make, settings.rounds, delta
      )
    if options.get('adaptive'):
      stddev = accounting.count_stddev(settings.clients_per_round, options['count_stddev'])
      accounting.update_noise_multiplier(noise, stddev)
  except ValueError as error:
    raise ValueError(f'--aggregator={settings.aggregator}: {error}') from None
  return Plan(make(noise), delta)


def _accountant(settings: settings_lib.Settings, num_clients: int) -> Callable[[float], Any]:
  from tff_adaptive.aggregation import accounting

  size = settings.clients_per_round
  if settings.aggregator == 'dp_gaussian':
    return lambda noise: accounting.SampledGaussian(num_clients, size, noise)
  tree = accounting.TreeGaussian(
    num_clients, lambda t: cohorts.sample(settings.seed, t, num_clients, size), 1.0
  )
  return tree.with_noise
