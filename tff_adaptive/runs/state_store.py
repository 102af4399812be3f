"""What a run must remember between rounds: the server's state and every client's."""

import collections
import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import tree

from tff_adaptive.runs import serialization, state_file
from tff_adaptive.runs.capacity import GrowthPlan, plan
from tff_adaptive.runs.errors import SaveError, StateError
from tff_adaptive.runs.serialization import num_bytes

__all__ = [
  'Checkpoint',
  'ClientStateStore',
  'GrowthPlan',
  'SaveError',
  'StateError',
  'num_bytes',
  'plan',
]

_ENTRY_BYTES = 256  # What the cache's bookkeeping costs for a client, next to its state.


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """What one checkpoint holds next to the clients' states.

  Attributes:
    round_number: Rounds finished.
    server_state: The server state, in the structure that `restore` was given.
    metadata: What the run said about itself.
    is_checked: Whether it was written with checksums; those of earlier versions were not.
  """

  round_number: int
  server_state: Any
  metadata: Mapping[str, Any]
  is_checked: bool = True


class ClientStateStore:
  """Client states by client id, with a bounded cache, checkpointed with the server state.

  A client never seen has `initial_state` and costs nothing. States put since the last
  `commit` are in the cache or, once evicted, in the file's open transaction; either way
  they are lost together if the process ends before the next `commit`. After the file could
  not be written the store is of no more use: every call raises the same error.

  Use it from one thread only, and from one process at a time (the file is locked).
  """

  def __init__(
    self,
    path: str | None,
    initial_state: Any,
    *,
    cache_bytes: int | None = None,
    keep_checkpoints: int = 2,
    file: state_file.StateFile | None = None,
  ):
    """Opens the file at `path`, or makes it.

    Args:
      path: The SQLite file; its folder must exist. None keeps everything in memory and
        saves nothing.
      initial_state: One client's state before its first round: a structure (nested
        tuples, lists, mappings) of arrays or tensors of fixed shape, `()` for none.
      cache_bytes: The most bytes of client states to keep in memory; None for no limit.
      keep_checkpoints: How many checkpoints the file keeps, >= 1.
      file: The file, if `open_file` has opened it, with its own `keep_checkpoints`; it is closed
        with the store.

    Raises:
      StateError: If the file is damaged, in use by another process, or holds states of
        another structure.
      ValueError: If a number is out of its range, or `cache_bytes` is given without a path.
    """
    if cache_bytes is not None and cache_bytes < 0:
      raise ValueError(f'cache_bytes is {cache_bytes}; it must be at least 0, or None.')
    if cache_bytes is not None and path is None:
      raise ValueError('A store without a file cannot evict: give a path, or no cache_bytes.')
    if keep_checkpoints < 1:
      raise ValueError(f'keep_checkpoints is {keep_checkpoints}; it must be at least 1.')
    self._packer = serialization.Packer(initial_state)
    self._path = path
    self._cache_bytes = cache_bytes
    self._cache: collections.OrderedDict[str, bytes] = collections.OrderedDict()
    self._dirty: dict[str, int] = {}  # Client id -> the round of its state in the cache.
    self._used = 0
    self._last_round = -1
    self._file = file
    if path is not None:
      self._file = file or open_file(path, initial_state, keep_checkpoints)
      self._last_round = max(self._file.rounds, default=-1)

  def __enter__(self) -> 'ClientStateStore':
    return self

  def __exit__(self, *unused_exception: object) -> None:
    self.close()

  @property
  def state_bytes(self) -> int:
    """Bytes of one client's state."""
    return self._packer.size

  @property
  def is_migrated(self) -> bool:
    """Whether the file was found in the format of an earlier version."""
    return self._file is not None and self._file.is_migrated

  def get(self, client_ids: Sequence[str]) -> list[Any]:
    """Returns the states of `client_ids`, in their order.

    Args:
      client_ids: Ids, as strings.

    Returns:
      A list of structures like `initial_state`, of read-only NumPy arrays.

    Raises:
      StateError: If a state is damaged.
    """
    self._check()
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
      self._dirty[client_id] = made
      self._remember(client_id, blob)

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
    if self._file is not None:
      self._check_round(round_number)
      arrays = [serialization.checked_leaf(leaf) for leaf in tree.flatten(server_state)]
      leaves = [state_file.Leaf(a.dtype.str, json.dumps(a.shape), a.tobytes()) for a in arrays]
      self._check()
      self._write_clients(self._file)
      self._file.commit(round_number, json.dumps(dict(metadata or {})), leaves)
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
    if self._file is None:
      return None
    like = tree.flatten(server_state_like)
    for leaf in like:  # Now, and not only at the first checkpoint.
      serialization.checked_leaf(leaf)
    rounds = self._file.rounds
    if which == 'previous' and len(rounds) < 2:
      found = f'one checkpoint only, of round {rounds[0]}' if rounds else 'no checkpoint'
      raise StateError(f'{self._path} holds {found}: there is no previous one to resume from.')
    if not rounds:
      return None
    round_number = rounds[-2 if which == 'previous' else -1]
    metadata, leaves = self._file.read_checkpoint(round_number)
    try:
      stored = [
        np.frombuffer(data, dtype=np.dtype(dtype)).reshape(json.loads(shape))
        for dtype, shape, data in leaves
      ]
    except (ValueError, TypeError) as error:  # Where there are no checksums to find it.
      raise StateError(f'{self._path}: the server state is damaged ({error}).') from None
    differing = serialization.difference(stored, like)
    if differing:
      raise StateError(
        f'{self._path}: the server state stored there is of another algorithm or model'
        f' ({differing}). Start in a new folder.'
      )
    self._begin_from(self._file, round_number)
    arrays = [serialization.as_kind(leaf, example) for leaf, example in zip(stored, like)]
    return Checkpoint(
      round_number=round_number,
      server_state=tree.unflatten_as(server_state_like, arrays),
      metadata=json.loads(metadata),
      is_checked=not self._file.is_migrated,
    )

  def forget_later(self, round_number: int) -> None:
    """Drops checkpoints and client states of later rounds than a checkpoint's, for good.

    Args:
      round_number: The checkpoint's, which `restore` has returned.

    Raises:
      SaveError: If the file cannot be written.
    """
    if self._file is not None:
      if round_number < self._last_round:
        self._file.drop_after(round_number)
      self._file.remove_dead_journal()
    self._last_round = round_number

  def close(self) -> None:
    """Closes the file; what was not committed is dropped."""
    if self._file is not None:
      self._file.close()
      self._file = None
    self._cache.clear()
    self._dirty.clear()
    self._used = 0

  def _write_clients(self, file: state_file.StateFile) -> None:
    """Writes what was put since the last checkpoint."""
    for client_id in sorted(self._dirty):
      file.write_client(client_id, self._dirty[client_id], self._cache[client_id])

  def _begin_from(self, file: state_file.StateFile, round_number: int) -> None:
    """Takes a checkpoint's client states as the present ones, if they are those it counts."""
    file.begin_from(round_number)

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
    self._check()
    return made

  def _check(self) -> None:
    if self._file is not None:
      self._file.check()

  def _check_round(self, round_number: int) -> None:
    if self._file is not None and round_number <= self._last_round:
      raise ValueError(
        f'round_number is {round_number}; it must be more than {self._last_round}, the last'
        " checkpoint's."
      )

  def _find(self, client_id: str) -> bytes | None:
    if client_id in self._cache:
      self._cache.move_to_end(client_id)
      return self._cache[client_id]
    blob = None if self._file is None else self._file.read_client(client_id)
    if blob is None:
      return None
    if len(blob) != self._packer.size:  # Of a file that came without checksums.
      raise StateError(f'{self._path}: the state of client {client_id!r} is damaged.')
    self._remember(client_id, blob)
    return blob

  def _remember(self, client_id: str, blob: bytes) -> None:
    if client_id not in self._cache:
      self._used += len(blob) + _ENTRY_BYTES
    self._cache[client_id] = blob
    self._cache.move_to_end(client_id)
    while self._cache_bytes is not None and self._used > self._cache_bytes and self._cache:
      evicted_id, evicted = self._cache.popitem(last=False)
      self._used -= len(evicted) + _ENTRY_BYTES
      if self._file is not None and evicted_id in self._dirty:
        self._file.write_client(evicted_id, self._dirty.pop(evicted_id), evicted)


def open_file(path: str, initial_state: Any, keep_checkpoints: int) -> state_file.StateFile:
  """Opens the file of a `ClientStateStore`, or makes it: other processes are kept out from now on.

  Args:
    path: As for `ClientStateStore`.
    initial_state: As for `ClientStateStore`.
    keep_checkpoints: As for `ClientStateStore`.

  Raises:
    StateError: As `ClientStateStore` does.
  """
  signature = serialization.Packer(initial_state).signature
  return state_file.StateFile(path, signature, keep_checkpoints)
