"""Runs stateful processes in TFF's own training loop; client states are stored by client id."""

import io
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow_federated as tff
import tree

from tff_adaptive._utils import private_apis, value_text
from tff_adaptive.algorithms import stateful_process

_Serializable: Any = private_apis.serializable()
_END = b'.'  # TensorFlow may drop zero bytes at the end of a string.


class ClientStates(_Serializable):
  """An immutable mapping from client id to the client's state.

  Updating it returns a new object, so earlier states stay valid. TFF's program state managers write
  it to their checkpoints through `to_bytes`.
  """

  def __init__(self, leaves: Mapping[str, tuple[np.ndarray, ...]] | None = None):
    """Creates the mapping. `leaves` has each client's state by id, as `tree.flatten` returns it."""
    self._leaves = dict(leaves or {})

  def __len__(self) -> int:
    return len(self._leaves)

  def get(self, client_id: str, initial: Any) -> Any:
    """Returns a client's state in the structure of `initial`, or `initial` if it has none yet."""
    leaves = self._leaves.get(client_id)
    if leaves is None:
      return initial
    return tree.unflatten_as(initial, leaves)

  def updated(self, states: Mapping[str, Any]) -> 'ClientStates':
    """Returns a copy in which the states of some clients are replaced."""
    new = {}
    for client_id, state in states.items():
      # Without their structure, which is that of `initial`: to_bytes stacks them leaf by leaf.
      new[client_id] = tuple(map(np.asarray, tree.flatten(state)))
    return ClientStates({**self._leaves, **new})

  def to_bytes(self) -> bytes:
    """Returns an .npz file as bytes: client ids, and each array of all clients' states, stacked."""
    columns = zip(*self._leaves.values())
    arrays: dict[str, Any] = {f'leaf_{i}': np.stack(column) for i, column in enumerate(columns)}
    file = io.BytesIO()
    # Strings of NumPy, because objects would be pickled, which `from_bytes` does not allow.
    np.savez(file, client_ids=np.array(list(self._leaves), dtype=np.str_), **arrays)
    return file.getvalue() + _END

  @classmethod
  def from_bytes(cls, buffer: bytes) -> 'ClientStates':
    """Returns the states that `to_bytes` wrote."""
    with np.load(io.BytesIO(buffer[: -len(_END)]), allow_pickle=False) as file:
      # All arrays but that of the ids.
      columns = [file[f'leaf_{i}'] for i in range(len(file.files) - 1)]
      return cls(dict(zip(file['client_ids'].tolist(), zip(*columns))))


class State(NamedTuple):
  """The state that `ByClientId` passes from round to round.

  Attributes:
    server_state: The server state of the wrapped process.
    client_states: The states of all clients that have taken part.
  """

  server_state: stateful_process.ServerState
  client_states: ClientStates


class ByClientId:
  """A process with client states, wrapped for training loops that pass a single state.

  `tff.simulation.run_training_process` calls `state, metrics = next(state, cohort)` and saves
  `state`. Here a cohort is a mapping from client id to the client's data. The state includes the
  states of all clients that have taken part, so a resumed program continues with them:

      process = tff_adaptive.build_process('scaffold', model_fn, ...)
      process = tff_adaptive.algorithms.ByClientId(process)
      tff.simulation.run_training_process(
        process,
        lambda round_number: {c: data.create_tf_dataset_for_client(c) for c in drawn(round_number)},
        total_rounds=100,
        program_state_manager=tff.program.FileProgramStateManager('states'),
      )

  Every checkpoint, and the memory, holds the states of all clients so far. For many clients or
  large models use `training.train`, which stores only what has changed.
  """

  def __init__(self, process: stateful_process.StatefulProcess):
    """Wraps a process.

    Args:
      process: A process with client states, such as `build_process('scaffold', ...)`.

    Raises:
      TypeError: If the clients of the process keep no state. It then needs no wrapper.
    """
    if not isinstance(process, stateful_process.StatefulProcess):
      raise TypeError(
        f'expected a process whose clients keep a state, found {type(process).__name__}: it runs '
        'in run_training_process as it is.'
      )
    self._process = process

  def initialize(self) -> State:
    """Returns the state before the first round; no client has a state yet."""
    return State(self._process.initialize(), ClientStates())

  def next(
    self, state: State, cohort: Mapping[str, Any]
  ) -> tff.learning.templates.LearningProcessOutput:
    """Runs one round.

    Args:
      state: The state before the round.
      cohort: A mapping from client id to the client's data, in the form that the process takes.

    Returns:
      The new `state` and the round's `metrics`.

    Raises:
      TypeError: If the cohort is not a mapping, or a client id is not a string.
    """
    is_mapping = isinstance(cohort, Mapping)
    if not (is_mapping and all(isinstance(client_id, str) for client_id in cohort)):
      raise TypeError(
        'the cohort must be {client id: data} with strings for ids, by which a resumed program'
        f' finds states; the selection function returned {value_text.in_text(cohort):.100}.'
      )
    # Some program state managers of TFF give a plain tuple back.
    state = State(*state)
    initial = self._process.initial_client_state
    before = [state.client_states.get(client_id, initial) for client_id in cohort]
    server_state, after, metrics = self._process.next(
      state.server_state, before, list(cohort.values())
    )
    states_of_all = state.client_states.updated(dict(zip(cohort, after)))
    return tff.learning.templates.LearningProcessOutput(State(server_state, states_of_all), metrics)

  def get_model_weights(self, state: State) -> Any:
    """Returns the weights for inference; see `StatefulProcess.get_model_weights`."""
    return self._process.get_model_weights(State(*state).server_state)
