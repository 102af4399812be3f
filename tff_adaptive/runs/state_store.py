"""The states of a run between rounds: the server's and every client's."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tff_adaptive.runs import serialization
from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_file import MEMORY, Count, StateFile


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """The contents of a checkpoint, except the client states.

  Attributes:
    round_number: The number of rounds done.
    server_state: The server state, structured like the argument of `ClientStateStore.restore`.
    metadata: The run's metadata, as given to `ClientStateStore.commit`.
  """

  round_number: int
  server_state: Any
  metadata: Mapping[str, Any]


class ClientStateStore:
  """A store of client states by client id, which saves them in checkpoints with the server state.

  A client that has not taken part has the state `initial_state`, and takes no space. States stay in
  memory once they are read or put. If the process ends, states put since the last `commit` are
  lost. After a failed write every call raises the same error.

  It is a context manager. Use it from one thread, and one process at a time (the file is locked).

  Attributes:
    notes: Messages for the user, such as that workers cannot read the states.
  """

  def __init__(self, path: str | StateFile | None, initial_state: Any):
    """Opens the file at `path`, or creates it.

    Args:
      path: The SQLite file, whose folder must exist, or an open file, which the store closes. None
        keeps everything in memory and saves nothing.
      initial_state: A client's state before its first round: a structure (nested tuples, lists,
        mappings) of arrays or tensors of fixed shape; `()` for none.

    Raises:
      StateError: If the file is damaged, in use by another process, or has states of other types.
    """
    self.notes: list[str] = []
    self._packer = serialization.Packer(initial_state)
    self._known: dict[str, bytes] = {}  # Client id -> its state.
    self._dirty: dict[str, int] = {}  # Client id -> round of a state not yet in the file.
    if not isinstance(path, StateFile):
      path = StateFile(path or MEMORY, signature=self._packer.signature)
    self._file = path
    self._last_round = max(self._file.rounds, default=-1)

  def __enter__(self) -> 'ClientStateStore':
    return self

  def __exit__(self, *unused_exception: object) -> None:
    self.close()

  @property
  def state_bytes(self) -> int:
    """The number of bytes of one client's state."""
    return self._packer.size

  def get(self, client_ids: Sequence[str]) -> list[Any]:
    """Returns the states of the clients with these ids, in the order of the ids.

    Returns:
      A list of structures like `initial_state`, of read-only NumPy arrays.

    Raises:
      StateError: If a state is damaged.
    """
    self._file.check()
    return [self._packer.unpack(self._find(client_id)) for client_id in client_ids]

  def put(
    self, client_ids: Sequence[str], states: Sequence[Any], round_number: int | None = None
  ) -> None:
    """Replaces the states of `client_ids`.

    Args:
      client_ids: Ids, as strings, each at most once.
      states: A structure for each client, with the shapes and dtypes of `initial_state`.
      round_number: The round in which the states were made, which must be later than that of the
        last checkpoint. The default is the round after the last checkpoint.

    Raises:
      StateError: If a state does not have the layout of `initial_state`. Nothing is replaced then.
      ValueError: If the two lists differ in length, an id occurs twice, or the round is not later
        than the last checkpoint's.
    """
    made = self._check_put(client_ids, states, round_number)
    self._known.update(zip(client_ids, [self._packer.pack(state) for state in states]))
    self._dirty.update(dict.fromkeys(client_ids, made))

  def commit(
    self, round_number: int, server_state: Any, metadata: Mapping[str, Any] | None = None
  ) -> None:
    """Saves a checkpoint of the server state and all client states, in one transaction.

    Args:
      round_number: The number of rounds done, larger than at the last checkpoint.
      server_state: A structure of arrays, tensors or Python numbers.
      metadata: A mapping of values that JSON can hold, such as the run's id.

    Raises:
      SaveError: If the file cannot be written, for example because the disk is full. It then still
        holds the previous checkpoint.
      ValueError: If the round is not later than the last one's, or a leaf cannot be stored.
    """
    self._check_round(round_number)
    leaves = serialization.named_leaves(server_state)
    self._file.check()
    self._write_clients()
    self._file.save(round_number, metadata or {}, leaves)
    self._last_round = round_number
    self._dirty.clear()

  def verify(self) -> None:
    """Reads the last checkpoint back from the disk; raises SaveError if it is damaged."""
    self._file.verify()

  def restore(
    self, server_state_like: Any, which: Literal['latest', 'previous'] = 'latest'
  ) -> Checkpoint | None:
    """Returns a checkpoint, or None if there is none. The file is not changed.

    To continue from a previous checkpoint, call `forget_later` before anything else.

    Args:
      server_state_like: A server state of the same algorithm and model, such as the initial one,
        which gives the stored state's structure, shapes and dtypes. A dimension of 0 fits any size.
      which: The checkpoint, 'latest' or 'previous'.

    Raises:
      StateError: If the checkpoint is damaged or does not fit `server_state_like`, there is no
        previous checkpoint, or `server_state_like` has leaves that cannot be stored.
    """
    serialization.named_leaves(server_state_like)  # Now, and not only at the first checkpoint.
    rounds = self._file.rounds
    if which == 'previous' and len(rounds) < 2:
      found = f'one checkpoint only, of round {rounds[0]}' if rounds else 'no checkpoint'
      raise StateError(f'{self._file.path} holds {found}: there is no previous one to resume from.')
    if not rounds:
      return None
    round_number = rounds[-2 if which == 'previous' else -1]
    metadata, leaves = self._file.read_checkpoint(round_number)
    try:
      server_state = serialization.restored(server_state_like, leaves)
    except StateError as error:
      raise StateError(
        f'{self._file.path}: the server state stored there is of another algorithm or model'
        f' ({error}). Start in a new folder.'
      ) from None
    self._file.begin_from(round_number, self._elsewhere(round_number))
    return Checkpoint(round_number, server_state, metadata)

  def forget_later(self, round_number: int) -> None:
    """Permanently deletes the checkpoints and client states of all rounds after the given one.

    Args:
      round_number: The round of the checkpoint that `restore` returned.

    Raises:
      SaveError: If the file cannot be written.
    """
    self._file.drop_after(round_number)
    self._last_round = round_number

  def close(self) -> None:
    """Closes the file; uncommitted changes are dropped."""
    self._file.close()
    self._known.clear()
    self._dirty.clear()

  def _write_clients(self) -> None:
    """Writes the states that were put since the last checkpoint."""
    for client_id in sorted(self._dirty):
      self._file.put_client(client_id, self._dirty[client_id], self._known[client_id])

  def _elsewhere(self, round_number: int) -> Count:
    """Returns the `Count` of a checkpoint's client states that other files hold: none here."""
    del round_number
    return Count()

  def _check_put(
    self, client_ids: Sequence[str], states: Sequence[Any], round_number: int | None
  ) -> int:
    """Checks the arguments of `put`, and returns the round in which the states were made."""
    if len(client_ids) != len(states):
      raise ValueError(f'{len(client_ids)} client ids but {len(states)} states.')
    if len(set(client_ids)) != len(client_ids):
      raise ValueError('A client id occurs twice among those to store.')
    made = self._last_round + 1 if round_number is None else round_number
    self._check_round(made)
    self._file.check()
    return made

  def _check_round(self, round_number: int) -> None:
    if round_number <= self._last_round:
      raise ValueError(
        f'round_number is {round_number}; it must be more than {self._last_round}, the last'
        " checkpoint's."
      )

  def _find(self, client_id: str) -> bytes | None:
    if client_id in self._known:
      return self._known[client_id]
    blob = self._file.read_client(client_id)
    if blob is not None:
      self._known[client_id] = blob
    return blob
