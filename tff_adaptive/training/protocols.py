"""What the training loop asks of what it is given."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

EvaluateFn: TypeAlias = Callable[[Any], Mapping[str, float]]


class ClientData(Protocol):
  """All clients and their examples."""

  @property
  def client_ids(self) -> Sequence[str]:
    """All ids, sorted."""

  def num_examples(self, client_id: str) -> int:
    """Returns how many examples a client has, without loading them."""

  def load(self, client_id: str) -> Mapping[str, np.ndarray]:
    """Returns a client's examples: `OrderedDict(x=array[n, ...], y=array[n, ...])`."""


class StatelessProcess(Protocol):
  """A process whose clients remember nothing: a `tff.learning.templates.LearningProcess`.

  `initialize()` gives the server state; `next(server_state, cohort)` an object with the new `state`
  and the round's `metrics`. They are attributes, as TFF's computations are.
  """

  @property
  def initialize(self) -> Callable[[], Any]:
    """Gives the server state before the first round."""

  @property
  def next(self) -> Callable[..., Any]:
    """Runs a round."""


@runtime_checkable
class StatefulProcess(StatelessProcess, Protocol):
  """A process whose clients remember something from round to round.

  `next(server_state, client_states, cohort)` gives the new server state, the new client states in
  the same order, and the round's metrics.
  """

  initial_client_state: Any


Process: TypeAlias = StatelessProcess | StatefulProcess


@runtime_checkable
class ModelWeights(Protocol):
  """`tff.learning.models.ModelWeights`."""

  trainable: Sequence[Any]


class Stop:
  """Says whether a run should end; `training.train` asks it between rounds.

  The scripts have one that a signal sets.

  Attributes:
    requested: Whether the run should end after the round at work, which is saved.
    exit_code: What the process should return to the shell.
    announce: Called with a line for the user; None: nothing is announced.
    on_abort: Called where the process is ended at once.
  """

  def __init__(self) -> None:
    """Creates it; the run goes on until `request`."""
    self.requested = False
    self.exit_code = 0
    self.announce: Callable[[str], None] | None = None
    self.on_abort: list[Callable[[], None]] = []

  def request(self) -> None:
    """Asks for the end of the run."""
    self.requested = True
