"""Rounds that do not wait: who arrives for which server step, trained from which model.

FedBuff ("Federated Learning with Buffered Asynchronous Aggregation", Nguyen et al., 2022) and, with
a buffer of one, FedAsync ("Asynchronous Federated Optimization", Xie et al., 2019), on the virtual
clock.
"""

import dataclasses
import heapq
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_adaptive._utils import draws, validation
from tff_adaptive.population import rounds

STALENESS = ('none', 'polynomial', 'hinge', 'constant')
COLUMNS = (*rounds.COLUMNS, 'staleness_mean', 'staleness_max', 'under_way', 'versions')
# Draws of nobody and updates dropped, for each client of the buffer, after which no step comes.
_MOST_IN_VAIN = 10_000


@dataclasses.dataclass(frozen=True)
class Buffered:
  """How the server works with clients that it does not wait for.

  Some clients are always training, each from the model of the moment at which it began. A server
  step is taken whenever `TrainingConfig.clients_per_round` of them, the size B of the buffer, have
  arrived. tau is a client's staleness: the server steps taken since it began.

  Attributes:
    concurrency: M, the clients that train at a time, B <= M <= N.
    staleness: The factor s(tau) of a client's update: 'none', 1; 'polynomial', (1 + tau)^-a, with
      a = 1/2 FedBuff's; 'hinge', 1 up to tau = b, then 1 / (a (tau - b) + 1); or 'constant', c for
      any tau above 0.
    a: Of 'polynomial' and 'hinge', above 0; None for 0.5 and for 10.
    b: Of 'hinge', at least 0.
    c: Of 'constant', in (0, 1].
    max_staleness: An update with a larger tau is dropped when it arrives; None keeps all.
    mixing: Whether an update is measured from the present model, x - theta_i, as FedAsync's average
      x <- (1 - alpha s) x + alpha s theta_i is with SGD of rate alpha at the server; otherwise
      from the model that the client began with, as FedBuff's.

  Raises:
    ValueError: If a number is out of its range.
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
    """s(tau), the factor of an update that is tau server steps old."""
    if self.staleness == 'polynomial':
      return float((1.0 + tau) ** -(0.5 if self.a is None else self.a))
    if self.staleness == 'hinge':
      return 1.0 if tau <= self.b else 1.0 / ((self.a or 10.0) * (tau - self.b) + 1.0)
    return self.c if self.staleness == 'constant' and tau else 1.0


class Arrivals(NamedTuple):
  """The clients whose updates make a server step: a `rounds.RoundPlan`, and what is stale.

  Attributes:
    positions: int64 [B], in the order in which they arrived.
    steps: int64 [B], K_i of each.
    available: Clients that were there when clients were last drawn.
    selected: Clients that began to train since the last step.
    finished: Clients of the buffer that took all their steps.
    partial: Clients of the buffer that took fewer.
    dropped: Clients that failed, were late or too stale since the last step.
    virtual_seconds: Since the last step.
    staleness: int64 [B], tau of each.
    factors: float32 [B], s(tau) of each.
    slots: int64 [B], where the model that each began with is kept; -1 for the present one.
    store: Where the present model is to be kept after the step; -1 if nobody trains from it.
    under_way: Clients that go on training.
    versions: Older models that they need, the present one among them.
  """

  positions: np.ndarray
  steps: np.ndarray
  available: int
  selected: int
  finished: int
  partial: int
  dropped: int
  virtual_seconds: float
  staleness: np.ndarray
  factors: np.ndarray
  slots: np.ndarray
  store: int
  under_way: int
  versions: int

  @property
  def staleness_mean(self) -> float:
    """The mean of tau."""
    return float(self.staleness.mean())

  @property
  def staleness_max(self) -> int:
    """The largest tau."""
    return int(self.staleness.max())

  def columns(self) -> dict[str, float]:
    """Returns what metrics.csv says of the step."""
    return {name: getattr(self, name) for name in COLUMNS}

  def of_client(self, i: int) -> dict[str, Any]:
    """What the i-th client's element has besides its examples, see `ClientTraining.versions`."""
    return {
      'version': np.int32(self.slots[i]),
      'discount': np.float32(self.factors[i]),
      'store': np.int32(self.store),
    }


class _Client(NamedTuple):
  """A client under way; in the order of the arrivals, of which none are alike."""

  time: float
  dispatch: int
  position: int
  steps: int
  counts: bool
  version: int


class BufferedSimulation(rounds.Simulation):
  """The server steps of one run, one after the other on the virtual clock.

  What happens at one instant happens in this order: clients arrive, those that began first before
  the others; the server takes its step when the buffer is full; new clients begin, drawn uniformly
  from the available ones that neither train nor are in the buffer. A step depends on the
  arguments and its number only: a resumed run goes through the steps before again, without data.
  """

  def __init__(self, synchrony: Buffered, *given: Any, **more: Any) -> None:
    """Creates the simulation; the other arguments are those of `rounds.Simulation`.

    Raises:
      ValueError: As that of `rounds.Simulation`, and if fewer clients train than a buffer holds, or
        more than there are.
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
    self._arrivals: Any = None
    self._restart()

  def plan(self, round_number: int) -> Any:
    """Returns the arrivals of a server step, counted from 1."""
    if round_number <= self._number:
      if round_number == self._number:
        return self._arrivals
      self._restart()
    while self._number < round_number:
      self._number += 1
      self._arrivals = self._step(self._number - 1)
    return self._arrivals

  def most_versions(self, num_rounds: int) -> int:
    """How many older models must be kept at a time in so many server steps, at most."""
    found = max(self.plan(number).store + 1 for number in range(1, num_rounds + 1))
    self._restart()
    return found

  def _restart(self) -> None:
    self._number, self._dispatches = 0, 0
    # Virtual seconds until the last step, and since: times of the queue count from it too, so that
    # a step's seconds do not depend on how late it is.
    self._before, self._clock = 0.0, 0.0
    self._queue: list[_Client] = []
    self._is_idle = np.ones(len(self._steps), bool)
    self._slots: dict[int, int] = {}  # Version -> where it is kept.
    self._drew_whole = -1  # The version at which a whole cohort was drawn.
    self._available = 0

  def _step(self, version: int) -> Arrivals:
    """The arrivals of the step that follows `version`, the number of steps taken."""
    self._start_clock_again()
    first, idle = self._dispatches, 0
    found: list[_Client] = []
    dropped, most = 0, self._synchrony.max_staleness
    while len(found) < self._cohort_size:
      if idle + dropped > _MOST_IN_VAIN * self._cohort_size:
        raise ValueError(
          f'server step {version + 1} never comes: {len(found)} of the {self._cohort_size} clients'
          f' of its buffer arrive, and after {idle:,} draws of nobody and {dropped:,} dropped'
          ' updates no other does. Check availability, deadline and max_staleness, or give a'
          ' smaller buffer.'
        )
      if not self._queue or self._queue[0].time > self._clock:
        self._dispatch(version, [client.position for client in found])
      if not self._queue:
        idle += 1
        self._clock += self._idle(self._before + self._clock)
        continue
      client = heapq.heappop(self._queue)
      self._clock = client.time
      self._is_idle[client.position] = True
      if client.counts and (most is None or version - client.version <= most):
        found.append(client)
      else:
        dropped += 1
    slots = [self._slots.get(client.version, -1) for client in found]
    store, versions = self._keep(version)
    tau = np.array([version - client.version for client in found], np.int64)
    steps = np.array([client.steps for client in found], np.int64)
    positions = np.array([client.position for client in found], np.int64)
    is_partial = steps < self._steps[positions]
    return Arrivals(
      positions=positions,
      steps=steps,
      available=self._available,
      selected=self._dispatches - first,
      finished=int(np.sum(~is_partial)),
      partial=int(np.sum(is_partial)),
      dropped=dropped,
      virtual_seconds=self._clock,
      staleness=tau,
      factors=np.array([self._synchrony.factor(int(t)) for t in tau], np.float32),
      slots=np.array(slots, np.int64),
      store=store,
      under_way=len(self._queue),
      versions=versions,
    )

  def _start_clock_again(self) -> None:
    self._queue = [c._replace(time=c.time - self._clock) for c in self._queue]
    heapq.heapify(self._queue)  # Two times may have become one.
    self._before, self._clock = self._before + self._clock, 0.0

  def _keep(self, version: int) -> tuple[int, int]:
    """Says where the present model is kept, or -1, and how many are; forgets those not needed."""
    needed = {client.version for client in self._queue}
    self._slots = {v: slot for v, slot in self._slots.items() if v in needed}
    if version not in needed:
      return -1, len(needed)
    taken = set(self._slots.values())
    slot = next(i for i in range(len(taken) + 1) if i not in taken)
    self._slots[version] = slot
    return slot, len(needed)

  def _dispatch(self, version: int, in_buffer: Sequence[int]) -> None:
    """Lets new clients begin, as many as there is room and as are there."""
    room = self._synchrony.concurrency - len(self._queue)
    if not room:
      return
    available = self._is_available(version + 1, self._before + self._clock)
    self._available = int(np.sum(available))
    candidates = available & self._is_idle
    candidates[list(in_buffer)] = False  # In one step a client counts once.
    (ids,) = np.nonzero(candidates)
    size = min(room, len(ids))
    if not size:
      return
    if not self._queue and not in_buffer and self._drew_whole != version:
      # As a synchronous round draws.
      self._drew_whole = version
      drawn = ids[self._draw(self._seed, version + 1, len(ids), size)]
    else:
      generator = draws.generator(self._seed, self._dispatches + 1, draws.DISPATCH)
      drawn = ids[generator.choice(len(ids), size=size, replace=False)]
    for position in drawn.tolist():
      self._begin(version, position)

  def _begin(self, version: int, position: int) -> None:
    population, times = self._population, self._times
    self._dispatches += 1
    steps = int((self._fit if population.limits_steps else self._steps)[position])
    seconds = times.download[position] + steps * times.step[position] + times.upload[position]
    counts = bool(self._fit[position] >= self._needed[position])
    seconds = min(seconds, self._limit) if counts else self._limit
    if population.dropout_rate:
      chance = draws.generator(self._seed, self._dispatches, draws.DISPATCH_FAILURE)
      fails, when = chance.random(2)
      if fails < population.dropout_rate:
        counts = False
        taken = math.floor(when * steps)
        seconds = min(times.download[position] + taken * times.step[position], self._limit)
    self._is_idle[position] = False
    time = float(self._clock + seconds)
    client = _Client(time, self._dispatches, position, steps, counts, version)
    heapq.heappush(self._queue, client)
