"""SQLite files of versions of client states: a run's state file is one, each of its shards another.

A file holds, of each client, the newest state that each checkpoint counts, with the round in which
it was made: the state of a client at a checkpoint is its newest one that is not of a later round.
Every state has a checksum, over its client's id, its round and its bytes.
"""

import contextlib
import hashlib
import pathlib
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tff_adaptive.runs.errors import SaveError, StateError

FORMAT = 'tff-adaptive-3'
_CHECKSUM_BYTES = 16
_SETTINGS = 'CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL)'
# One writer's commits are on the disk before they return. What is deleted need not be overwritten
# with zeros, as some builds of SQLite do. A file of somebody else may not call functions.
_PRAGMAS = ('trusted_schema=OFF', 'page_size=16384', 'synchronous=FULL', 'secure_delete=OFF')


class Count(NamedTuple):
  """How many client states there are, or how many more.

  Attributes:
    clients: Clients that have a state.
    digest: The sum of the states' checksums, so that a round changes it by what it changed.
  """

  clients: int = 0
  digest: int = 0

  def plus(self, other: 'Count') -> 'Count':
    """Returns the sum of both."""
    return Count(self.clients + other.clients, self.digest + other.digest)

  @property
  def text(self) -> str:
    """The digest as it is stored."""
    return f'{self.digest % 2 ** (8 * _CHECKSUM_BYTES):x}'


class StateDatabase:
  """An open file. After a failure to write it is of no more use: every call raises the same error.

  Attributes:
    path: The file.
    settings: What the file says of itself; empty before anything was written.
    tables: The statements that make the tables.
    seconds: For another process to let go of the file.
    locked: What an error says if it does not.
  """

  tables: tuple[str, ...] = (
    _SETTINGS,
    'CREATE TABLE client_state (id TEXT NOT NULL, round INTEGER NOT NULL, checksum BLOB NOT NULL,'
    ' state BLOB NOT NULL)',
    'CREATE UNIQUE INDEX client_versions ON client_state (id, round, checksum)',
  )
  seconds = 1.0
  locked = 'another process is using it; wait for that run to end'

  def __init__(self, path: str, *, is_writer: bool = False, is_held: bool = False):
    """Opens the file.

    Args:
      path: The file.
      is_writer: Makes the file if it is not there, and begins a transaction.
      is_held: Keeps other processes out until the file is closed.

    Raises:
      StateError: If the file cannot be opened, is in use, of another format or not of a run.
    """
    self.path = path
    self._failure: SaveError | None = None
    with self._border(StateError, 'opened'):
      self._file = self._connect('rwc' if is_writer else 'rw')
    try:
      with self._border(StateError, 'opened'):
        for pragma in (*_PRAGMAS, *(['locking_mode=EXCLUSIVE'] if is_held else [])):
          self._file.execute(f'PRAGMA {pragma}')
        if is_writer:
          self._file.execute('BEGIN IMMEDIATE')
        self.settings = self._read_settings()
      if is_writer and not self.settings:
        for statement in self.tables:
          self.write(statement)
        self.set('format', FORMAT)
      self._prepare()
    except BaseException:
      self.close()
      raise

  def check(self) -> None:
    """Raises the error of an earlier failure to write, if there was one."""
    if self._failure is not None:
      raise self._failure

  def close(self) -> None:
    """Closes the file; what was not committed is dropped."""
    self._file.close()

  def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Returns what a statement reads; StateError if it cannot be read."""
    with self._border(StateError, 'read'):
      return self._file.execute(statement, values).fetchall()

  def write(self, statement: str, values: Iterable[Sequence[Any]] = ((),)) -> None:
    """Executes a statement with each of some values; SaveError if it cannot be written."""
    with self._border(SaveError, 'written'):
      for value in values:
        self._file.execute(statement, value)

  def commit(self) -> None:
    """Ends the transaction: what was written is on the disk afterwards."""
    self.write('COMMIT')

  def set(self, key: str, value: str) -> None:
    """Writes what the file says of itself."""
    self.write('INSERT OR REPLACE INTO run VALUES (?, ?)', [(key, value)])
    self.settings[key] = value

  def read_client(self, client_id: str, round_number: int = 2**62) -> bytes | None:
    """Returns a client's state at a round; by default the newest one.

    Args:
      client_id: The client.
      round_number: The round.

    Returns:
      The state; None if the client had none.

    Raises:
      StateError: If it is damaged.
    """
    rows = self.rows(
      'SELECT round, checksum, CAST(state AS BLOB) FROM client_state'
      ' WHERE id = ? AND round <= ? ORDER BY round DESC LIMIT 1',
      client_id,
      round_number,
    )
    if not rows:
      return None
    made, checksum, state = rows[0]
    if client_checksum(client_id, made, state) != checksum:
      raise StateError(
        f'{self.path}: the state of client {client_id!r} is damaged: its checksum differs.'
        f' {self._way_out(made)}'
      )
    return state

  def write_client(
    self, client_id: str, round_number: int, state: bytes, kept: Sequence[int]
  ) -> Count:
    """Adds a client's newest state, and removes those that no checkpoint counts.

    Args:
      client_id: The client.
      round_number: The round in which the state was made.
      state: The state.
      kept: Rounds of the checkpoints that stay.

    Returns:
      What there is more of.
    """
    checksum = client_checksum(client_id, round_number, state)
    versions = self.rows(
      'SELECT round, CAST(checksum AS BLOB), rowid FROM client_state WHERE id = ? ORDER BY round',
      client_id,
    )
    # First the new one, then the deletions: of pages that earlier commits have freed, unlike
    # those freed now, SQLite need not copy the content to its journal.
    new = (client_id, round_number, checksum, state)
    self.write('INSERT OR REPLACE INTO client_state VALUES (?, ?, ?, ?)', [new])
    made = [version for version, _, _ in versions]
    counted = {max((v for v in made if v <= c), default=None) for c in kept}
    outdated = [(rowid,) for version, _, rowid in versions if version not in counted]
    self.write('DELETE FROM client_state WHERE rowid = ?', outdated)
    before = versions[-1][1] if versions else b''
    return Count(not versions, int.from_bytes(checksum, 'big') - int.from_bytes(before, 'big'))

  def count(self, round_number: int) -> Count:
    """Returns how many client states a checkpoint counts here, and their digest."""
    clients, digest = 0, 0
    with self._border(StateError, 'read'):  # Row by row: there may be millions.
      for _, _, checksum in self._file.execute(
        'SELECT id, MAX(round), CAST(checksum AS BLOB) FROM client_state WHERE round <= ?'
        ' GROUP BY id',
        (round_number,),
      ):
        clients, digest = clients + 1, digest + int.from_bytes(checksum, 'big')
    return Count(clients, digest)

  def _connect(self, mode: str) -> sqlite3.Connection:
    # Not 'ro', for reading either: what a writer that was killed has left is rolled back first.
    uri = f'{pathlib.Path(self.path).resolve().as_uri()}?mode={mode}'
    return sqlite3.connect(
      uri, uri=True, timeout=self.seconds, isolation_level=None, check_same_thread=False
    )

  def _read_settings(self) -> dict[str, str]:
    """Returns the file's settings, if it has the tables of this format and nothing else."""
    schema = self._file.execute('SELECT sql FROM sqlite_master WHERE sql IS NOT NULL')
    found = [sql for (sql,) in schema]
    settings = {}
    if _SETTINGS in found:
      settings = dict(self._file.execute('SELECT key, value FROM run').fetchall())
    name = settings.get('format', FORMAT)
    if name != FORMAT:
      raise StateError(
        f'{self.path} has the format {name}, this version reads {FORMAT}; the last that reads'
        ' earlier formats is commit e20f8c7. Start in a new folder.'
      )
    if sorted(found) != sorted(self.tables) and found:
      raise StateError(
        f'{self.path} has other tables than the states of a run: it is damaged, or of another'
        ' program. Bring back a copy of the file, or start in a new folder.'
      )
    return settings

  def _prepare(self) -> None:
    """Reads what is needed of an open file, and refuses what does not belong to the run."""

  def _way_out(self, made: int) -> str:
    """What helps if a state of a round is damaged."""
    del made
    return 'Bring back a copy of the file, or start in a new folder.'

  def _reason(self, error: Exception) -> str:
    text = str(error)
    if 'locked' in text:
      return self.locked
    if 'malformed' in text or 'not a database' in text or 'decode' in text:
      return f'it is damaged ({text}); bring back a copy of it, or start in a new folder'
    if 'full' in text:
      return 'the disk is full; free some space and give the same command again'
    return text

  @contextlib.contextmanager
  def _border(self, kind: type[StateError], how: str) -> Iterator[None]:
    """Where what SQLite or the system refuses becomes one line; a failure to write is final."""
    self.check()
    try:
      yield
    except (sqlite3.Error, UnicodeError, OverflowError, OSError) as error:
      failure = kind(f'{self.path}: cannot be {how}: {self._reason(error)}.')
      if isinstance(failure, SaveError):  # SQLite may have kept nothing, or a part.
        self._failure = failure
        with contextlib.suppress(sqlite3.Error):  # It may have rolled back by itself.
          self._file.execute('ROLLBACK')
      raise failure from error


def client_checksum(client_id: str, round_number: int, state: bytes) -> bytes:
  """Returns the checksum of a client state."""
  return checksum_of([client_id.encode(), str(round_number).encode(), state])


def checksum_of(parts: Iterable[bytes]) -> bytes:
  """Returns the checksum of some parts, one after the other."""
  total = hashlib.sha256()
  for part in parts:
    total.update(len(part).to_bytes(8, 'big'))  # Or bytes could move from one part to the next.
    total.update(part)
  return total.digest()[:_CHECKSUM_BYTES]
