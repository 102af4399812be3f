"""The interface of rules that choose the clients of a round, and what such a rule knows.

A rule is a function of a `Situation`. It returns the positions of the chosen clients, or a `Choice`
that also has weights. It declares what it needs of earlier rounds or of the present model: `needs`,
an attribute with some of the names in `NEEDS`. Without needs it must be a function of the round and
the seed alone, so that the next cohort can be loaded while a round trains.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tff_adaptive._utils import draws

# What a rule may need: the losses of candidates at the present model, which costs evaluations; the
# losses that clients had when they began to train; the norms of their updates; when and how often
# they have taken part; a memory of its own.
NEEDS = ('losses', 'train_losses', 'norms', 'participation', 'memory')
OBJECTIVES = ('examples', 'uniform')


@dataclasses.dataclass(frozen=True)
class Choice:
  """The clients that a rule chose.

  Attributes:
    positions: The positions of the clients among all ids, int64 [m]. One that occurs twice stands
      for a client that was drawn twice; it trains once, and its weights are added up.
    weights: With weights w_j the aggregate is sum_j w_j g_j, of the updates g_j. With None it is
      the mean of the process, whose weights are those of `client_weighting`.
    candidates: The positions of the clients whose losses the rule asked for; the run sets it.
  """

  positions: np.ndarray
  weights: np.ndarray | None = None
  candidates: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, np.int64))

  @property
  def downloads(self) -> int:
    """The number of clients that receive the model: candidates and chosen ones, each once."""
    return len(np.union1d(self.positions, self.candidates))


Rule: TypeAlias = Callable[['Situation'], Any]


@dataclasses.dataclass
class Known:
  """What is known of a run's N clients, by position. A run adds to it after each round.

  Attributes:
    client_ids: The ids.
    num_examples: The number of examples that each client trains on, int64 [N].
    seconds: Virtual seconds of each client's whole round, float64 [N]; 0 without a population.
    last_round: The last round in which the client's update counted, int64 [N]; 0 for none.
    times: Number of these rounds, int64 [N].
    train_losses: The mean loss over its examples at the model with which it last began to train,
      float64 [N]; NaN if unknown.
    squared_losses: The mean of the squared losses of its examples at this model, float64 [N].
    norms: The 2-norm of its last update, float64 [N]; NaN if unknown.
  """

  client_ids: Sequence[str]
  num_examples: np.ndarray
  seconds: np.ndarray
  last_round: np.ndarray = dataclasses.field(init=False)
  times: np.ndarray = dataclasses.field(init=False)
  train_losses: np.ndarray = dataclasses.field(init=False)
  squared_losses: np.ndarray = dataclasses.field(init=False)
  norms: np.ndarray = dataclasses.field(init=False)

  OBSERVED: ClassVar[tuple[str, ...]] = (
    'last_round',
    'times',
    'train_losses',
    'squared_losses',
    'norms',
  )

  def __post_init__(self) -> None:
    size = len(self.client_ids)
    self.last_round = np.zeros(size, np.int64)
    self.times = np.zeros(size, np.int64)
    self.train_losses = np.full(size, math.nan)
    self.squared_losses = np.full(size, math.nan)
    self.norms = np.full(size, math.nan)

  def record(self) -> dict[str, list[Any]]:
    """Returns what was observed, for a checkpoint: positions of the clients seen, and values."""
    (seen,) = np.nonzero(self.times)
    columns = {name: getattr(self, name)[seen].tolist() for name in self.OBSERVED}
    return {'positions': seen.tolist(), **columns}

  def restore(self, recorded: Mapping[str, Sequence[Any]]) -> None:
    """Takes over what `record` returned."""
    self.__post_init__()
    for name in self.OBSERVED:
      getattr(self, name)[recorded['positions']] = recorded[name]


@dataclasses.dataclass(frozen=True)
class Situation:
  """What a rule knows when it chooses the clients of a round.

  Attributes:
    round_number: The round, from 1.
    seed: The run's seed.
    available: The positions of the clients that can be chosen, int64, rising, at least one.
    size: The number of clients to choose, at most that of the available ones.
    known: What is known of all clients.
    needs: What the rule declared; the rest is refused.
    evaluate: A function that returns the losses of the clients at some positions.
    stored: The memory of the rule; see `memory`.
    full_size: The number of clients to choose where enough are available; None for `size`, which is
      less where fewer are. Rules that go through the clients in turn count their rounds by it.
  """

  round_number: int
  seed: int
  available: np.ndarray
  size: int
  known: Known
  needs: Sequence[str] = ()
  evaluate: Callable[[np.ndarray], np.ndarray] | None = None
  stored: dict[str, Any] = dataclasses.field(default_factory=dict)
  full_size: int | None = None

  @property
  def size_in_turn(self) -> int:
    """The number of clients by which rules in turn go on in each round, the same in all rounds."""
    return self.full_size or self.size

  @property
  def client_ids(self) -> Sequence[str]:
    """The ids of all clients; positions are positions in it."""
    return self.known.client_ids

  @property
  def num_examples(self) -> np.ndarray:
    """The number of examples of each client, int64 [N]."""
    return self.known.num_examples

  @property
  def seconds(self) -> np.ndarray:
    """Virtual seconds of each client's whole round, float64 [N]; 0 without a population."""
    return self.known.seconds

  @property
  def norms(self) -> np.ndarray:
    """The norm of each client's last update, float64 [N]; NaN if unknown. It needs 'norms'."""
    self._check('norms')
    return self.known.norms

  @property
  def train_losses(self) -> np.ndarray:
    """Each client's mean loss when it last began to train, [N]. It needs 'train_losses'."""
    self._check('train_losses')
    return self.known.train_losses

  @property
  def last_round(self) -> np.ndarray:
    """The last round in which each client took part, [N]; 0 for none. It needs 'participation'."""
    self._check('participation')
    return self.known.last_round

  @property
  def times(self) -> np.ndarray:
    """The number of rounds in which each client took part, [N]. It needs 'participation'."""
    self._check('participation')
    return self.known.times

  @property
  def memory(self) -> dict[str, Any]:
    """A dict of numbers, texts and lists that is kept between rounds. It needs 'memory'."""
    self._check('memory')
    return self.stored

  def losses(self, positions: Any) -> np.ndarray:
    """Returns the mean losses of some clients at the present model, float64. It needs 'losses'.

    The clients count as candidates: they download the model and evaluate it on their examples. The
    loss of a client without examples is NaN.
    """
    self._check('losses')
    assert self.evaluate is not None
    return self.evaluate(np.asarray(positions, np.int64))

  def generator(self, purpose: int = draws.COHORT) -> np.random.Generator:
    """Returns a generator of draws of this round, which depends on the seed and the round only."""
    return draws.generator(self.seed, self.round_number, purpose)

  def shares(self, objective: str) -> np.ndarray:
    """Returns the shares q_i of the available clients in the objective; their sum is 1.

    Args:
      objective: 'examples' for shares as the numbers of examples, 'uniform' for equal ones.
    """
    if objective == 'uniform' or not self.num_examples[self.available].any():
      return np.full(len(self.available), 1 / len(self.available))
    counts = self.num_examples[self.available].astype(np.float64)
    shares: np.ndarray = counts / counts.sum()
    return shares

  def _check(self, need: str) -> None:
    if need not in self.needs:
      raise ValueError(
        f'the rule uses {need}, which it does not declare: give it the attribute needs ='
        f' ({need!r},), with all that it uses of {", ".join(NEEDS)}.'
      )


def needs_of(rule: Rule) -> tuple[str, ...]:
  """Returns what a rule declares; raises ValueError for an unknown need."""
  needs = tuple(getattr(rule, 'needs', ()))
  for need in needs:
    if need not in NEEDS:
      raise ValueError(f'{name_of(rule)} needs {need!r}; it may need {", ".join(NEEDS)}.')
  return needs


def gives_weights(rule: Rule | None) -> bool:
  """Returns whether a rule declares, with `is_weighted`, that its choices have weights."""
  return bool(getattr(rule, 'is_weighted', False))


def check_size(rule: Rule, size: int) -> None:
  """Raises ValueError if a rule cannot choose cohorts of a size, where it has a `check_size`."""
  check = getattr(rule, 'check_size', None)
  if check is not None:
    check(size)


def name_of(rule: Rule) -> str:
  """Returns the name of a rule for messages."""
  return str(getattr(rule, '__name__', type(rule).__name__))


def choose(rule: Rule, situation: Situation) -> Choice:
  """Calls a rule, and returns its choice with each client once.

  Raises:
    ValueError: If the choice is not one of at most `size` of the available clients, or its weights
      are bad, or they do not agree with the rule's `is_weighted`.
  """
  result = rule(situation)
  choice = result
  if not isinstance(choice, Choice):
    choice = Choice(result)
  about = f'the clients of round {situation.round_number} by {name_of(rule)}'
  positions = np.asarray(choice.positions)
  if positions.ndim != 1 or not len(positions) or positions.dtype.kind not in 'iu':
    raise ValueError(f'{about} are {result!r:.80}: give the positions of one or more clients.')
  if not np.isin(positions, situation.available).all():
    raise ValueError(f'{about} are not all available: choose among situation.available.')
  if (choice.weights is not None) != gives_weights(rule):
    raise ValueError(
      f'{about} have weights but not the attribute is_weighted = True, or the reverse: give both.'
    )
  distinct, first, owner = np.unique(positions, return_index=True, return_inverse=True)
  if len(distinct) > situation.size:
    raise ValueError(f'{about} are {len(distinct)}: choose at most {situation.size}.')
  order = np.argsort(first)  # The order of the rule.
  if choice.weights is None:
    return Choice(distinct[order].astype(np.int64))
  weights = np.asarray(choice.weights, np.float64)
  if weights.shape != positions.shape or not (np.isfinite(weights) & (weights >= 0)).all():
    raise ValueError(f'{about} have bad weights: give a finite number of at least 0 for each.')
  summed = np.bincount(owner.ravel(), weights)
  return Choice(distinct[order].astype(np.int64), summed[order])
