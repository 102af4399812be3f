"""The states of a run between rounds: the server's and every client's."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import cachetools

from tff_adaptive.runs import serialization
from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_file import MEMORY, StateFile

CACHE_BYTES = 10**9  # Of states that the file has too.


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

  A client that has not taken part has the state `initial_state`, and takes no space. States put
  since the last `commit` are in memory, and lost if the process ends. States that the file has are
  in memory too, those used last, up to `cache_bytes`. After a failed write every call raises the
  same error.

  It is a context manager. Use it from one thread, and one process at a time (the file is locked).
  """

  def __init__(self, path: str | None, initial_state: Any, *, cache_bytes: int = CACHE_BYTES):
    """Opens the file at `path`, or creates it.

    Args:
      path: The SQLite file, whose folder must exist. None keeps everything in memory and saves
        nothing.
      initial_state: A client's state before its first round: a structure (nested tuples, lists,
        mappings) of arrays or tensors of fixed shape; `()` for none.
      cache_bytes: How many bytes of states that the file has may be in memory too.

    Raises:
      StateError: If the file is damaged, in use by another process, or has states of other types.
    """
    self._packer = serialization.Packer(initial_state)
    # Client id -> its state. Those put since the last checkpoint, with their rounds, and others.
    self._unsaved: dict[str, tuple[int, bytes]] = {}
    self._saved: Any = cachetools.LRUCache(cache_bytes, getsizeof=len)
    self._file = StateFile(path or MEMORY, signature=self._packer.signature)
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

  def has(self, client_id: str) -> bool:
    """Returns whether a client has a state of its own, because it has taken part in a round."""
    self._file.check()
    return self._find(client_id) is not None

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
    if len(client_ids) != len(states):
      raise ValueError(f'{len(client_ids)} client ids but {len(states)} states.')
    if len(set(client_ids)) != len(client_ids):
      raise ValueError('A client id occurs twice among those to store.')
    if round_number is None:
      round_number = self._last_round + 1
    self._check_round(round_number)
    self._file.check()
    # All are packed before any is put, so that a state that does not fit replaces nothing.
    packed = [self._packer.pack(state) for state in states]
    for client_id, state in zip(client_ids, packed):
      self._unsaved[client_id] = (round_number, state)
      self._saved.pop(client_id, None)  # It is outdated.

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
    for client_id in sorted(self._unsaved):
      round_of_state, state = self._unsaved[client_id]
      self._file.put_client(client_id, round_of_state, state)
    self._file.save(round_number, metadata or {}, leaves)
    self._last_round = round_number
    # Only after the commit: a failed one leaves the states unsaved.
    for client_id, (_, state) in self._unsaved.items():
      self._remember(client_id, state)
    self._unsaved.clear()

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
      content = 'no checkpoint'
      if rounds:
        content = f'one checkpoint only, of round {rounds[0]}'
      raise StateError(
        f'{self._file.path} holds {content}: there is no previous one to resume from.'
      )
    if not rounds:
      return None
    round_number = rounds[-1]
    if which == 'previous':
      round_number = rounds[-2]
    metadata, leaves = self._file.read_checkpoint(round_number)
    try:
      server_state = serialization.restored(server_state_like, leaves)
    except StateError as error:
      raise StateError(
        f'{self._file.path}: the server state stored there is of another algorithm or model, or of'
        f' another release ({error}). Start in a new folder.'
      ) from None
    self._file.begin_from(round_number)
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
    self._unsaved.clear()
    self._saved.clear()

  def _check_round(self, round_number: int) -> None:
    if round_number <= self._last_round:
      raise ValueError(
        f'round_number is {round_number}; it must be more than {self._last_round}, the last'
        " checkpoint's."
      )

  def _find(self, client_id: str) -> bytes | None:
    """Returns the bytes of a client's state; None if it was never put."""
    if client_id in self._unsaved:
      return self._unsaved[client_id][1]
    if client_id in self._saved:
      state: bytes = self._saved[client_id]
      return state
    read = self._file.read_client(client_id)
    if read is not None:
      self._remember(client_id, read)
    return read

  def _remember(self, client_id: str, state: bytes) -> None:
    """Keeps a state that the file has in memory, unless it alone is larger than the cache."""
    if len(state) <= self._saved.maxsize:
      self._saved[client_id] = state
