"""Chooses the clients of a run by a rule, and keeps what the rule must know of earlier rounds."""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tff_adaptive._utils import draws
from tff_adaptive.population import choosing
from tff_adaptive.training import client_losses as client_losses_lib
from tff_adaptive.training.config import TrainingConfig

# Loads the examples of the clients at some positions, `OrderedDict(x, y)` each.
Load = Callable[[Sequence[int]], Any]
_BYTES_OF_A_LOSS = 4  # What a candidate sends.


class _Observed(NamedTuple):
  """The arguments of `Selector.observe`."""

  number: int
  positions: np.ndarray
  losses: np.ndarray | None
  norms: np.ndarray | None


class Selector:
  """Chooses the clients of each round of one run.

  Attributes:
    needs: What the rule needs, of `choosing.NEEDS`.
    waits: Whether a cohort depends on the rounds before, so that it cannot be chosen ahead.
    weights: The present weights of the model, at which losses are evaluated.
  """

  def __init__(
    self,
    config: TrainingConfig,
    known: choosing.Known,
    load: Load,
    client_losses: client_losses_lib.ClientLosses | None = None,
  ):
    """Creates the selector.

    Args:
      config: The run's configuration, whose `cohort` is the rule.
      known: What is known of the clients before the first round.
      load: A function that loads clients' examples.
      client_losses: A function that evaluates losses; see `build_client_losses`.

    Raises:
      ValueError: If the rule needs losses and `client_losses` is None, or it has an unknown need.
    """
    self._rule = config.cohort
    self._seed = config.seed
    self._known = known
    self._load = load
    self._client_losses = client_losses
    self._full_size = config.clients_per_round
    if config.population is not None:
      self._full_size = config.population.cohort_to_draw(config.clients_per_round)
    self._full_size = min(self._full_size, len(known.client_ids))
    self._memory: dict[str, Any] = {}
    # Of the present round, until `commit`: a round that fails must leave no trace.
    self._next_memory: dict[str, Any] = {}
    self._observed: _Observed | None = None
    self.weights: Any = None
    self.needs: tuple[str, ...] = ()
    if self._rule is not None:
      self.needs = choosing.needs_of(self._rule)
    self.waits = bool(self.needs)
    if {'losses', 'train_losses'} & set(self.needs) and client_losses is None:
      raise ValueError(
        f'{choosing.name_of(self._rule)} needs losses of clients: give'  # type: ignore[arg-type]
        ' client_losses=training.build_client_losses(model).'
      )

  def choose(self, number: int, available: np.ndarray, size: int) -> choosing.Choice:
    """Returns the clients of round `number`, of which each is given once.

    Args:
      number: The round, from 1.
      available: The positions of the clients that can be chosen, rising.
      size: The number of clients to choose.
    """
    if self._rule is None:
      # As `cohorts.sample` draws, of the clients that are available.
      generator = draws.generator(self._seed, number)
      drawn = generator.choice(len(available), size=size, replace=False)
      return choosing.Choice(available[drawn])
    candidates: list[int] = []
    # The rule may change it in place, also in a round that then fails.
    self._next_memory = copy.deepcopy(self._memory)

    def evaluate(positions: np.ndarray) -> np.ndarray:
      candidates.extend(positions.tolist())
      return self.losses(positions)[:, 0]

    situation = choosing.Situation(
      round_number=number,
      seed=self._seed,
      available=available,
      size=size,
      known=self._known,
      needs=self.needs,
      evaluate=evaluate,
      stored=self._next_memory,
      full_size=self._full_size,
    )
    choice = choosing.choose(self._rule, situation)
    self._next_memory = _as_stored(self._next_memory, choosing.name_of(self._rule))
    # A client that was asked twice received the model once.
    asked = np.unique(np.array(candidates, np.int64))
    return choosing.Choice(choice.positions, choice.weights, asked)

  def losses(self, positions: Sequence[int] | np.ndarray) -> np.ndarray:
    """Returns the mean losses of clients at `weights`, and the means of their squares, [C, 2]."""
    assert self._client_losses is not None
    examples = self._load([int(position) for position in positions])
    return np.asarray(self._client_losses(self.weights, examples), np.float64)

  def observe(
    self,
    number: int,
    positions: Sequence[int],
    losses: np.ndarray | None,
    norms: np.ndarray | None,
  ) -> None:
    """Takes what a round told of the clients whose updates counted; `commit` notes it.

    Args:
      number: The round.
      positions: The positions of the clients.
      losses: The result of `losses` before they trained; None if the rule does not need it.
      norms: The norms of their updates; None if the rule does not need them.
    """
    self._observed = _Observed(number, np.asarray(positions, np.int64), losses, norms)

  def commit(self) -> None:
    """Notes what the rule and the round left, once the round is done."""
    self._memory = self._next_memory
    if self._observed is None:
      return
    number, at, losses, norms = self._observed
    self._known.last_round[at] = number
    self._known.times[at] += 1
    if losses is not None:
      self._known.train_losses[at] = losses[:, 0]
      self._known.squared_losses[at] = losses[:, 1]
    if norms is not None:
      self._known.norms[at] = norms
    self._observed = None

  def record(self) -> dict[str, Any]:
    """Returns what a resumed run needs of the rounds done, for a checkpoint."""
    return {'known': self._known.record(), 'memory': self._memory}

  def restore(self, recorded: Mapping[str, Any]) -> None:
    """Takes over what `record` returned."""
    # Both memories: until the next choice the present round's is the last one's.
    self._known.restore(recorded['known'])
    self._memory = dict(recorded['memory'])
    self._next_memory = self._memory


def _as_stored(value: Any, rule: str) -> Any:
  """Returns a rule's memory as a resumed run would read it, so that all runs go on with the same.

  Tuples become lists, and NumPy's numbers those of Python.

  Raises:
    ValueError: If a checkpoint cannot hold it.
  """
  if isinstance(value, np.generic):
    value = value.item()
  if isinstance(value, dict):
    for key in value:
      if not isinstance(key, str):
        raise ValueError(
          f'the memory of {rule} has the key {key!r:.40}, which a checkpoint keeps as a text: give'
          f' texts, such as {str(key)!r:.40}.'
        )
    return {key: _as_stored(one, rule) for key, one in value.items()}
  if isinstance(value, (list, tuple)):
    return [_as_stored(one, rule) for one in value]
  if value is None or isinstance(value, (bool, int, float, str)):
    return value
  raise ValueError(
    f'the memory of {rule} has a value of the type {type(value).__name__}, which a checkpoint'
    ' cannot keep: give numbers, texts, lists and dicts; an array as array.tolist().'
  )


def costs_of_candidates(choice: choosing.Choice, num_examples: np.ndarray) -> dict[str, int]:
  """Returns the columns of metrics.csv for the clients that evaluated the model; {} for none."""
  candidates = choice.candidates
  if not len(candidates):
    return {}
  return {
    'candidates': len(candidates),
    'candidate_examples': int(num_examples[candidates].sum()),
  }


def megabytes_of_losses(choice: choosing.Choice) -> float:
  """Returns the megabytes that candidates send besides updates: a number each."""
  return len(choice.candidates) * _BYTES_OF_A_LOSS / 1e6
