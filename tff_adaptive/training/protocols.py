"""The interfaces of the objects that the training loop takes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

EvaluateFn: TypeAlias = Callable[[Any], Mapping[str, float]]


class ClientData(Protocol):
  """The interface of objects with all clients and their examples."""

  @property
  def client_ids(self) -> Sequence[str]:
    """The ids of all clients, sorted."""

  def num_examples(self, client_id: str) -> int:
    """Returns the number of a client's examples, without loading them."""

  def load(self, client_id: str) -> Mapping[str, np.ndarray]:
    """Returns a client's examples: `OrderedDict(x=array[n, ...], y=array[n, ...])`."""


class StatelessProcess(Protocol):
  """A process whose clients keep no state: a `tff.learning.templates.LearningProcess`.

  `initialize()` returns the server state, and `next(server_state, cohort)` an object with the new
  `state` and the round's `metrics`. In TFF both are attributes with computations, not methods.
  """

  @property
  def initialize(self) -> Callable[[], Any]:
    """A function that returns the server state before the first round."""

  @property
  def next(self) -> Callable[..., Any]:
    """A function that runs a round."""


@runtime_checkable
class StatefulProcess(StatelessProcess, Protocol):
  """A process whose clients keep a state from round to round.

  `next(server_state, client_states, cohort)` returns the new server state, the new client states in
  the same order, and the round's metrics. The first state of a client is `initial_client_state`.
  """

  initial_client_state: Any


Process: TypeAlias = StatelessProcess | StatefulProcess


@runtime_checkable
class ModelWeights(Protocol):
  """The interface of `tff.learning.models.ModelWeights`."""

  trainable: Sequence[Any]


@dataclasses.dataclass(frozen=True)
class TrainingResult:
  """The result of `train`, besides the files of the run.

  Attributes:
    state: The server state after `round_number` rounds.
    round_number: The number of finished rounds.
    is_complete: Whether the run has done all rounds, or has ended earlier because of a target, of
      `early_stop` or of a budget; False after a signal.
    summary: The content of summary.json.
    best_weights: The trainable weights of the best evaluation; None without `keep_best`.
    rows: For each round, those before a resume too, a mapping from column of metrics.csv to number,
      without empty cells.
  """

  state: Any
  round_number: int
  is_complete: bool
  summary: Mapping[str, Any]
  best_weights: Sequence[np.ndarray] | None = None
  rows: Sequence[Mapping[str, float]] = ()


class Stop:
  """A request to end a run, which `training.train` checks between rounds.

  In the scripts a signal makes the request.

  Attributes:
    requested: Whether the run should end after the current round, which is saved.
    exit_code: The exit code of a process that ends because of the request; 0 without a signal.
    announce: A function that shows a line of text to the user, or None.
    on_abort: Functions that are called if the process ends without waiting for the round.
  """

  def __init__(self) -> None:
    """Creates the object; nothing is requested yet."""
    self.requested = False
    self.exit_code = 0
    self.announce: Callable[[str], None] | None = None
    self.on_abort: list[Callable[[], None]] = []

  def request(self) -> None:
    """Requests the end of the run."""
    self.requested = True
