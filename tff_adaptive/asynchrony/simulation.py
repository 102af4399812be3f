"""Simulates asynchronous training: which clients arrive for each server step, and how stale."""

import dataclasses
import functools
import heapq
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_adaptive._utils import draws
from tff_adaptive.asynchrony import settings
from tff_adaptive.population import rounds

# For each client of the buffer, the empty draws and dropped updates after which a step is given up.
_MOST_IN_VAIN = 10_000
_PRESENT = -1  # In place of a slot: the present model, which is not an older one.
_NOWHERE = -1  # In place of a slot: no client needs the model.


@dataclasses.dataclass(frozen=True)
class Arrivals(rounds.RoundPlan):
  """The plan of a server step, which uses the updates of the B clients in the buffer.

  `positions` are in the order of arrival. `available` counts the clients that were available when
  clients were last drawn. `selected`, `dropped` and `virtual_seconds` count from the last step;
  `finished` and `partial` count the clients in the buffer.

  Attributes:
    staleness: int64 [B], the staleness tau of each client; see `Buffered`.
    factors: float32 [B], the factor s(tau) of each client's update.
    slots: int64 [B], the slot of `older_models` with each client's model; -1 for the present one.
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
    return sorted({slot for slot in self.slots.tolist() if slot != _PRESENT})

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

  def of_client(self, i: int, asynchrony: settings.Buffered) -> dict[str, Any]:
    """Returns the entries to add to the i-th client's data; see `process.data_entries`."""
    slot = int(self.slots[i])
    row = _PRESENT
    if slot != _PRESENT:
      row = self.needed.index(slot)
    return {
      settings.OLDER_MODEL: np.int32(row),
      asynchrony.factor_entry: np.float32(self.factors[i]),
    }


class _Client(NamedTuple):
  """A client that is training. Clients sort in the order of arrival, and no two are equal."""

  time: float  # Arrival, in seconds from the last step, so that rounding errors do not grow.
  dispatch: int
  position: int
  steps: int
  counts: bool
  version: int  # The number of server steps that made the model with which it began.


class BufferedSimulation(rounds.Simulation):
  """Simulates the server steps of one run, one after the other on the virtual clock.

  Events at the same instant have this order. First clients arrive, in the order in which they
  began. Then the server takes its step if the buffer is full. Then new clients begin, drawn
  uniformly from the available clients that neither train nor are in the buffer. A place that nobody
  can take is taken by the first client that becomes available, if the availability has a clock
  (`Trace`, or `Diurnal` in hours; others change only with the step). A step depends only on the
  arguments and its number. A resumed run simulates the earlier steps again, without data.
  """

  def __init__(self, asynchrony: settings.Buffered, *given: Any, **more: Any) -> None:
    """Creates the simulation of `asynchrony`; for the other arguments see `rounds.Simulation`.

    Raises:
      ValueError: See `rounds.Simulation`. Also if `concurrency` is below the size of the buffer or
        above the number of clients, or if the population's `over_select` is above 1.
    """
    super().__init__(*given, **more)
    self._asynchrony = asynchrony
    num_clients = len(self._steps)
    if not self._cohort_size <= asynchrony.concurrency <= num_clients:
      raise ValueError(
        f'concurrency is {asynchrony.concurrency}; it must be from {self._cohort_size}, the size of'
        f' the buffer, to {num_clients}, the number of clients.'
      )
    if self._population.over_select > 1:
      raise ValueError('over_select has no meaning with a buffer: leave it out.')

  def most_older_models(self, num_rounds: int) -> int:
    """Returns the number of slots that older models need, at least 1. Simulates all steps."""
    # A slot is freed when its last client arrives, so the number is known only at the end.
    plans: list[Any] = [self.plan(number) for number in range(1, num_rounds + 1)]
    self._restart()
    return max(1, *(plan.store + 1 for plan in plans))

  def _restart(self) -> None:
    super()._restart()
    self._dispatches = 0
    self._since = 0.0  # Virtual seconds since the last step.
    self._queue: list[_Client] = []
    self._is_idle = np.ones(len(self._steps), bool)
    self._slots: dict[int, int] = {}  # Version of an older model -> its slot.
    self._drew_whole = -1  # The version at which a whole cohort was last drawn.
    self._available = 0

  def _next(self, number: int) -> Arrivals:
    """Simulates server step `number`; a model's version is the number of steps that made it."""
    # Times count from the last step; see `_Client`.
    self._queue = [c._replace(time=c.time - self._since) for c in self._queue]
    heapq.heapify(self._queue)  # Rounding may have made two times equal.
    self._since = 0.0
    version = number - 1
    dispatches_before = self._dispatches
    buffer, dropped = self._fill_buffer(version)
    slots = [self._slots.get(client.version, _PRESENT) for client in buffer]
    store, versions = self._keep(version)
    positions = np.array([client.position for client in buffer], np.int64)
    steps = np.array([client.steps for client in buffer], np.int64)
    taus = [version - client.version for client in buffer]
    is_partial = steps < self._steps[positions]
    return Arrivals(
      positions=positions,
      steps=steps,
      available=self._available,
      selected=self._dispatches - dispatches_before,
      finished=int(np.sum(~is_partial)),
      partial=int(np.sum(is_partial)),
      dropped=len(dropped),
      dropped_positions=[client.position for client in dropped],
      dropped_why=[self._why(client) for client in dropped],
      virtual_seconds=self._since,
      staleness=np.array(taus, np.int64),
      factors=np.array([self._asynchrony.factor(tau) for tau in taus], np.float32),
      slots=np.array(slots, np.int64),
      store=store,
      # A client that failed or was late is not stale, whatever its tau.
      staleness_dropped=max((version - c.version for c in dropped if c.counts), default=0),
      under_way=len(self._queue),
      versions=versions,
    )

  def _why(self, client: _Client) -> str:
    """Returns why the update of a client was dropped."""
    if client.counts:
      return 'stale'
    if self._fit[client.position] < self._needed[client.position]:
      return 'late'
    return 'failed'

  def _fill_buffer(self, version: int) -> tuple[list[_Client], list[_Client]]:
    """Lets clients begin and arrive until the buffer is full.

    Returns:
      The clients in the buffer, and those whose updates were dropped: they failed, were late, or
      are too old.
    """
    buffer: list[_Client] = []
    dropped: list[_Client] = []
    num_idle = 0  # How often nobody was there to wait for.
    while len(buffer) < self._cohort_size:
      if num_idle + len(dropped) > _MOST_IN_VAIN * self._cohort_size:
        raise ValueError(
          f'server step {version + 1} never comes: only {len(buffer)} of the {self._cohort_size}'
          f' clients of its buffer arrived, after {num_idle:,} draws of nobody and'
          f' {len(dropped):,} dropped updates. Check availability, deadline and max_staleness, or'
          ' give a smaller buffer.'
        )
      # Who arrives at this instant comes before who begins at it.
      if not self._queue or self._queue[0].time > self._since:
        in_buffer = [client.position for client in buffer]
        self._dispatch(version, in_buffer)
        begins = self._next_begin(in_buffer)
        next_arrival = math.inf
        if self._queue:
          next_arrival = self._queue[0].time
        # A place stays empty until then, when the loop comes back here and draws again.
        if begins < next_arrival:
          if not self._queue:
            num_idle += 1
          self._since = begins
          continue
      if not self._queue:
        num_idle += 1
        self._since += self._idle(self._clock + self._since)
        continue
      client = heapq.heappop(self._queue)
      self._since = client.time
      self._is_idle[client.position] = True
      tau = version - client.version
      if not client.counts or self._is_too_old(tau):
        dropped.append(client)
      else:
        buffer.append(client)
    return buffer, dropped

  def _is_too_old(self, tau: int) -> bool:
    most = self._asynchrony.max_staleness
    return most is not None and tau > most

  def _keep(self, version: int) -> tuple[int, int]:
    """Frees slots. Returns model `version`'s slot, -1 if unused, and the number of used models."""
    needed = {client.version for client in self._queue}
    self._slots = {v: slot for v, slot in self._slots.items() if v in needed}
    if version not in needed:
      return _NOWHERE, len(needed)
    # The lowest free slot, so that the store stays as small as the most models at a time.
    taken = set(self._slots.values())
    slot = min(set(range(len(taken) + 1)) - taken)
    self._slots[version] = slot
    return slot, len(needed)

  def _dispatch(self, version: int, in_buffer: Sequence[int]) -> None:
    """Starts as many available clients as `concurrency` allows."""
    room = self._asynchrony.concurrency - len(self._queue)
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
    for i, position in enumerate(drawn.tolist()):
      self._dispatches += 1
      client = _Client(
        time=float(self._since + ends[i]),
        dispatch=self._dispatches,
        position=position,
        steps=int(steps[i]),
        counts=bool(counts[i]),
        version=version,
      )
      heapq.heappush(self._queue, client)

  def _next_begin(self, in_buffer: Sequence[int]) -> float:
    """Returns when the next client becomes available for a place that nobody could take.

    It counts in seconds from the last step; infinity if there is no such place, client or time.
    """
    seconds_to_change = getattr(self._is_available, 'seconds_to_change', None)
    if seconds_to_change is None or len(self._queue) >= self._asynchrony.concurrency:
      return math.inf
    waiting = self._is_idle.copy()  # They are unavailable, or they would have begun.
    waiting[list(in_buffer)] = False
    if not waiting.any():
      return math.inf
    return float(self._since + seconds_to_change(self._clock + self._since, waiting))

  def _chances(self, drawn: np.ndarray, number: int) -> np.ndarray:
    """See `Simulation._chances`. The first drawn client is the run's `number`-th to begin."""
    chances = []
    for dispatch in range(number, number + len(drawn)):
      generator = draws.generator(self._seed, dispatch, draws.DISPATCH_FAILURE)
      chances.append(generator.random(2))
    return np.transpose(chances)
