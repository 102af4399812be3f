"""Simulates asynchronous training: which clients arrive for each server step, and how stale.

It follows FedBuff ("Federated Learning with Buffered Asynchronous Aggregation", Nguyen et al.,
2022) and, with a buffer of one, FedAsync ("Asynchronous Federated Optimization", Xie et al., 2019).
"""

import dataclasses
import functools
import heapq
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_adaptive._utils import draws, validation
from tff_adaptive.population import rounds

STALENESS = ('none', 'polynomial', 'hinge', 'constant')
# For each client of the buffer, the empty draws and dropped updates after which a step is given up.
_MOST_IN_VAIN = 10_000
_RECORDED_FACTORS = 64  # The first factors of a subclass tell its formula from another.


@dataclasses.dataclass(frozen=True)
class Buffered:
  """Settings of asynchronous training: the server does not wait for all of its clients.

  A subclass may override `factor`.

  Some clients are always training, each from the model that was current when it began. The server
  takes a step when B = `TrainingConfig.clients_per_round` clients have arrived; B is the size of
  the buffer. tau is a client's staleness, the number of server steps since it began.

  Attributes:
    concurrency: M, the number of clients that train at a time, from B to the number of clients.
    staleness: The kind of factor s(tau) of a client's update. 'none' is 1. 'polynomial' is
      (1 + tau)^-a, FedBuff's with a = 1/2. 'hinge' is 1 up to tau = b, then 1 / (a (tau - b) + 1).
      'constant' is 1 for tau = 0, else c.
    a: The a of 'polynomial' (default 0.5) and 'hinge' (default 10), above 0.
    b: The b of 'hinge', at least 0.
    c: The c of 'constant', in (0, 1].
    max_staleness: An update with a larger tau is dropped when it arrives; None keeps all updates.
    mixing: Whether an update is x - theta_i, with the present model x and the client's model
      theta_i. With SGD of rate alpha at the server, x becomes FedAsync's average (1 - alpha s) x +
      alpha s theta_i. If False, x is the model that the client began with, as in FedBuff.

  Raises:
    ValueError: If `staleness` is unknown, or a number is out of its range.
  """

  concurrency: int
  staleness: str = 'polynomial'
  a: float | None = None
  b: float = 4.0
  c: float = 0.5
  max_staleness: int | None = None
  mixing: bool = False

  def __post_init__(self) -> None:
    validation.whole_number('concurrency', self.concurrency, 1, 'give 50, say')
    if self.staleness not in STALENESS:
      raise ValueError(
        f'staleness is {self.staleness!r}; it must be one of {", ".join(STALENESS)}.'
      )
    if self.a is not None:
      validation.field(self, 'a', validation.above_zero, 'give 0.5, or None')
    validation.field(self, 'b', validation.at_least_zero, 'give 4, say')
    validation.field(self, 'c', validation.in_half_open_unit_interval, 'give 0.5, say')
    if self.max_staleness is not None:
      validation.whole_number('max_staleness', self.max_staleness, 0, 'give 20, say, or None')

  def factor(self, tau: int) -> float:
    """Returns s(tau), the factor of an update that is tau server steps old."""
    if self.staleness == 'polynomial':
      return float((1.0 + tau) ** -(0.5 if self.a is None else self.a))
    if self.staleness == 'hinge':
      return 1.0 if tau <= self.b else 1.0 / ((self.a or 10.0) * (tau - self.b) + 1.0)
    return self.c if self.staleness == 'constant' and tau else 1.0

  def record(self) -> dict[str, Any]:
    """Returns the settings for config.json. A subclass is recorded with its own factors."""
    if type(self) is Buffered:
      return dataclasses.asdict(self)
    found: dict[str, Any] = dict(rounds.record(self))
    if type(self).factor is not Buffered.factor:
      most = _RECORDED_FACTORS if self.max_staleness is None else self.max_staleness + 1
      taus = range(min(most, _RECORDED_FACTORS))
      found.update(staleness='own', factors=[float(self.factor(tau)) for tau in taus])
    return found


@dataclasses.dataclass(frozen=True)
class Arrivals(rounds.RoundPlan):
  """The plan of a server step, which uses the updates of the B clients in the buffer.

  `positions` are in the order of arrival. `available` counts the clients that were available when
  clients were last drawn. `selected`, `dropped` and `virtual_seconds` count from the last step;
  `finished` and `partial` count the clients in the buffer.

  Attributes:
    staleness: int64 [B], the staleness tau of each client; see `Buffered`.
    factors: float32 [B], the factor s(tau) of each client's update.
    slots: int64 [B], the slot of `training.older` with each client's model; -1 for the present one.
    store: The slot that stores the present model after the step; -1 if no client trains from it.
    staleness_dropped: The largest tau of the updates that `max_staleness` dropped; 0 without any.
    under_way: Number of clients that are still training.
    versions: Number of different models, present or older, with which the clients under way began.
  """

  staleness: np.ndarray
  factors: np.ndarray
  slots: np.ndarray
  store: int
  staleness_dropped: int
  under_way: int
  versions: int

  @functools.cached_property
  def needed(self) -> list[int]:
    """Returns the slots of the older models that the step's clients began with, in rising order."""
    return sorted({slot for slot in self.slots.tolist() if slot >= 0})

  def columns(self) -> dict[str, float]:
    """Returns the columns of metrics.csv for the step."""
    return {
      **super().columns(),
      'staleness_mean': float(self.staleness.mean()),
      'staleness_max': int(self.staleness.max()),
      'staleness_dropped': self.staleness_dropped,
      'under_way': self.under_way,
      'versions': self.versions,
    }

  def of_client(self, i: int, mixing: bool) -> dict[str, Any]:
    """Returns the entries to add to the i-th client's data; see `ClientTraining.versions`."""
    return {
      'version': np.int32(self.needed.index(slot) if (slot := self.slots[i]) >= 0 else -1),
      'mixed' if mixing else 'discount': np.float32(self.factors[i]),
    }


class _Client(NamedTuple):
  """A client that is training. Clients sort in the order of arrival, and no two are equal."""

  time: float  # Arrival, in seconds from the last step, so that rounding errors do not grow.
  dispatch: int
  position: int
  steps: int
  counts: bool
  version: int


class BufferedSimulation(rounds.Simulation):
  """Simulates the server steps of one run, one after the other on the virtual clock.

  Events at the same instant have this order. First clients arrive, in the order in which they
  began. Then the server takes its step if the buffer is full. Then new clients begin, drawn
  uniformly from the available clients that neither train nor are in the buffer. A place that nobody
  can take is taken by the first client that becomes available, if the availability has a clock
  (`Trace`, or `Diurnal` in hours; others change only with the step). A step depends only on the
  arguments and its number. A resumed run simulates the earlier steps again, without data.
  """

  def __init__(self, synchrony: Buffered, *given: Any, **more: Any) -> None:
    """Creates the simulation of `synchrony`; for the other arguments see `rounds.Simulation`.

    Raises:
      ValueError: See `rounds.Simulation`. Also if `concurrency` is below the size of the buffer or
        above the number of clients, or if the population's `over_select` is above 1.
    """
    super().__init__(*given, **more)
    self._synchrony, size, num_clients = synchrony, self._cohort_size, len(self._steps)
    if not size <= synchrony.concurrency <= num_clients:
      raise ValueError(
        f'concurrency is {synchrony.concurrency}; it must be from {size}, the size of the buffer,'
        f' to {num_clients}, the number of clients.'
      )
    if self._population.over_select > 1:
      raise ValueError('over_select has no meaning with a buffer: leave it out.')

  def most_versions(self, num_rounds: int) -> int:
    """Returns the number of slots that older models need, at least 1. Simulates all steps."""
    plans: list[Any] = [self.plan(number) for number in range(1, num_rounds + 1)]
    self._restart()
    return max(1, *(plan.store + 1 for plan in plans))

  def _restart(self) -> None:
    super()._restart()
    self._dispatches, self._since = 0, 0.0  # Virtual seconds since the last step.
    self._queue: list[_Client] = []
    self._is_idle = np.ones(len(self._steps), bool)
    self._slots: dict[int, int] = {}  # Version of an older model -> its slot.
    self._drew_whole = -1  # The version at which a whole cohort was last drawn.
    self._available = 0

  def _next(self, number: int) -> Arrivals:
    """Simulates server step `number`; a model's version is the number of steps that made it."""
    self._queue = [c._replace(time=c.time - self._since) for c in self._queue]
    heapq.heapify(self._queue)  # Rounding may have made two times equal.
    self._since = 0.0
    version, first, idle = number - 1, self._dispatches, 0
    found: list[_Client] = []
    dropped, dropped_tau = 0, 0
    most = self._synchrony.max_staleness
    while len(found) < self._cohort_size:
      if idle + dropped > _MOST_IN_VAIN * self._cohort_size:
        raise ValueError(
          f'server step {number} never comes: only {len(found)} of the {self._cohort_size} clients'
          f' of its buffer arrived, after {idle:,} draws of nobody and {dropped:,} dropped updates.'
          ' Check availability, deadline and max_staleness, or give a smaller buffer.'
        )
      if not self._queue or self._queue[0].time > self._since:
        in_buffer = [client.position for client in found]
        self._dispatch(version, in_buffer)
        begins = self._next_begin(in_buffer)
        if begins < (self._queue[0].time if self._queue else math.inf):
          idle += not self._queue
          self._since = begins
          continue
      if not self._queue:
        idle += 1
        self._since += self._idle(self._clock + self._since)
        continue
      client = heapq.heappop(self._queue)
      self._since = client.time
      self._is_idle[client.position] = True
      tau = version - client.version
      if client.counts and (most is None or tau <= most):
        found.append(client)
      else:
        dropped, dropped_tau = dropped + 1, max(dropped_tau, tau if client.counts else 0)
    slots = [self._slots.get(client.version, -1) for client in found]
    store, versions = self._keep(version)
    steps, positions, begun = (
      np.array([getattr(client, name) for client in found], np.int64)
      for name in ('steps', 'position', 'version')
    )
    is_partial = steps < self._steps[positions]
    return Arrivals(
      positions=positions,
      steps=steps,
      available=self._available,
      selected=self._dispatches - first,
      finished=int(np.sum(~is_partial)),
      partial=int(np.sum(is_partial)),
      dropped=dropped,
      virtual_seconds=self._since,
      staleness=version - begun,
      factors=np.array([self._synchrony.factor(version - b) for b in begun.tolist()], np.float32),
      slots=np.array(slots, np.int64),
      store=store,
      staleness_dropped=dropped_tau,
      under_way=len(self._queue),
      versions=versions,
    )

  def _keep(self, version: int) -> tuple[int, int]:
    """Frees slots. Returns model `version`'s slot, -1 if unused, and the number of used models."""
    needed = {client.version for client in self._queue}
    self._slots = {v: slot for v, slot in self._slots.items() if v in needed}
    if version not in needed:
      return -1, len(needed)
    taken = set(self._slots.values())
    self._slots[version] = next(i for i in range(len(taken) + 1) if i not in taken)
    return self._slots[version], len(needed)

  def _dispatch(self, version: int, in_buffer: Sequence[int]) -> None:
    """Starts as many available clients as `concurrency` allows."""
    room = self._synchrony.concurrency - len(self._queue)
    if not room:
      return
    available = self._is_available(version + 1, self._clock + self._since)
    self._available = int(np.sum(available))
    candidates = available & self._is_idle
    candidates[list(in_buffer)] = False  # A client counts only once in a step.
    (ids,) = np.nonzero(candidates)
    size = min(room, len(ids))
    if not size:
      return
    if not self._queue and not in_buffer and self._drew_whole != version:
      self._drew_whole = version  # The draw is that of a synchronous round.
      drawn = ids[self._draw(self._seed, version + 1, len(ids), size)]
    else:
      generator = draws.generator(self._seed, self._dispatches + 1, draws.DISPATCH)
      drawn = ids[generator.choice(len(ids), size=size, replace=False)]
    self._is_idle[drawn] = False
    steps, counts, ends = self._course(drawn, self._dispatches + 1)
    ends = self._since + ends
    for position, k, does_count, time in zip(*(a.tolist() for a in (drawn, steps, counts, ends))):
      self._dispatches += 1
      client = _Client(time, self._dispatches, position, k, does_count, version)
      heapq.heappush(self._queue, client)

  def _next_begin(self, in_buffer: Sequence[int]) -> float:
    """Returns when the next client becomes available for a place that nobody could take.

    It counts in seconds from the last step; infinity if there is no such place, client or time.
    """
    seconds_to_change = getattr(self._is_available, 'seconds_to_change', None)
    if seconds_to_change is None or len(self._queue) >= self._synchrony.concurrency:
      return math.inf
    waiting = self._is_idle.copy()  # They are unavailable, or they would have begun.
    waiting[list(in_buffer)] = False
    if not waiting.any():
      return math.inf
    return float(self._since + seconds_to_change(self._clock + self._since, waiting))

  def _chances(self, drawn: np.ndarray, number: int) -> np.ndarray:
    """See `Simulation._chances`. The first drawn client is the run's `number`-th to begin."""
    numbers = range(number, number + len(drawn))
    found = [draws.generator(self._seed, n, draws.DISPATCH_FAILURE).random(2) for n in numbers]
    return np.transpose(found)
