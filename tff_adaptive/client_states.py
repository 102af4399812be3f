"""What a run must remember between rounds: the server's state and every client's.

One SQLite file holds the round number, the server state, the run's metadata and the state
of each client that ever took part, by client id. A checkpoint is one transaction over all
of them, so a process killed at any instant leaves the file as of its last checkpoint:
SQLite rolls back what was not committed when the file is opened again.
"""

import collections
import contextlib
import dataclasses
import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
import tree

from tff_adaptive import packing
from tff_adaptive.growth import GrowthPlan, plan
from tff_adaptive.packing import StateError, num_bytes

__all__ = ['Checkpoint', 'ClientStateStore', 'GrowthPlan', 'StateError', 'num_bytes', 'plan']

_FORMAT = 'tff-adaptive-1'
_TABLES = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS server (
    position INTEGER PRIMARY KEY, dtype TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS client (id TEXT PRIMARY KEY, state BLOB NOT NULL);
"""
_ENTRY_BYTES = 256  # What the cache's bookkeeping costs for a client, beside its state.


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """What one checkpoint holds beside the clients' states.

  Attributes:
    round_number: rounds finished.
    server_state: the server state, in the structure that `restore` was given.
    metadata: what the run said about itself.
  """

  round_number: int
  server_state: Any
  metadata: Mapping[str, Any]


class ClientStateStore:
  """Client states by client id, with a bounded cache, checkpointed with the server state.

  A client never seen has `initial_state` and costs nothing. States put since the last
  `commit` are in the cache or, once evicted, in the file's open transaction; either way
  they are lost together if the process ends before the next `commit`. After the file could
  not be written the store is of no more use: it drops what was not committed, and every call
  raises the same error.

  Use it from one thread only, and from one process at a time (the file is locked).
  """

  def __init__(self, path: Optional[str], initial_state: Any, *, cache_bytes: Optional[int] = None):
    """Opens the file at `path`, or makes it.

    Args:
      path: the SQLite file; its folder must exist. None keeps everything in memory and
        saves nothing.
      initial_state: one client's state before its first round: a structure (nested
        tuples, lists, mappings) of arrays or tensors of fixed shape, `()` for none.
      cache_bytes: the most bytes of client states to keep in memory; None for no limit.

    Raises:
      StateError: if the file is damaged, in use by another process, or holds states of
        another structure.
      ValueError: if `cache_bytes` is negative, or given without a path.
    """
    if cache_bytes is not None and cache_bytes < 0:
      raise ValueError(f'cache_bytes is {cache_bytes}; it must be at least 0, or None.')
    if cache_bytes is not None and path is None:
      raise ValueError('A store without a file cannot evict: give a path, or no cache_bytes.')
    self._packer = packing.Packer(initial_state)
    self._path = path
    self._cache_bytes = cache_bytes
    self._cache: collections.OrderedDict[str, bytes] = collections.OrderedDict()
    self._dirty: set = set()
    self._used = 0
    self._failure: Optional[StateError] = None
    self._file = None if path is None else self._open(path)

  def __enter__(self) -> 'ClientStateStore':
    return self

  def __exit__(self, *unused_exception) -> None:
    self.close()

  @property
  def state_bytes(self) -> int:
    """Bytes of one client's state."""
    return self._packer.size

  def get(self, client_ids: Sequence[str]) -> list:
    """Returns the states of `client_ids`, in their order.

    Args:
      client_ids: ids, as strings.

    Returns:
      A list of structures like `initial_state`, of read-only NumPy arrays.
    """
    self._check()
    return [self._packer.unpack(self._find(client_id)) for client_id in client_ids]

  def put(self, client_ids: Sequence[str], states: Sequence[Any]) -> None:
    """Replaces the states of `client_ids`.

    Args:
      client_ids: ids, as strings, each at most once.
      states: one structure for each, with `initial_state`'s shapes and dtypes.

    Raises:
      StateError: if a state has another structure, shape or dtype; nothing is replaced.
      ValueError: if the two lists differ in length or an id occurs twice.
    """
    if len(client_ids) != len(states):
      raise ValueError(f'{len(client_ids)} client ids but {len(states)} states.')
    if len(set(client_ids)) != len(client_ids):
      raise ValueError('A client id occurs twice among those to store.')
    self._check()
    packed = [self._packer.pack(state) for state in states]
    for client_id, blob in zip(client_ids, packed):
      self._dirty.add(client_id)
      self._remember(client_id, blob)

  def commit(
    self, round_number: int, server_state: Any, metadata: Optional[Mapping[str, Any]] = None
  ) -> None:
    """Checkpoints the server state and all client states in one transaction.

    Args:
      round_number: rounds finished.
      server_state: a structure of arrays, tensors or Python numbers.
      metadata: anything JSON can hold.

    Raises:
      StateError: if the file cannot be written (a full disk, for one); it then still
        holds the checkpoint before.
    """
    if self._file is None:
      self._dirty.clear()
      return
    leaves = [packing.checked_leaf(leaf) for leaf in tree.flatten(server_state)]
    rows = [
      (i, leaf.dtype.str, json.dumps(leaf.shape), leaf.tobytes()) for i, leaf in enumerate(leaves)
    ]
    values = {'round': round_number, 'metadata': dict(metadata or {})}
    self._check()
    try:
      for client_id in sorted(self._dirty):
        self._write(client_id, self._cache[client_id])
      self._file.execute('DELETE FROM server')
      self._file.executemany('INSERT INTO server VALUES (?, ?, ?, ?)', rows)
      self._file.executemany(
        'INSERT OR REPLACE INTO run VALUES (?, ?)',
        [(key, json.dumps(value)) for key, value in values.items()],
      )
      self._file.execute('COMMIT')
      self._file.execute('BEGIN IMMEDIATE')
    except (sqlite3.Error, OverflowError) as error:
      raise self._fail(error) from error
    self._dirty.clear()

  def restore(self, server_state_like: Any) -> Optional[Checkpoint]:
    """Returns the last checkpoint, or None if there is none.

    Args:
      server_state_like: a server state of the same process (its initial one), which gives
        the structure; its shapes and dtypes must be the stored ones, but a dimension of 0 may
        have grown.

    Returns:
      A `Checkpoint`, or None.

    Raises:
      StateError: if the stored server state is of another structure, shape or dtype, or
        `server_state_like` has leaves that could not be stored.
    """
    if self._file is None:
      return None
    like = tree.flatten(server_state_like)
    for leaf in like:  # Now, and not only at the first checkpoint.
      packing.checked_leaf(leaf)
    values = dict(self._query('SELECT key, value FROM run'))
    if 'round' not in values:
      return None
    rows = self._query('SELECT dtype, shape, data FROM server ORDER BY position')
    stored = [
      np.frombuffer(data, dtype=np.dtype(dtype)).reshape(json.loads(shape))
      for dtype, shape, data in rows
    ]
    differing = packing.difference(stored, like)
    if differing:
      raise StateError(
        f'{self._path}: the server state stored there is of another algorithm or model'
        f' ({differing}). Start in a new folder.'
      )
    leaves = [packing.as_kind(leaf, example) for leaf, example in zip(stored, like)]
    return Checkpoint(
      round_number=json.loads(values['round']),
      server_state=tree.unflatten_as(server_state_like, leaves),
      metadata=json.loads(values['metadata']),
    )

  def close(self) -> None:
    """Closes the file; what was not committed is dropped."""
    if self._file is not None:
      self._file.close()
      self._file = None
    self._cache.clear()
    self._dirty.clear()
    self._used = 0

  def _find(self, client_id: str) -> Optional[bytes]:
    if client_id in self._cache:
      self._cache.move_to_end(client_id)
      return self._cache[client_id]
    if self._file is None:
      return None
    rows = self._query('SELECT state FROM client WHERE id = ?', client_id)
    if not rows:
      return None
    if len(rows[0][0]) != self._packer.size:
      raise StateError(f'{self._path}: the state of client {client_id!r} is damaged.')
    self._remember(client_id, rows[0][0])
    return rows[0][0]

  def _remember(self, client_id: str, blob: bytes) -> None:
    if client_id not in self._cache:
      self._used += len(blob) + _ENTRY_BYTES
    self._cache[client_id] = blob
    self._cache.move_to_end(client_id)
    while self._cache_bytes is not None and self._used > self._cache_bytes and self._cache:
      evicted_id, evicted = self._cache.popitem(last=False)
      self._used -= len(evicted) + _ENTRY_BYTES
      if evicted_id in self._dirty:
        try:
          self._write(evicted_id, evicted)
        except sqlite3.Error as error:
          raise self._fail(error) from error
        self._dirty.discard(evicted_id)

  def _write(self, client_id: str, blob: bytes) -> None:
    self._file.execute('INSERT OR REPLACE INTO client VALUES (?, ?)', (client_id, blob))

  def _query(self, statement: str, *values) -> list:
    try:
      return self._file.execute(statement, values).fetchall()
    except sqlite3.Error as error:
      raise self._error('cannot be read', error) from error

  def _open(self, path: str) -> sqlite3.Connection:
    file = None
    try:
      file = sqlite3.connect(path, timeout=1.0, isolation_level=None)
      # One writer, held to the end; a rollback journal, so that one file is the whole
      # state at rest; and every commit on the disk before it returns.
      for pragma in ('page_size=16384', 'locking_mode=EXCLUSIVE', 'synchronous=FULL'):
        file.execute(f'PRAGMA {pragma}')
      file.execute('BEGIN IMMEDIATE')
      for statement in _TABLES.split(';'):
        file.execute(statement)
      # The format and the states' signature are committed at once: an empty state file of
      # another algorithm is told apart too.
      file.execute('INSERT OR IGNORE INTO run VALUES (?, ?)', ('format', _FORMAT))
      file.execute('INSERT OR IGNORE INTO run VALUES (?, ?)', ('client', self._packer.signature))
      stored = dict(file.execute('SELECT key, value FROM run').fetchall())
      file.execute('COMMIT')
      file.execute('BEGIN IMMEDIATE')
    except sqlite3.Error as error:
      if file is not None:
        file.close()
      raise self._error('cannot be opened', error) from error
    for key, wanted in (('format', _FORMAT), ('client', self._packer.signature)):
      if stored[key] != wanted:
        file.close()
        raise StateError(
          f"{path}: its {key}'s signature is {stored[key]}, but this run needs {wanted}: the"
          ' file is of another algorithm, model or version. Start in a new folder.'
        )
    return file

  def _check(self) -> None:
    if self._failure is not None:
      raise self._failure

  def _fail(self, error: Exception) -> StateError:
    """Gives up: of a failed transaction SQLite may have kept nothing, or a part."""
    self._failure = self._error('cannot be written', error)
    self._cache.clear()
    self._dirty.clear()
    self._used = 0
    with contextlib.suppress(sqlite3.Error):  # It may have rolled back by itself.
      self._file.execute('ROLLBACK')
    return self._failure

  def _error(self, what: str, error: Exception) -> StateError:
    text = str(error)
    if 'locked' in text:
      reason = 'another process is using it; wait for that run to end'
    elif 'malformed' in text or 'not a database' in text:
      reason = f'it is damaged ({text}); start in a new folder'
    elif 'full' in text:
      reason = 'the disk is full; free some space and give the same command again'
    else:
      reason = text
    return StateError(f'{self._path}: {what}: {reason}.')
