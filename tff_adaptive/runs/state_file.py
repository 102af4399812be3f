"""The SQLite file of a run's states: checkpoints of the server state, versions of client states.

Of each client it holds the newest state that each checkpoint counts, with the round in which it was
made: the state of a client at a checkpoint is its newest one that is not of a later round. A
checkpoint is one transaction over everything, so a process killed at any instant leaves the file
as of its last checkpoint: SQLite rolls back what was not committed when the file is opened again.

Every client state has a checksum, over its client's id, its round and its bytes; every checkpoint
has one over its round, its metadata, the server state, and the number and the digest of the client
states that it counts. The digest is the sum of their checksums, so that a round changes it by what
the round's clients changed.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tff_adaptive.runs import state_migration
from tff_adaptive.runs.errors import SaveError, StateError

STATE_FILE = 'state.sqlite'  # Its name in a run's folder of checkpoints.

FORMAT = 'tff-adaptive-2'
_TABLES = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS checkpoint (
    round INTEGER PRIMARY KEY, metadata TEXT NOT NULL, clients INTEGER NOT NULL,
    digest TEXT NOT NULL, checksum BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS server_state (
    round INTEGER NOT NULL, position INTEGER NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL,
    data BLOB NOT NULL, PRIMARY KEY (round, position));
CREATE TABLE IF NOT EXISTS client_state (
    id TEXT NOT NULL, round INTEGER NOT NULL, checksum BLOB NOT NULL, state BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS client_versions ON client_state (id, round, checksum)
"""
_CHECKSUM_BYTES = 16
_MOVED = 'it was removed, renamed or replaced while the run was going on'


class Leaf(NamedTuple):
  """An array of a server state, as it is stored."""

  dtype: str
  shape: str
  data: bytes


class StateFile:
  """One open state file, held by this process alone; use it from one thread.

  What is written is lost together unless `commit` follows. After a failure to write the file is of
  no more use: every call raises the same error.
  """

  def __init__(self, path: str, signature: str, keep_checkpoints: int):
    """Opens the file, or makes it.

    Args:
      path: The file; its folder must exist.
      signature: Says how a client state is laid out.
      keep_checkpoints: How many checkpoints to keep, >= 1.

    Raises:
      StateError: If the file is damaged, in use, or of another signature.
    """
    self._path, self._keep = path, keep_checkpoints
    self._failure: SaveError | None = None
    self.is_migrated = False
    self._file = self._connect()
    try:
      self._prepare(signature)
      self._place = os.stat(path)
      self.rounds = [r for (r,) in self._rows('SELECT round FROM checkpoint ORDER BY round')]
    except BaseException:
      self._file.close()
      raise
    self._clients, self._digest = 0, 0

  def check(self) -> None:
    """Raises the error of an earlier failure to write, if there was one."""
    if self._failure is not None:
      raise self._failure

  def begin_from(self, round_number: int, elsewhere: tuple[int, int] | None = None) -> None:
    """Takes the client states that a checkpoint counts as the present ones.

    Args:
      round_number: The checkpoint's.
      elsewhere: How many client states there are, and the sum of their checksums, if they are not
        in this file.

    Raises:
      StateError: If they are not those that the checkpoint was made of.
    """
    expected = self._rows('SELECT clients, digest FROM checkpoint WHERE round = ?', round_number)
    clients, digest = elsewhere or (0, 0)
    with self._undamaged(round_number), self._reading('read'):
      for _, _, checksum in self._file.execute(
        'SELECT id, MAX(round), checksum FROM client_state WHERE round <= ? GROUP BY id',
        (round_number,),
      ):
        clients, digest = clients + 1, digest + int.from_bytes(checksum, 'big')
      if (clients, _digest_text(digest)) != expected[0]:
        raise ValueError('client states are missing, or are not those that it was made of')
    self._clients, self._digest = clients, digest

  def count_elsewhere(self, clients: int, digest: int) -> None:
    """Counts client states that are not in this file.

    Args:
      clients: How many more there are.
      digest: By what the sum of their checksums has changed.
    """
    self._clients, self._digest = self._clients + clients, self._digest + digest

  def read_client(self, client_id: str) -> bytes | None:
    """Returns a client's present state, or None if it has none; StateError if it is damaged."""
    rows = self._rows(
      'SELECT round, checksum, state FROM client_state WHERE id = ? ORDER BY round DESC LIMIT 1',
      client_id,
    )
    if not rows:
      return None
    made, checksum, state = rows[0]
    if client_checksum(client_id, made, state) != checksum:
      raise StateError(
        f'{self._path}: the state of client {client_id!r} is damaged: its checksum differs.'
        f' {self._way_out(self.rounds[-1] if self.rounds else 0, made)}'
      )
    return state

  def write_client(self, client_id: str, round_number: int, state: bytes) -> None:
    """Makes a state, of a round after the last checkpoint, its client's present one."""
    checksum = client_checksum(client_id, round_number, state)
    with self._writing():
      versions = self._file.execute(
        'SELECT round, checksum, rowid FROM client_state WHERE id = ? ORDER BY round', (client_id,)
      ).fetchall()
      if versions:
        self._digest -= int.from_bytes(versions[-1][1], 'big')
      else:
        self._clients += 1
      self._digest += int.from_bytes(checksum, 'big')
      # First the new one, then the deletions: of pages that earlier commits have freed, unlike
      # those freed now, SQLite need not copy the content to its journal.
      values = (client_id, round_number, checksum, state)
      self._file.execute('INSERT OR REPLACE INTO client_state VALUES (?, ?, ?, ?)', values)
      made = [version for version, _, _ in versions]
      counted = {max((v for v in made if v <= c), default=None) for c in self._kept()}
      self._file.executemany(
        'DELETE FROM client_state WHERE rowid = ?',
        [(rowid,) for version, _, rowid in versions if version not in counted],
      )

  def commit(self, round_number: int, metadata: str, leaves: Sequence[Leaf]) -> None:
    """Makes a checkpoint, of a round after the last one, and drops the oldest.

    Raises:
      SaveError: If it cannot be written; the file then still holds the checkpoint before.
    """
    digest = _digest_text(self._digest)
    checksum = checkpoint_checksum(round_number, metadata, self._clients, digest, leaves)
    oldest = min(self._kept(), default=round_number)
    with self._writing():
      self._check_place()
      self._file.executemany(
        'INSERT INTO server_state VALUES (?, ?, ?, ?, ?)',
        [(round_number, i, *leaf) for i, leaf in enumerate(leaves)],
      )
      values = (round_number, metadata, self._clients, digest, checksum)
      self._file.execute('INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?)', values)
      for table in ('server_state', 'checkpoint'):
        self._file.execute(f'DELETE FROM {table} WHERE round < ?', (oldest,))
      self._commit()
      self._check_place()
    self.rounds = [r for r in self.rounds if r >= oldest] + [round_number]

  def read_checkpoint(self, round_number: int) -> tuple[str, list[Leaf]]:
    """Returns a checkpoint's metadata and the arrays of its server state.

    Raises:
      StateError: If they are damaged.
    """
    rows = self._rows(
      'SELECT metadata, clients, digest, checksum FROM checkpoint WHERE round = ?', round_number
    )
    leaves = self._rows(
      'SELECT dtype, shape, data FROM server_state WHERE round = ? ORDER BY position', round_number
    )
    with self._undamaged(round_number):
      metadata, clients, digest, checksum = rows[0]
      arrays = [Leaf(*leaf) for leaf in leaves]
      if checkpoint_checksum(round_number, metadata, clients, digest, arrays) != checksum:
        raise ValueError('its checksum differs')
    return metadata, arrays

  def drop_after(self, round_number: int) -> None:
    """Forgets the checkpoints and client states of later rounds than a checkpoint's, for good."""
    with self._writing():
      for table in ('client_state', 'server_state', 'checkpoint'):
        self._file.execute(f'DELETE FROM {table} WHERE round > ?', (round_number,))
      self._commit()
    self.rounds = [r for r in self.rounds if r <= round_number]

  def remove_dead_journal(self) -> None:
    """Has SQLite remove the journal that a killed process left behind: it does with its own."""
    if os.path.exists(f'{self._path}-journal'):
      with self._writing():
        self._file.execute('PRAGMA user_version = 0')
        self._commit()

  def close(self) -> None:
    """Closes the file; what was not committed is dropped."""
    self._file.close()

  def _kept(self) -> list[int]:
    """Rounds of the checkpoints that stay when the next one is made."""
    return self.rounds[1 - self._keep :] if self._keep > 1 else []

  def _connect(self) -> sqlite3.Connection:
    with self._reading('opened'):
      return sqlite3.connect(self._path, timeout=1.0, isolation_level=None)

  def _prepare(self, signature: str) -> None:
    """Sets the file up and leaves it with an open transaction."""
    with self._reading('opened'):
      # One writer, held to the end; a rollback journal, so that one file is the whole
      # state at rest; and every commit on the disk before it returns. What is deleted need not
      # be overwritten with zeros, as some builds of SQLite do.
      for pragma in (
        'page_size=16384',
        'locking_mode=EXCLUSIVE',
        'synchronous=FULL',
        'secure_delete=OFF',
      ):
        self._file.execute(f'PRAGMA {pragma}')
      self._file.execute('BEGIN IMMEDIATE')
      stored = state_migration.settings(self._file)
      self.is_migrated = stored.get('format') == state_migration.FORMAT
    wanted = {'format': FORMAT, 'client': signature}
    for key in wanted:
      found = stored.get(key, wanted[key])
      if found != wanted[key] and not (key == 'format' and self.is_migrated):
        raise StateError(
          f"{self._path}: its {key}'s signature is {found}, but this run needs {wanted[key]}: the"
          ' file is of another algorithm, model or version. Start in a new folder.'
        )
    if stored.get('format') == FORMAT:
      return  # Nothing is written before the run is accepted.
    with self._reading('opened'):
      for statement in _TABLES.split(';'):
        self._file.execute(statement)
      if self.is_migrated:  # Committed with the next checkpoint.
        try:
          state_migration.migrate(self._file, client_checksum, self._add_checkpoint)
        except (LookupError, ValueError, TypeError) as error:
          raise StateError(f'{self._path} is damaged ({error!r}): start in a new folder.') from None
      self._file.executemany('INSERT OR REPLACE INTO run VALUES (?, ?)', list(wanted.items()))
      if not self.is_migrated:
        # At once: an empty state file of another algorithm is recognised too.
        self._commit()

  def _add_checkpoint(
    self, round_number: int, metadata: str, clients: int, digest: int, leaves: Sequence[Any]
  ) -> None:
    """Writes the checkpoint's row for server arrays that were stored without one."""
    arrays, text = [Leaf(*leaf) for leaf in leaves], _digest_text(digest)
    checksum = checkpoint_checksum(round_number, metadata, clients, text, arrays)
    values = (round_number, metadata, clients, text, checksum)
    self._file.execute('INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?)', values)

  def _commit(self) -> None:
    self._file.execute('COMMIT')
    self._file.execute('BEGIN IMMEDIATE')

  def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    with self._reading('read'):
      return self._file.execute(statement, values).fetchall()

  def _check_place(self) -> None:
    """Raises FileNotFoundError unless the open file is the one that the path names."""
    if not self._is_in_place():
      raise FileNotFoundError(self._path)

  def _is_in_place(self) -> bool:
    try:
      return os.path.samestat(os.stat(self._path), self._place)
    except OSError:
      return False

  @contextlib.contextmanager
  def _undamaged(self, round_number: int) -> Iterator[None]:
    """A context in which a checkpoint's rows are looked at: what does not fit is damage."""
    try:
      yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
      raise StateError(
        f'{self._path}: the checkpoint of round {round_number} is damaged ({error}).'
        f' {self._way_out(round_number, round_number)}'
      ) from None

  def _way_out(self, present: int, damaged: int) -> str:
    """What helps when of the checkpoint of round `present` a part of round `damaged` is broken."""
    earlier = [r for r in self.rounds if r < min(present, damaged)]
    previous = [r for r in self.rounds if r < present]
    if previous and previous[-1:] == earlier[-1:]:
      return (
        f'Resume from the previous checkpoint, of round {previous[-1]}, bring back a copy of the'
        ' file, or start in a new folder.'
      )
    return 'Bring back a copy of the file, or start in a new folder.'

  @contextlib.contextmanager
  def _reading(self, how: str) -> Iterator[None]:
    try:
      yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
      raise StateError(f'{self._path}: cannot be {how}: {_reason(error)}.') from error

  @contextlib.contextmanager
  def _writing(self) -> Iterator[None]:
    """A context of writing. A failure is final: of it SQLite may have kept nothing, or a part."""
    self.check()
    try:
      yield
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, OSError) as error:
      reason = _reason(error) if self._is_in_place() else _MOVED
      self._failure = SaveError(f'{self._path}: cannot be written: {reason}.')
      with contextlib.suppress(sqlite3.Error):  # It may have rolled back by itself.
        self._file.execute('ROLLBACK')
      raise self._failure from error


def has_checkpoints(path: str) -> bool:
  """Whether there is a state file with a checkpoint, or one that cannot be asked now.

  Args:
    path: The file; it is not changed.
  """
  if not os.path.exists(path) or not os.path.getsize(path):
    return False
  uri = f'{pathlib.Path(path).resolve().as_uri()}?mode=rw'  # See `saved_checkpoint`.
  try:
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=1)) as file:
      return bool(file.execute('SELECT 1 FROM checkpoint LIMIT 1').fetchall())
  except sqlite3.Error:  # In use, damaged or of an earlier version.
    return True


def client_checksum(client_id: str, round_number: int, state: bytes) -> bytes:
  """Returns the checksum of a client state."""
  return _checksum([client_id.encode(), str(round_number).encode(), state])


def checkpoint_checksum(
  round_number: int, metadata: str, clients: int, digest: str, leaves: Sequence[Leaf]
) -> bytes:
  """Returns the checksum of a checkpoint."""
  parts = [json.dumps([round_number, metadata, clients, digest, len(leaves)]).encode()]
  for leaf in leaves:
    parts += [leaf.dtype.encode(), leaf.shape.encode(), leaf.data]
  return _checksum(parts)


def _checksum(parts: Sequence[bytes]) -> bytes:
  total = hashlib.sha256()
  for part in parts:
    total.update(len(part).to_bytes(8, 'big'))  # Or bytes could move from one part to the next.
    total.update(part)
  return total.digest()[:_CHECKSUM_BYTES]


def _digest_text(total: int) -> str:
  return f'{total % 2 ** (8 * _CHECKSUM_BYTES):x}'


def _reason(error: Exception) -> str:
  text = str(error)
  if 'locked' in text:
    return 'another process is using it; wait for that run to end'
  if 'malformed' in text or 'not a database' in text or 'decode' in text:
    return f'it is damaged ({text}); bring back a copy of it, or start in a new folder'
  if 'full' in text:
    return 'the disk is full; free some space and give the same command again'
  return text
