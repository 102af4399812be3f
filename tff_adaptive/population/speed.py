"""The virtual seconds that clients need to compute and to transfer data."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tff_adaptive._utils import draws, validation, value_text
from tff_adaptive.population import availability

COLUMNS = ('seconds_per_step', 'downlink', 'uplink')


class Times(NamedTuple):
  """Virtual seconds of each client's download, local step and upload, float64 [N] each."""

  download: np.ndarray
  step: np.ndarray
  upload: np.ndarray


_MOST_SIGMA = 10.0


@dataclasses.dataclass(frozen=True)
class Speed:
  """The seconds per local step and the bandwidths of clients: constant, log-normal or measured.

  A log-normal value is the median times exp(sigma z_i). The z_i are standard normal and are drawn
  once in a run. The defaults are round numbers and do not describe a particular device.

  Attributes:
    seconds_per_step: Median virtual seconds of a local step, above 0.
    downlink: Median bandwidth to a client, 10^6 bytes a second, above 0.
    uplink: Median bandwidth from a client, 10^6 bytes a second, above 0.
    speed_sigma: sigma of the seconds per step, in [0, 10]. With 0 all clients are equal.
    bandwidth_sigma: sigma of both bandwidths, in [0, 10]. A client's z_i is the same in both.
    profiles: A mapping from 'seconds_per_step', 'downlink' or 'uplink' to values above 0 by client
      id, for all clients. They replace the median and sigma.
  """

  seconds_per_step: float = 0.1
  downlink: float = 10.0
  uplink: float = 1.0
  speed_sigma: float = 0.0
  bandwidth_sigma: float = 0.0
  profiles: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)

  def __post_init__(self) -> None:
    for name in COLUMNS:
      validation.field(self, name, validation.above_zero, 'give a number such as 1')
    for name in ('speed_sigma', 'bandwidth_sigma'):
      validation.field(self, name, validation.at_least_zero, 'give 0 for clients alike')
      if getattr(self, name) > _MOST_SIGMA:
        raise ValueError(
          f'{name} must be at most {_MOST_SIGMA:g}, found {getattr(self, name):g}: the times of'
          ' some clients would be beyond all numbers.'
        )
    for name, values in self.profiles.items():
      if name not in COLUMNS:
        raise ValueError(f'profiles has {name!r}; it may have {", ".join(COLUMNS)}.')
      for client, value in values.items():
        validation.above_zero(
          f'{name} of client {value_text.in_text(client)}', value, 'give a number such as 1'
        )

  def times(self, client_ids: Sequence[str], seed: int, bytes_down: int, bytes_up: int) -> Times:
    """Returns the times of clients, given the bytes that each receives and sends in a round."""

    def spread(sigma: float, purpose: int) -> np.ndarray:
      z = draws.generator(seed, draws.ALWAYS, purpose).standard_normal(len(client_ids))
      return np.exp(sigma * z)

    # One draw for both directions: a client's link is good or bad in both.
    of_bandwidth = spread(self.bandwidth_sigma, draws.BANDWIDTH)
    spreads = (spread(self.speed_sigma, draws.SPEED), of_bandwidth, of_bandwidth)
    values = {}
    for name, factors in zip(COLUMNS, spreads):
      if name in self.profiles:
        values[name] = availability.by_client(self.profiles[name], client_ids, name)
      else:
        values[name] = getattr(self, name) * factors
    return Times(
      download=bytes_down / (1e6 * values['downlink']),
      step=values['seconds_per_step'],
      upload=bytes_up / (1e6 * values['uplink']),
    )
