"""Determines which clients can be drawn, by round and virtual time."""

import dataclasses
import itertools
import math
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np

from tff_adaptive._utils import draws, validation, value_text

# (round from 1, virtual seconds at its beginning) -> bool [N], True for available clients. If the
# object has `seconds_to_next`, as `_TraceMask`, a round without clients lasts that long. If it has
# `seconds_to_change`, as `_TraceMask` and `_DiurnalMask`, asynchronous training starts a client at
# the time when it becomes available, and not only when another client arrives.
Mask: TypeAlias = Callable[[int, float], np.ndarray]
UNITS = ('rounds', 'hours')
# A trace that begins later than this, three years after the run's beginning, has Unix times.
_LATEST_BEGIN = 1e8
# The clock adds up floats, so a time that is a boundary may seem to lie just before it. A time that
# is nearer to the next boundary than this counts as that boundary: a part of a day, and seconds.
_DAY_ROUNDING = 1e-9
_TRACE_ROUNDING = 1e-6


class Availability(Protocol):
  """The interface of classes that say which clients can be drawn."""

  def bind(self, client_ids: Sequence[str], seed: int) -> Mask:
    """Returns `(round from 1, virtual seconds) -> bool [N]`, which is True for available clients.

    Args:
      client_ids: The ids of the N clients.
      seed: The run's seed.

    Raises:
      ValueError: If a client's value is missing, or no client could ever be available.
    """


@dataclasses.dataclass(frozen=True)
class Always:
  """Every client is always available."""

  def bind(self, client_ids: Sequence[str], seed: int) -> Mask:
    """See `Availability.bind`."""
    del seed
    everyone = np.ones(len(client_ids), bool)
    return lambda round_number, seconds: everyone


@dataclasses.dataclass(frozen=True)
class Independent:
  """Client i is available with probability p_i, independently of other clients and rounds.

  Attributes:
    probability: p for all clients, in (0, 1], or a mapping from client id to p_i, each in [0, 1].
  """

  probability: float | Mapping[str, float] = 0.5

  def __post_init__(self) -> None:
    if not isinstance(self.probability, Mapping):
      hint = 'give a probability such as 0.5'
      validation.field(self, 'probability', validation.in_half_open_unit_interval, hint)
      return
    for client, p in self.probability.items():
      validation.up_to_one(f'probability of client {value_text.in_text(client)}', p, 'give 0 to 1')

  def bind(self, client_ids: Sequence[str], seed: int) -> Mask:
    """See `Availability.bind`."""
    p: np.ndarray | float
    if isinstance(self.probability, Mapping):
      p = by_client(self.probability, client_ids, 'probability')
      if not p.any():
        raise ValueError('every client has probability 0: nobody would ever take part.')
    else:
      p = float(self.probability)

    def mask(round_number: int, seconds: float) -> np.ndarray:
      del seconds
      generator = draws.generator(seed, round_number, draws.AVAILABLE)
      available: np.ndarray = generator.random(len(client_ids)) < p
      return available

    return mask


@dataclasses.dataclass(frozen=True)
class Diurnal:
  """Each client is available for a share of each day; the client's phase says for which part.

  A client is available while (time / period + phase) mod 1 < share.

  Attributes:
    period: Length of a day, above 0, in rounds or in virtual hours.
    unit: The unit of the time and the period, 'rounds' or 'hours'.
    share: The share of a day in which a client is available, in (0, 1].
    phases: Phases in [0, 1) by client id. With None the run's seed draws them uniformly.
  """

  period: float = 24.0
  unit: str = 'hours'
  share: float = 0.5
  phases: Mapping[str, float] | None = None

  def __post_init__(self) -> None:
    validation.field(self, 'period', validation.above_zero, 'give 24 hours, say')
    validation.field(
      self, 'share', validation.in_half_open_unit_interval, 'give the part of a day, such as 0.5'
    )
    if self.unit not in UNITS:
      raise ValueError(f'unit is {self.unit!r}; it must be one of {", ".join(UNITS)}.')
    for client, phase in (self.phases or {}).items():
      hint = 'give the part of a day, such as 0.25'
      validation.in_unit_interval(f'phase of client {value_text.in_text(client)}', phase, hint)

  def bind(self, client_ids: Sequence[str], seed: int) -> Mask:
    """See `Availability.bind`."""
    if self.phases is None:
      phases = draws.generator(seed, draws.ALWAYS, draws.PHASE).random(len(client_ids))
    else:
      phases = by_client(self.phases, client_ids, 'phase')

    if self.unit == 'hours':
      return _DiurnalMask(phases, self.period, self.share)

    def mask(round_number: int, seconds: float) -> np.ndarray:
      del seconds
      return _is_day(round_number / self.period + phases, self.share)

    return mask


class _DiurnalMask:
  """The mask of days in virtual hours, which knows when the next client becomes available."""

  def __init__(self, phases: np.ndarray, period: float, share: float) -> None:
    self._phases = phases
    self._period = period
    self._share = share

  def __call__(self, round_number: int, seconds: float) -> np.ndarray:
    del round_number
    return _is_day(self._days(seconds), self._share)

  def seconds_to_change(self, seconds: float, clients: np.ndarray) -> float:
    """Returns the virtual seconds until one of `clients`, which are unavailable, is available.

    Args:
      seconds: Virtual seconds since the beginning of the run.
      clients: bool [N]; at least one is True.
    """
    # A client's next day begins, with it available, when its share reaches 1.
    left = 1 - (self._days(seconds)[clients] % 1).max()
    return _not_before(self, seconds, float(left) * self._period * 3600, clients)

  def _days(self, seconds: float) -> np.ndarray:
    """Returns the days of each client that have passed, with its phase, float64 [N]."""
    days: np.ndarray = seconds / 3600 / self._period + self._phases
    return days


def _is_day(days: np.ndarray, share: float) -> np.ndarray:
  """Returns which clients are in the first `share` of their day after some days, bool [N]."""
  available: np.ndarray = (days + _DAY_ROUNDING) % 1 < share
  return available


@dataclasses.dataclass(frozen=True)
class Trace:
  """Clients are available in recorded intervals of virtual time.

  The trace repeats: time is taken modulo the end of the last interval of any client. If no client
  is available when a round begins, the round lasts until the next interval of a client of the run.

  Attributes:
    intervals: By client id, intervals (from, until) in virtual seconds since the run's
      beginning, with 0 <= from < until; `until` is exclusive. A client without intervals is never
      available. The first interval must begin before 10^8 seconds, which excludes Unix times.
  """

  intervals: Mapping[str, Sequence[tuple[float, float]]]

  def __post_init__(self) -> None:
    for client, pairs in self.intervals.items():
      for begin, end in pairs:
        if not 0 <= begin < end < np.inf:
          raise ValueError(
            f'client {value_text.in_text(client)} is available from {begin} until {end}: give 0 <='
            ' from < until, in seconds.'
          )
    pairs_of_all = itertools.chain.from_iterable(self.intervals.values())
    first = min((begin for begin, _ in pairs_of_all), default=0)
    if first > _LATEST_BEGIN:
      raise ValueError(
        f'the first interval of the trace begins at {first:.15g}, years after the beginning of the'
        ' run, from which virtual seconds count: subtract that from all its times.'
      )

  def unmatched(self, client_ids: Sequence[str]) -> str | None:
    """Returns a message about ids that only the trace or only the run has; None if they agree."""
    known = {client for client, pairs in self.intervals.items() if len(pairs)}
    of_run = {_name_in(self.intervals, client) for client in client_ids}
    strangers = len(known - of_run)
    never = len(of_run - known)
    if not strangers and not never:
      return None
    return (
      f'The trace has intervals of {len(known):,} clients, {strangers:,} of them not in this run.'
      f" Of the run's {len(client_ids):,} clients, {never:,} have no interval and are never drawn."
    )

  def bind(self, client_ids: Sequence[str], seed: int) -> Mask:
    """See `Availability.bind`. Clients that are not in the run only affect the trace's length."""
    del seed
    rows: list[tuple[int, float, float]] = []
    for position, client in enumerate(client_ids):
      pairs = self.intervals.get(_name_in(self.intervals, client), ())
      rows.extend((position, begin, end) for begin, end in pairs)
    if not rows:
      first_of_run = next(iter(client_ids), None)
      first_of_trace = next(iter(self.intervals), None)
      raise ValueError(
        f'the trace has no interval of any of the {len(client_ids)} clients: its first client is'
        f' {value_text.in_text(first_of_trace)}, theirs is {value_text.in_text(first_of_run)}.'
      )
    pairs_of_all = itertools.chain.from_iterable(self.intervals.values())
    last = max(end for _, end in pairs_of_all)
    return _TraceMask(len(client_ids), rows, float(last))


class _TraceMask:
  """The mask of a trace, which knows when the next client becomes available."""

  def __init__(
    self, num_clients: int, rows: Sequence[tuple[int, float, float]], length: float
  ) -> None:
    self._num_clients = num_clients
    self._length = length
    owners, begins, ends = zip(*rows)
    self._owner = np.array(owners)
    self._begins = np.array(begins)
    self._ends = np.array(ends)

  def __call__(self, round_number: int, seconds: float) -> np.ndarray:
    del round_number
    now = (seconds + _TRACE_ROUNDING) % self._length
    available = np.zeros(self._num_clients, bool)
    available[self._owner[(self._begins <= now) & (now < self._ends)]] = True
    return available

  def seconds_to_next(self, seconds: float) -> float:
    """Returns the virtual seconds from `seconds`, when no client is available, until one is."""
    now = seconds % self._length
    wait = self._wait_for(self._begins, now)
    for _ in range(4):  # Rounding must not stop the clock just before the interval.
      if self(0, seconds + wait).any():
        break
      wait += float(np.spacing(seconds + wait))
    return wait

  def seconds_to_change(self, seconds: float, clients: np.ndarray) -> float:
    """See `_DiurnalMask.seconds_to_change`; infinity if these clients have no interval."""
    now = seconds % self._length
    begins = self._begins[clients[self._owner]]
    if not begins.size:
      return math.inf
    return _not_before(self, seconds, self._wait_for(begins, now), clients)

  def _wait_for(self, begins: np.ndarray, now: float) -> float:
    """Returns the virtual seconds from `now`, a time of the trace, to the next of some times."""
    later = begins[begins > now]
    if later.size:
      return float(later.min() - now)
    return float(begins.min() + self._length - now)  # In the next repetition of the trace.


def _not_before(mask: Mask, seconds: float, wait: float, clients: np.ndarray) -> float:
  """Returns `wait`, or a little more if rounding would stop the clock just before the time.

  After the wait, one of `clients` is available. The result is large enough to move the clock on.
  """
  step = float(np.spacing(seconds + wait))
  wait = max(wait, step)
  for _ in range(32):
    if mask(0, seconds + wait)[clients].any():
      break
    wait += step
    step *= 2
  return wait


def by_client(values: Mapping[str, float], client_ids: Sequence[str], name: str) -> np.ndarray:
  """Returns the values of `client_ids`, float64 [N]. Raises ValueError if a client has none."""
  names = [_name_in(values, client) for client in client_ids]
  missing = [client for client, known in zip(client_ids, names) if known not in values]
  if missing:
    raise ValueError(
      f'{len(missing)} of {len(client_ids)} clients have no {name},'
      f' {value_text.in_text(missing[0])} among them: give one for each.'
    )
  return np.array([values[known] for known in names], np.float64)


def _name_in(values: Mapping[str, Any], client: str) -> str:
  """Returns a client's key in `values`: ids from files are composed, a task's may not be."""
  if client in values or not isinstance(client, str):
    return client
  return unicodedata.normalize('NFC', client)
