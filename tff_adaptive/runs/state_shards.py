"""Client states at checkpoints, over SQLite files by a hash of the client's id.

A shard holds, of each of its clients, the newest state that each checkpoint counts, with its round,
as `state_file` does; the checkpoint in the run's state file says which round counts, and has the
digest of all shards. A shard is written when a checkpoint is made: by one process, in one
transaction, which a token admits that each start of the run draws anew.
"""

import contextlib
import json
import os
import pathlib
import re
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs import staged_states, state_file
from tff_adaptive.runs.errors import SaveError, StateError

FOLDER, MARKER, STAGED = 'client_states', 'shards.json', 'staged'
NUM_SHARDS = 16
_MOST_SHARDS = 4096  # More are damage: each is a file.
_FORMAT = 'tff-adaptive-shards-1'
_SECONDS = 60.0  # For another process to let go of a shard.
_TABLES = """
CREATE TABLE IF NOT EXISTS run (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS client_state (
    id TEXT NOT NULL, round INTEGER NOT NULL, checksum BLOB NOT NULL, state BLOB NOT NULL);
CREATE UNIQUE INDEX IF NOT EXISTS client_versions ON client_state (id, round, checksum)
"""


class Fold(NamedTuple):
  """The states of a checkpoint that belong to a shard.

  Attributes:
    folder: The folder of the shards.
    shard: Which.
    token: Of this start of the run.
    size: Bytes of a state.
    rows: Client id, round, and where the state is.
    last: The round of the checkpoint before.
    kept: Rounds of the checkpoints before whose states stay.
  """

  folder: str
  shard: int
  token: str
  size: int
  rows: list[tuple[str, int, staged_states.Place]]
  last: int
  kept: list[int]


class Change(NamedTuple):
  """How a fold changes what a checkpoint counts.

  Attributes:
    clients: Clients that had no state.
    digest: The new states' checksums, less those that they replace.
  """

  clients: int
  digest: int


def create(folder: str) -> None:
  """Makes the folder and the marker by which it is recognised; shards are made when needed."""
  os.makedirs(os.path.join(folder, STAGED), exist_ok=True)
  _write_marker(folder, NUM_SHARDS)


def read_marker(folder: str) -> str:
  """Returns the content of a folder's marker; '' if this process cannot read it."""
  try:
    with open(os.path.join(folder, MARKER), encoding='utf-8', errors='replace') as file:
      return file.read()
  except OSError:
    return ''


def number_of_shards(folder: str) -> int:
  """Returns how many shards a folder has; StateError if its marker is damaged."""
  try:
    marker = json.loads(read_marker(folder))
    found, shards = marker['format'], marker['shards']
    if found == _FORMAT and isinstance(shards, int) and 1 <= shards <= _MOST_SHARDS:
      return shards
    found = f'{found} with {shards} shards'
  except (ValueError, KeyError, TypeError, RecursionError) as error:
    found = f'unknown ({error})'
  raise StateError(
    f'{folder}: the format of the client states is {found}, this version reads {_FORMAT}: a damaged'
    f' {MARKER} can be removed, it is made again of the shards; otherwise start in a new folder.'
  )


def restore_marker(folder: str) -> bool:
  """Makes a marker that was lost again, of the shards; they are as many as there are files.

  Args:
    folder: The folder of the shards.

  Returns:
    Whether there was something to do: no marker, but shards.

  Raises:
    StateError: If shards are missing too, or cannot be read; nothing is written then.
    SaveError: If the marker cannot be written.
  """
  names = os.listdir(folder) if os.path.isdir(folder) else []
  found = {int(m[1]) for m in map(re.compile(r'shard-(\d+)\.sqlite').fullmatch, names) if m}
  if not found or read_marker(folder).strip():
    return False
  missing = next((n for n in range(max(found)) if n not in found), None)
  if missing is not None:
    raise StateError(
      f'{folder}: {MARKER} is lost, and so is {os.path.basename(_path(folder, missing))}: bring'
      ' back a copy of the folder, or start in a new one.'
    )
  for shard in found:
    with _reading(folder, shard) as file:
      for (client_id,) in file.execute('SELECT DISTINCT id FROM client_state'):
        if shard_of(client_id, len(found)) != shard:
          raise StateError(
            f'{folder}: {MARKER} is lost, and so are shards: client {client_id!r} of'
            f' {os.path.basename(_path(folder, shard))} is in another one of {len(found)}. Bring'
            ' back a copy of the folder, or start in a new one.'
          )
  try:
    _write_marker(folder, len(found))
  except OSError as error:
    raise SaveError(f'{folder} cannot be written: {error.strerror}.') from error
  return True


def shard_of(client_id: str, shards: int) -> int:
  """The shard that a client belongs to, on every machine."""
  return zlib.crc32(client_id.encode()) % shards


def fold(work: Fold) -> Change:
  """Takes a checkpoint's states into a shard; done again, it changes nothing.

  Raises:
    StateError: If a state is damaged, or another start of the run has taken over.
    SaveError: If the shard cannot be written.
  """
  made = {client_id: number for client_id, number, _ in work.rows}
  places = [(client_id, place) for client_id, _, place in work.rows]
  clients, digest = 0, 0
  with _writing(work.folder, work.shard) as file:
    if _token(file) != work.token:
      raise StateError(
        f'{work.folder}: another process has gone on with this run; this one cannot save.'
      )
    staged = os.path.join(work.folder, STAGED)
    for client_id, state in staged_states.read(staged, work.size, places):
      checksum = state_file.client_checksum(client_id, made[client_id], state)
      # Later ones are of this very checkpoint, from a call that was lost.
      file.execute('DELETE FROM client_state WHERE id = ? AND round > ?', (client_id, work.last))
      versions = file.execute(
        'SELECT round, CAST(checksum AS BLOB), rowid FROM client_state WHERE id = ? ORDER BY round',
        (client_id,),
      ).fetchall()
      clients += not versions
      digest += int.from_bytes(checksum, 'big')
      digest -= int.from_bytes(versions[-1][1], 'big') if versions else 0
      values = (client_id, made[client_id], checksum, state)
      file.execute('INSERT INTO client_state VALUES (?, ?, ?, ?)', values)
      rounds = [version for version, _, _ in versions]
      counted = {max((r for r in rounds if r <= c), default=None) for c in work.kept}
      file.executemany(
        'DELETE FROM client_state WHERE rowid = ?',
        [(row,) for version, _, row in versions if version not in counted],
      )
  return Change(clients, digest)


def totals(folder: str, round_number: int) -> tuple[int, int]:
  """Returns how many client states a checkpoint counts, and the sum of their checksums."""
  clients, digest = 0, 0
  for shard in range(number_of_shards(folder)):
    with _reading(folder, shard) as file:
      for _, _, checksum in file.execute(
        'SELECT id, MAX(round), CAST(checksum AS BLOB) FROM client_state WHERE round <= ?'
        ' GROUP BY id',
        (round_number,),
      ):
        clients, digest = clients + 1, digest + int.from_bytes(checksum, 'big')
  return clients, digest


def take_over(folder: str, token: str, round_number: int) -> None:
  """Makes a token the valid one, and forgets states of later rounds than a checkpoint's.

  All shards are there afterwards: on a network's file system one that is made later might not be
  seen by who has looked for it before.
  """
  for shard in range(number_of_shards(folder)):
    with _writing(folder, shard) as file:
      file.execute('INSERT OR REPLACE INTO run VALUES (?, ?)', ('token', token))
      file.execute('DELETE FROM client_state WHERE round > ?', (round_number,))
  staged = os.path.join(folder, STAGED)
  try:
    os.makedirs(staged, exist_ok=True)
    staged_states.clear(staged)
  except FileExistsError:
    raise StateError(f'{staged}: is not a folder: remove it, the run makes one.') from None
  except OSError as error:
    raise SaveError(f'{staged}: cannot be emptied: {error}.') from error


class Reader:
  """Reads states of a checkpoint; its connections stay open."""

  def __init__(self, folder: str):
    """Opens nothing yet.

    Args:
      folder: The folder of the shards.
    """
    self._folder, self._shards = folder, number_of_shards(folder)
    self._files: dict[int, sqlite3.Connection] = {}

  def read(self, client_id: str, round_number: int) -> bytes | None:
    """Returns a client's state at a checkpoint.

    Args:
      client_id: The client.
      round_number: The checkpoint's round.

    Returns:
      The state; None if the client had not taken part.

    Raises:
      StateError: If it is damaged.
    """
    shard = shard_of(client_id, self._shards)
    if round_number < 0:
      return None
    with _described(self._folder, shard, 'read', StateError):
      if shard not in self._files:
        self._files[shard] = _connect(_path(self._folder, shard), 'rw')
      rows = (
        self._files[shard]
        .execute(
          'SELECT round, checksum, CAST(state AS BLOB) FROM client_state'
          ' WHERE id = ? AND round <= ? ORDER BY round DESC LIMIT 1',
          (client_id, round_number),
        )
        .fetchall()
      )
    if not rows:
      return None
    made, checksum, state = rows[0]
    if state_file.client_checksum(client_id, made, state) != checksum:
      raise StateError(
        f'{_path(self._folder, shard)}: the state of client {client_id!r} is damaged: its checksum'
        ' differs. Bring back a copy of the file, or start in a new folder.'
      )
    return state

  def close(self) -> None:
    """Closes the connections."""
    for file in self._files.values():
      file.close()
    self._files.clear()


def group(client_ids: Sequence[str], shards: int) -> dict[int, list[int]]:
  """Positions of clients by their shard."""
  found: dict[int, list[int]] = {}
  for position, client_id in enumerate(client_ids):
    found.setdefault(shard_of(client_id, shards), []).append(position)
  return found


def _write_marker(folder: str, shards: int) -> None:
  content = {'format': _FORMAT, 'shards': shards, 'id': os.urandom(8).hex()}
  atomic_files.write_json(os.path.join(folder, MARKER), content)


def _path(folder: str, shard: int) -> str:
  return os.path.join(folder, f'shard-{shard:02d}.sqlite')


def _connect(path: str, mode: str) -> sqlite3.Connection:
  # Not 'ro', for reading either: what a writer that was killed has left is rolled back first.
  uri = f'{pathlib.Path(path).resolve().as_uri()}?mode={mode}'
  return sqlite3.connect(
    uri, uri=True, timeout=_SECONDS, isolation_level=None, check_same_thread=False
  )


def _token(file: sqlite3.Connection) -> str:
  found = file.execute("SELECT value FROM run WHERE key = 'token'").fetchall()
  return found[0][0] if found else ''


@contextlib.contextmanager
def _reading(folder: str, shard: int) -> Iterator[sqlite3.Connection]:
  with (
    _described(folder, shard, 'read', StateError),
    contextlib.closing(_connect(_path(folder, shard), 'rw')) as file,
  ):
    yield file


@contextlib.contextmanager
def _writing(folder: str, shard: int) -> Iterator[sqlite3.Connection]:
  """A transaction on a shard, which is on the disk when it ends."""
  with (
    _described(folder, shard, 'written', SaveError),
    contextlib.closing(_connect(_path(folder, shard), 'rwc')) as file,
  ):
    for pragma in ('page_size=16384', 'synchronous=FULL', 'secure_delete=OFF'):
      file.execute(f'PRAGMA {pragma}')
    file.execute('BEGIN IMMEDIATE')
    for statement in _TABLES.split(';'):
      file.execute(statement)
    yield file
    file.execute('COMMIT')


@contextlib.contextmanager
def _described(folder: str, shard: int, how: str, kind: type[Exception]) -> Iterator[None]:
  try:
    yield
  except (sqlite3.Error, OSError, OverflowError) as error:
    reason = str(error)
    if 'locked' in reason:
      reason += (
        f' for {_SECONDS:.0f} s: a process that is stopped or hangs, on this node or another, holds'
        ' it. Kill it (kill -9), and give the same command again: the run goes on from its last'
        ' checkpoint'
      )
    raise kind(f'{_path(folder, shard)}: cannot be {how}: {reason}.') from error
