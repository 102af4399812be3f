"""What a run must remember between rounds: the server's state and every client's."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from tff_adaptive.runs import serialization
from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_file import MEMORY, Count, StateFile


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """The contents of a checkpoint besides the clients' states.

  Attributes:
    round_number: Rounds finished.
    server_state: The server state, in the structure that `restore` was given.
    metadata: What the run said about itself.
  """

  round_number: int
  server_state: Any
  metadata: Mapping[str, Any]


class ClientStateStore:
  """Client states by client id, checkpointed with the server state.

  A client never seen has `initial_state` and costs nothing. States put since the last `commit` are
  in memory or in the file's open transaction; either way they are lost together if the process ends
  before the next `commit`. After the file could not be written the store is of no more use: every
  call raises the same error.

  Use it from one thread only, and from one process at a time (the file is locked).

  Attributes:
    notes: Lines for the user.
  """

  def __init__(
    self,
    path: str | StateFile | None,
    initial_state: Any,
    *,
    in_memory: bool = True,
    keep_checkpoints: int = 2,
  ):
    """Opens the file at `path`, or makes it.

    Args:
      path: The SQLite file; its folder must exist. Or the open file, with its own
        `keep_checkpoints`; the store closes it. None keeps everything in memory and saves nothing.
      initial_state: One client's state before its first round: a structure (nested
        tuples, lists, mappings) of arrays or tensors of fixed shape, `()` for none.
      in_memory: Whether client states are kept in memory, once read or put; otherwise SQLite keeps
        the pages used last.
      keep_checkpoints: How many checkpoints the file keeps, >= 1.

    Raises:
      StateError: If the file is damaged, in use by another process, or holds states of
        another structure.
      ValueError: If a number is out of its range.
    """
    if keep_checkpoints < 1:
      raise ValueError(f'keep_checkpoints is {keep_checkpoints}; it must be at least 1.')
    self.notes: list[str] = []
    self._packer = serialization.Packer(initial_state)
    self._in_memory = in_memory
    self._known: dict[str, bytes] = {}  # Client id -> its state, in memory.
    self._dirty: dict[str, int] = {}  # Client id -> the round of its state that only memory has.
    if not isinstance(path, StateFile):
      signature = self._packer.signature
      path = StateFile(path or MEMORY, signature=signature, keep_checkpoints=keep_checkpoints)
    self._file = path
    self._last_round = max(self._file.rounds, default=-1)

  def __enter__(self) -> 'ClientStateStore':
    return self

  def __exit__(self, *unused_exception: object) -> None:
    self.close()

  @property
  def state_bytes(self) -> int:
    """Bytes of one client's state."""
    return self._packer.size

  def get(self, client_ids: Sequence[str]) -> list[Any]:
    """Returns the states of `client_ids`, in their order.

    Args:
      client_ids: Ids, as strings.

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
      states: One structure for each, with `initial_state`'s shapes and dtypes.
      round_number: The round in which they were made, after that of the last checkpoint; default:
        the one after it.

    Raises:
      StateError: If a state has another structure, shape or dtype; nothing is replaced.
      ValueError: If the two lists differ in length, an id occurs twice, or the round is none after
        the last checkpoint's.
    """
    made = self._check_put(client_ids, states, round_number)
    packed = [self._packer.pack(state) for state in states]
    for client_id, blob in zip(client_ids, packed):
      if self._in_memory:
        self._dirty[client_id], self._known[client_id] = made, blob
      else:
        self._file.put_client(client_id, made, blob)

  def commit(
    self, round_number: int, server_state: Any, metadata: Mapping[str, Any] | None = None
  ) -> None:
    """Checkpoints the server state and all client states in one transaction.

    Args:
      round_number: Rounds finished; more than at the last checkpoint.
      server_state: A structure of arrays, tensors or Python numbers.
      metadata: Anything JSON can hold.

    Raises:
      SaveError: If the file cannot be written (a full disk, for one); it then still
        holds the checkpoint before.
      ValueError: If the round is none after the last checkpoint's.
    """
    self._check_round(round_number)
    leaves = serialization.named_leaves(server_state)
    self._file.check()
    self._write_clients()
    self._file.save(round_number, metadata or {}, leaves)
    self._last_round = round_number
    self._dirty.clear()

  def restore(
    self, server_state_like: Any, which: Literal['latest', 'previous'] = 'latest'
  ) -> Checkpoint | None:
    """Returns a checkpoint, or None if there is none; the file is not changed.

    To go on from a previous one, call `forget_later` before anything else.

    Args:
      server_state_like: A server state of the same process (its initial one), which gives
        the structure; its shapes and dtypes must be the stored ones, but a dimension of 0 may
        have grown.
      which: Which of the checkpoints.

    Returns:
      A `Checkpoint`, or None.

    Raises:
      StateError: If the checkpoint is damaged, its server state is of another structure, shape or
        dtype, there is no previous one, or `server_state_like` has leaves that could not be stored.
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
    """Drops checkpoints and client states of later rounds than a checkpoint's, for good.

    Args:
      round_number: The checkpoint's, which `restore` has returned.

    Raises:
      SaveError: If the file cannot be written.
    """
    self._file.drop_after(round_number)
    self._last_round = round_number

  def close(self) -> None:
    """Closes the file; what was not committed is dropped."""
    self._file.close()
    self._known.clear()
    self._dirty.clear()

  def _write_clients(self) -> None:
    """Writes what was put since the last checkpoint."""
    for client_id in sorted(self._dirty):
      self._file.put_client(client_id, self._dirty[client_id], self._known[client_id])

  def _elsewhere(self, round_number: int) -> Count:
    """The client states of a checkpoint that are not in the file."""
    del round_number
    return Count()

  def _check_put(
    self, client_ids: Sequence[str], states: Sequence[Any], round_number: int | None
  ) -> int:
    """Returns the round in which states were made, if they can be put."""
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
    if blob is not None and self._in_memory:
      self._known[client_id] = blob
    return blob
