"""Plans rounds: which clients are drawn, which finish or are late, and how long a round takes."""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from tff_adaptive._utils import draws, validation
from tff_adaptive.population import (
  availability as availability_lib,
  choosing,
  speed as speed_lib,
)

STRAGGLERS = ('drop', 'partial')
COLUMNS = ('virtual_seconds', 'available', 'selected', 'finished', 'partial', 'dropped')
# If no client is available, there is no deadline, and it is not known when the next client comes,
# the server asks again after this time.
IDLE_SECONDS = 60.0
# The tolerance for rounding: of the deadline, as a share of a local step, of a cohort's size, and,
# relative to the clock, of the virtual seconds between evaluations.
_ROUNDING = 1e-9

# (seed, round, number of clients, number to draw) -> positions, without repetition.
Draw: TypeAlias = Callable[[int, int, int, int], np.ndarray]
# (round, positions of the available clients, number to choose) -> the chosen ones.
Choose: TypeAlias = Callable[[int, np.ndarray, int], choosing.Choice]
# An evaluation of a batch counts as this part of a local step: a gradient costs two passes more.
_EVALUATION = 1 / 3


@dataclasses.dataclass(frozen=True)
class Population:
  """The behaviour of a run's clients, and the way in which the server waits for them.

  Attributes:
    availability: Which clients can be drawn at which time.
    speed: How fast the clients compute and transfer.
    round_deadline: Virtual seconds, above 0, after which a round closes; None for no deadline.
    over_select: Factor >= 1; this factor times `clients_per_round` clients are drawn, rounded up.
      The round closes when `clients_per_round` have finished; later clients count as dropped.
    stragglers: The treatment of a client that cannot take all its steps before the deadline. 'drop'
      leaves it out; 'partial' lets it take the steps that fit, as in FedProx.
    dropout_rate: Probability in [0, 1) that a drawn client fails, at a random step.
  """

  availability: availability_lib.Availability = dataclasses.field(
    default_factory=availability_lib.Always
  )
  speed: speed_lib.Speed = dataclasses.field(default_factory=speed_lib.Speed)
  round_deadline: float | None = None
  over_select: float = 1.0
  stragglers: str = 'drop'
  dropout_rate: float = 0.0

  def __post_init__(self) -> None:
    if self.round_deadline is not None:
      validation.field(self, 'round_deadline', validation.above_zero, 'give seconds, or None')
    validation.field(self, 'over_select', validation.at_least_one, 'give a factor such as 1.3')
    validation.field(
      self, 'dropout_rate', validation.in_unit_interval, 'give a probability such as 0.3'
    )
    if self.stragglers not in STRAGGLERS:
      raise ValueError(
        f'stragglers is {self.stragglers!r}; it must be one of {", ".join(STRAGGLERS)}.'
      )
    if self.stragglers == 'partial' and self.round_deadline is None:
      raise ValueError('stragglers is partial, but no round_deadline cuts their work: give one.')

  @property
  def limits_steps(self) -> bool:
    """Returns whether a client may take fewer local steps than a full round has."""
    return self.stragglers == 'partial'

  def cohort_to_draw(self, cohort_size: int) -> int:
    """Returns the number of clients that are drawn for a round in which `cohort_size` may count."""
    return math.ceil(self.over_select * cohort_size - _ROUNDING)

  def record(self) -> dict[str, Any]:
    """Returns the settings for config.json. A mapping by client is replaced by its SHA-256.

    Of an object of a user's own class, such as an availability, the public attributes count.
    """
    return dict(record(self))


def record(value: Any) -> Any:
  """Returns an object's class, as `kind`, and its settings, as values that JSON can hold.

  The settings are the fields of a dataclass, or the public attributes of another object. Mappings
  and arrays are replaced by their SHA-256.
  """
  if isinstance(value, np.generic):
    value = value.item()
  if value is None or isinstance(value, (bool, int, float, str)):
    return value
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    names = [field.name for field in dataclasses.fields(value)]
    fields = {name: record(getattr(value, name)) for name in names}
    return {'kind': type(value).__name__, **fields}
  if isinstance(value, Mapping):
    if not value:
      return None
    text = json.dumps(value, sort_keys=True, default=float)
    return hashlib.sha256(text.encode()).hexdigest()
  if isinstance(value, np.ndarray):
    text = f'{value.dtype} {value.shape} {value.tobytes().hex()}'
    return hashlib.sha256(text.encode()).hexdigest()
  if isinstance(value, (list, tuple)):
    return [record(one) for one in value]
  if isinstance(value, type) or callable(value):
    return getattr(value, '__qualname__', type(value).__name__)
  attributes = getattr(value, '__dict__', {})
  public = {name: record(v) for name, v in attributes.items() if not name.startswith('_')}
  if not public:
    return type(value).__name__
  return {'kind': type(value).__name__, **public}


@dataclasses.dataclass(frozen=True)
class RoundPlan:
  """The simulated outcome of one round.

  Attributes:
    positions: int64, the positions of the clients whose updates count, in the order of the draw.
    steps: int64, the local steps of each of these clients: all, or those before the deadline.
    available: Number of clients that could be drawn.
    selected: Number of clients drawn, which is finished + partial + dropped.
    finished: Number of clients that count and took all their steps.
    partial: Number of clients that count and took fewer steps.
    dropped: Number of clients that failed, were late, or came when enough had finished.
    virtual_seconds: The duration of the round.
    begins: Virtual seconds from the start of the run to the start of the round.
    choice: The clients drawn, with the candidates; None for uniform draws.
    dropped_positions: The positions of the clients whose updates do not count.
    dropped_why: For each of these 'failed', 'late' (after the deadline), 'enough' (others had
      finished before) or, in asynchronous training, 'stale' (older than `max_staleness`).
  """

  positions: np.ndarray
  steps: np.ndarray
  available: int
  selected: int
  finished: int
  partial: int
  dropped: int
  virtual_seconds: float
  begins: float = dataclasses.field(default=0.0, kw_only=True)
  choice: choosing.Choice | None = dataclasses.field(default=None, kw_only=True)
  dropped_positions: Sequence[int] = dataclasses.field(default=(), kw_only=True)
  dropped_why: Sequence[str] = dataclasses.field(default=(), kw_only=True)

  def passes(self, seconds: float) -> bool:
    """Returns whether a multiple of `seconds` lies in the round, after its start or at its end.

    The clock adds up floats, so that a round that ends at a multiple may seem to end just before.
    """
    ends = self.begins + self.virtual_seconds

    def multiples(time: float) -> float:
      return math.floor(time / seconds * (1 + _ROUNDING))

    return multiples(ends) > multiples(self.begins)

  def columns(self) -> dict[str, float]:
    """Returns the columns of metrics.csv for the round."""
    return {name: getattr(self, name) for name in COLUMNS}


def _why(is_late: bool, may_count: bool) -> str:
  """Returns why the update of a client does not count."""
  if is_late:
    return 'late'
  if may_count:
    return 'enough'
  return 'failed'


class Simulation:
  """Simulates the rounds of one run, one after the other on the virtual clock.

  A round depends only on the arguments and its number. A resumed run simulates the earlier rounds
  again, without data.

  Attributes:
    note: A message if the run and an availability trace have different clients, else None.
  """

  def __init__(
    self,
    population: Population,
    client_ids: Sequence[str],
    steps: Sequence[int],
    *,
    seed: int,
    cohort_size: int,
    bytes_down: int,
    bytes_up: int,
    draw: Draw,
    choose: Choose | None = None,
    evaluation_steps: Sequence[int] | None = None,
  ):
    """Creates the simulation.

    Args:
      population: The behaviour of the clients.
      client_ids: The ids of the N clients.
      steps: Number of local steps of each client in a full round; 0 if it has no examples.
      seed: The run's seed, >= 0.
      cohort_size: Number of clients in a round, 1 to N.
      bytes_down: Bytes that a client receives in a round.
      bytes_up: Bytes that a client sends in a round.
      draw: A function like `training.cohorts.sample`, which draws clients.
      choose: A function that chooses clients in place of `draw`.
      evaluation_steps: Number of batches in which each client evaluates a model on its examples;
        by default `steps`. Only clients whose losses `choose` asks for do so.

    Raises:
      ValueError: If the population does not fit the clients, or no client could ever finish.
    """
    self._population = population
    self._seed = seed
    self._cohort_size = cohort_size
    self._steps = np.asarray(steps, np.int64)
    self._draw = draw
    self._choose = choose
    self._evaluation_steps = self._steps
    if evaluation_steps is not None:
      self._evaluation_steps = np.asarray(evaluation_steps, np.int64)
    availability = population.availability
    self._is_available = availability.bind(client_ids, seed)
    self.note: str | None = None
    if isinstance(availability, availability_lib.Trace):
      self.note = availability.unmatched(client_ids)
    self._times = population.speed.times(client_ids, seed, bytes_down, bytes_up)
    self._limit = math.inf
    if population.round_deadline is not None:
      self._limit = population.round_deadline
    # `_fit` are the steps for which there is time before the deadline. A client is late if they are
    # fewer than `_needed`, which is 0 for one without examples: its update has no weight anyhow.
    left = self._limit - self._times.download - self._times.upload
    fit = np.floor(left / self._times.step + _ROUNDING)
    self._fit = np.clip(fit, 0, self._steps).astype(np.int64)
    self._needed = self._steps
    if population.limits_steps:
      self._needed = np.minimum(self._steps, 1)
    self._check_somebody_can_finish()
    self._plan: RoundPlan | None = None
    self._restart()

  @property
  def seconds(self) -> np.ndarray:
    """The virtual seconds that each client needs for a whole round, float64 [N]."""
    times = self._times
    seconds: np.ndarray = times.download + self._steps * times.step + times.upload
    return seconds

  def seconds_of(self, positions: Sequence[int], steps: Sequence[int]) -> np.ndarray:
    """Returns the virtual seconds that clients need for so many steps, with both transfers."""
    at = np.asarray(positions, np.int64)
    times = self._times
    seconds: np.ndarray = times.download[at] + np.asarray(steps) * times.step[at] + times.upload[at]
    return seconds

  @property
  def clock(self) -> float:
    """The virtual seconds until the end of the last planned round."""
    return self._clock

  def continue_from(self, number: int, clock: float) -> None:
    """Goes on after round `number`, which ended at `clock`, without planning the rounds before."""
    self._restart()
    self._number = number
    self._clock = clock

  def plan(self, round_number: int) -> RoundPlan:
    """Returns the plan of a round, counted from 1."""
    if round_number < self._number:
      self._restart()
    while self._number < round_number:
      plan = dataclasses.replace(self._next(self._number + 1), begins=self._clock)
      self._plan = plan
      self._number += 1
      self._clock += plan.virtual_seconds
    assert self._plan is not None
    return self._plan

  def _restart(self) -> None:
    self._number = 0
    self._clock = 0.0
    self._plan = None

  def _next(self, number: int) -> RoundPlan:
    """Returns the plan of round `number`, which begins at `_clock`."""
    (available,) = np.nonzero(self._is_available(number, self._clock))
    size = min(self._population.cohort_to_draw(self._cohort_size), len(available))
    if not size:
      none = np.zeros(0, np.int64)
      return RoundPlan(none, none, 0, 0, 0, 0, 0, self._idle(self._clock))
    choice = None
    has_model = None
    seconds_to_choose = 0.0
    if self._choose is None:
      drawn = available[self._draw(self._seed, number, len(available), size)]
    else:
      choice = self._choose(number, available, size)
      drawn = choice.positions
      has_model = np.isin(drawn, choice.candidates)
      seconds_to_choose = self._seconds_to_evaluate(choice.candidates)
    steps, may_count, ends = self._course(drawn, number, has_model)
    (finishing,) = np.nonzero(may_count)
    first = finishing[np.argsort(ends[finishing], kind='stable')][: self._cohort_size]
    # Back in the order of the draw, in which updates are summed.
    counts = np.sort(first)
    # With enough clients the round ends with the last that counts, else when all are known.
    last = ends.max()
    if len(first) == self._cohort_size:
      last = ends[first[-1]]
    (left_out,) = np.nonzero(~np.isin(np.arange(len(drawn)), counts))
    is_late = (self._fit < self._needed)[drawn]
    is_partial = steps[counts] < self._steps[drawn[counts]]
    return RoundPlan(
      positions=drawn[counts],
      steps=steps[counts],
      available=len(available),
      selected=len(drawn),
      finished=int(np.sum(~is_partial)),
      partial=int(np.sum(is_partial)),
      dropped=len(drawn) - len(counts),
      virtual_seconds=float(seconds_to_choose + last),
      choice=choice,
      dropped_positions=drawn[left_out].tolist(),
      dropped_why=[_why(is_late[i], may_count[i]) for i in left_out],
    )

  def _seconds_to_evaluate(self, candidates: np.ndarray) -> float:
    """Returns the virtual seconds until all candidates have received and evaluated the model."""
    if not len(candidates):
      return 0.0
    steps = self._evaluation_steps[candidates]
    evaluated = _EVALUATION * steps * self._times.step[candidates]
    return float(np.max(self._times.download[candidates] + evaluated))

  def _idle(self, clock: float) -> float:
    """Returns the seconds that a round without clients lasts."""
    # At fixed intervals the server might always ask when no client is available.
    seconds_to_next = getattr(self._is_available, 'seconds_to_next', None)
    if seconds_to_next is not None:
      return float(seconds_to_next(clock))
    return self._population.round_deadline or IDLE_SECONDS

  def _course(
    self, drawn: np.ndarray, number: int, has_model: np.ndarray | None = None
  ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns each drawn client's steps, whether its update can count, and when this is known.

    Clients that have the model already, bool [drawn], do not receive it again.

    The server knows of a failure at once, and of a late client at the deadline. Failures are drawn
    by `number`; see `_chances`.
    """
    steps = self._steps[drawn]
    if self._population.limits_steps:
      steps = self._fit[drawn]
    is_late = (self._fit < self._needed)[drawn]
    has_failed = np.zeros(len(drawn), bool)
    taken = steps
    if self._population.dropout_rate:
      fails, when = self._chances(drawn, number)
      has_failed = fails < self._population.dropout_rate
      taken = np.where(has_failed, np.floor(when * steps), steps)
    download = self._times.download[drawn]
    if has_model is not None:
      download = np.where(has_model, 0.0, download)
    ends = download + taken * self._times.step[drawn]
    # A client that fails sends nothing, and the server learns of it at once.
    ends = np.where(has_failed, ends, ends + self._times.upload[drawn])
    ends = np.where(is_late & ~has_failed, self._limit, np.minimum(ends, self._limit))
    return steps, ~has_failed & ~is_late, ends

  def _chances(self, drawn: np.ndarray, number: int) -> np.ndarray:
    """Draws float64 [2, clients] in [0, 1). A low number in row 0 is a failure; row 1 says when."""
    generator = draws.generator(self._seed, number, draws.FAILURE)
    # Drawn for all clients, so that a client's chance does not depend on who else is drawn.
    return generator.random((2, len(self._steps)))[:, drawn]

  def _check_somebody_can_finish(self) -> None:
    trains = self._steps > 0
    if not trains.any() or (self._fit >= self._needed)[trains].any():
      return
    times = self._times
    least = float(np.min((times.download + self._needed * times.step + times.upload)[trains]))
    what = 'train'
    if self._population.limits_steps:
      what = 'take one step'
    raise ValueError(
      f'round_deadline is {self._limit:g} virtual seconds, but the fastest'
      f' client needs {least:.6g} to receive, {what} and send: give more.'
    )
