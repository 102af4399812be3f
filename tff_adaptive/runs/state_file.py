"""SQLite files of a run's states: checkpoints of the server state, versions of client states.

A run has one such file. It has a version of a client's state for each checkpoint that needs it,
with the round in which the version was made. A checkpoint needs the newest version that is not from
a later round.

A checkpoint is one transaction. If the process is killed at any time, the file stays as of its last
checkpoint, because SQLite rolls back uncommitted changes when the file is opened again. Each client
state has a checksum over its client's id, its round and its bytes. A checkpoint has a checksum over
its round, its metadata, the server state's named leaves, and the `Count` of the client states.
"""

import contextlib
import json
import os
import pathlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive._utils import value_text
from tff_adaptive.runs import errors, state_tables, watched_file
from tff_adaptive.runs.checksums import Count, checkpoint_checksum, client_checksum
from tff_adaptive.runs.errors import SaveError, StateError
from tff_adaptive.runs.state_path import path as path

MEMORY = ':memory:'  # SQLite's name for a database in memory.
KEPT = 2  # The number of checkpoints that stay, in case the latest is damaged.
# A commit returns after the data are on the disk (FULL). Deleted data are not overwritten by zeros,
# as some builds of SQLite do. A file from elsewhere may not call functions.
_PRAGMAS = ('trusted_schema=OFF', 'page_size=16384', 'synchronous=FULL', 'secure_delete=OFF')
# For a run's file: the cache holds the pages changed since the last commit.
_OF_RUN = ('locking_mode=EXCLUSIVE', f'cache_size=-{256 << 10}')  # KiB.


class StateFile:
  """An open SQLite file with a run's checkpoints and client states.

  After a failed write every call raises the same error.

  Attributes:
    path: The path of the file.
    settings: The settings in the file, texts by name; empty before anything was written.
    rounds: The rounds that have a checkpoint, in ascending order.
    seconds: How many seconds to wait for another process to release the file.
    locked: The reason that the error gives if that process does not release the file.
  """

  seconds = 1.0
  locked = 'another process is using it; wait for that run to end'

  def __init__(
    self,
    path: str,
    *,
    is_writer: bool = False,
    signature: str | None = None,
    ignores_lock: bool = False,
  ):
    """Opens the file.

    Args:
      path: The file, or `MEMORY` for a database in memory.
      is_writer: Whether to create the file if it does not exist, and to begin a transaction.
      signature: The layout of a client state (`Packer.signature`). If it is given, the file is
        opened for a run: for writing, and locked against other processes until it is closed.
      ignores_lock: Whether to read what is on the disk now, though this process has the file open.

    Raises:
      StateError: If the file cannot be opened, is damaged or in use, or has another signature.
    """
    self.path = path
    self._is_held = signature is not None
    is_writer = is_writer or self._is_held
    self._counted = Count()
    self._failure: SaveError | None = None
    self._watched: watched_file.WatchedFile | None = None
    with self._border(StateError, 'opened'):
      errors.check_is_file(path)
      # Also readers need 'rw', because SQLite first rolls back what a killed writer has left.
      mode = 'rwc' if is_writer else 'rw'
      if ignores_lock:
        mode = 'ro&immutable=1'
      uri = path
      if path != MEMORY:
        uri = f'{pathlib.Path(path).resolve().as_uri()}?mode={mode}'
      self._file = sqlite3.connect(
        uri,
        uri=True,
        timeout=self.seconds,
        # Transactions begin and end by statements of this class, not by Python's own rules.
        isolation_level=None,
        check_same_thread=False,
      )
    try:
      with self._border(StateError, 'opened'):
        pragmas: tuple[str, ...] = _PRAGMAS
        if self._is_held:
          pragmas += _OF_RUN
        for pragma in pragmas:
          self._file.execute(f'PRAGMA {pragma}')
        if is_writer:
          self._file.execute('BEGIN IMMEDIATE')
        self.settings = self._read_settings()
      # In the transaction that began above: a process that is killed here leaves an empty file.
      if is_writer and not self.settings:
        for statement in state_tables.TABLES:
          self.write(statement)
        self.set('format', state_tables.FORMAT)
      self.rounds: list[int] = []
      if self.settings:
        self.rounds = [r for (r,) in self.rows('SELECT round FROM checkpoint ORDER BY round')]
      if signature is not None:
        if path != MEMORY:
          self._watched = watched_file.WatchedFile(path)
        self._check_signature(signature)
    except BaseException:
      self.close()
      raise

  def check(self) -> None:
    """Raises the error of an earlier failed write, if there was one."""
    if self._failure is not None:
      raise self._failure

  def close(self) -> None:
    """Closes the file; uncommitted changes are dropped."""
    self._file.close()

  def rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Returns the rows of a SELECT statement. Raises StateError if the file cannot be read."""
    with self._border(StateError, 'read'):
      return self._file.execute(statement, values).fetchall()

  def write(self, statement: str, values: Iterable[Sequence[Any]] = ((),)) -> None:
    """Executes a statement once for each tuple of values. Raises SaveError if this fails."""
    with self._border(SaveError, 'written'):
      for value in values:
        self._file.execute(statement, value)

  def commit(self) -> None:
    """Commits the transaction to the disk. The file of a run then begins the next transaction.

    Raises SaveError if the file cannot be written, or the file of a run was moved, replaced or cut
    short.
    """
    statements = ['COMMIT']
    if self._is_held:
      statements.append('BEGIN IMMEDIATE')
    with self._border(SaveError, 'written'):
      for statement in statements:
        if self._is_lost_or_cut():
          raise FileNotFoundError(self.path)
        self._file.execute(statement)
    if self._watched is not None:
      self._watched.note_size()

  def verify(self) -> None:
    """Reads the last checkpoint back from the disk.

    Raises SaveError if it is not there as it was written, for example because another program has
    written to the file. SQLite would not notice, because it has the file's pages in memory.
    """
    if self._watched is None or not self.rounds:
      return
    last = self.rounds[-1]
    self.check()
    if self._is_lost_or_cut():
      with self._border(SaveError, 'read back'):
        raise FileNotFoundError(self.path)
    try:
      with contextlib.closing(StateFile(self.path, ignores_lock=True)) as on_disk:
        on_disk.read_checkpoint(last)
        if on_disk.count(last).text != on_disk.digest_of(last):
          raise StateError(f'{self.path}: client states of round {last} are missing.')
    except StateError as error:
      raise SaveError(
        f'The last checkpoint is not on the disk as it was saved: {error} The file was overwritten'
        ' while the run was going on.'
      ) from None

  def digest_of(self, round_number: int) -> str:
    """Returns the digest of the client states that a checkpoint records; see `Count.text`."""
    ((digest,),) = self.rows('SELECT digest FROM checkpoint WHERE round = ?', round_number)
    return str(digest)

  def set(self, key: str, value: str) -> None:
    """Writes a setting of the file."""
    self.write('INSERT OR REPLACE INTO run VALUES (?, ?)', [(key, value)])
    self.settings[key] = value

  def read_client(self, client_id: str, round_number: int = 2**62) -> bytes | None:
    """Returns a client's newest state made up to a round; None if no state is that early.

    The state is as `Packer.pack` made it. Raises StateError if the state is damaged.
    """
    rows = self.rows(
      # Cast, because SQLite's columns take any type: text in a damaged file fails the checksum.
      'SELECT round, checksum, CAST(state AS BLOB) FROM client_state'
      ' WHERE id = ? AND round <= ? ORDER BY round DESC LIMIT 1',
      client_id,
      round_number,
    )
    if not rows:
      return None
    version, checksum, state = rows[0]
    if client_checksum(client_id, version, state) != checksum:
      raise StateError(
        f'{self.path}: the state of client {value_text.in_text(client_id)} is damaged: its checksum'
        f' differs. {self._way_out(version)}'
      )
    return state

  def write_client(
    self, client_id: str, round_number: int, state: bytes, kept: Sequence[int]
  ) -> Count:
    """Adds a client's new state, and deletes older ones that the checkpoints `kept` do not need.

    `kept` are the rounds of these checkpoints. Returns the change of the file's `Count`.
    """
    checksum = client_checksum(client_id, round_number, state)
    versions = self.rows(
      'SELECT round, CAST(checksum AS BLOB), rowid FROM client_state WHERE id = ? AND round <= ?'
      ' ORDER BY round',
      client_id,
      round_number,
    )
    # The new state is written first, so that it takes pages that earlier commits have freed: SQLite
    # need not copy those to its journal, as it must with pages that this transaction frees.
    new = (client_id, round_number, checksum, state)
    self.write('INSERT OR REPLACE INTO client_state VALUES (?, ?, ?, ?)', [new])
    needed = set()  # Of each checkpoint that stays, the newest version up to its round.
    for checkpoint in kept:
      earlier = [version for version, _, _ in versions if version <= checkpoint]
      if earlier:
        needed.add(max(earlier))
    outdated = [(rowid,) for version, _, rowid in versions if version not in needed]
    self.write('DELETE FROM client_state WHERE rowid = ?', outdated)
    added = int.from_bytes(checksum, 'big')
    # In the next checkpoint's digest the new state takes the place of the one before.
    if not versions:
      return Count(1, added)
    _, checksum_before, _ = versions[-1]
    return Count(0, added - int.from_bytes(checksum_before, 'big'))

  def count(self, round_number: int) -> Count:
    """Returns the `Count` of the states in this file that are a client's newest up to a round."""
    clients = 0
    digest = 0
    with self._border(StateError, 'read'):  # Row by row: there may be millions.
      for _, _, checksum in self._file.execute(
        'SELECT id, MAX(round), CAST(checksum AS BLOB) FROM client_state WHERE round <= ?'
        ' GROUP BY id',
        (round_number,),
      ):
        clients += 1
        digest += int.from_bytes(checksum, 'big')
    return Count(clients, digest)

  def read_checkpoint(self, round_number: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Returns `save`'s metadata and leaves; raises StateError if they are missing or damaged."""
    rows = self.rows(
      'SELECT metadata, clients, digest, checksum FROM checkpoint WHERE round = ?', round_number
    )
    leaves = self.rows(
      'SELECT name, dtype, shape, data FROM server_state WHERE round = ? ORDER BY position',
      round_number,
    )
    with self._undamaged(round_number):
      metadata, clients, digest, checksum = rows[0]
      if checkpoint_checksum(round_number, metadata, clients, digest, leaves) != checksum:
        raise ValueError('its checksum differs')
      return json.loads(metadata), {
        name: np.frombuffer(data, np.dtype(dtype)).reshape(json.loads(shape))
        for name, dtype, shape, data in leaves
      }

  def begin_from(self, round_number: int) -> None:
    """Continues from a checkpoint's client states.

    Raises StateError if the states are not those with which the checkpoint was made.
    """
    expected = self.rows('SELECT clients, digest FROM checkpoint WHERE round = ?', round_number)
    count = self.count(round_number)
    with self._undamaged(round_number):
      if [(count.clients, count.text)] != expected:
        raise ValueError('client states are missing, or are not those that it was made of')
    self._counted = count

  def add(self, more: Count) -> None:
    """Adds `more`, a change of the client states, to the next checkpoint's `Count`."""
    self._counted = self._counted.plus(more)

  def put_client(self, client_id: str, round_number: int, state: bytes) -> None:
    """Writes a client's new state, which must be from a round after the last checkpoint."""
    self.add(self.write_client(client_id, round_number, state, self._kept()))

  def save(
    self, round_number: int, metadata: Mapping[str, Any], leaves: Mapping[str, np.ndarray]
  ) -> None:
    """Commits a checkpoint of a round after the last one. Only the last `KEPT` checkpoints stay.

    Raises SaveError if the file cannot be written. It then still holds the previous checkpoint.
    """
    rows = [(n, a.dtype.str, json.dumps(a.shape), a.tobytes()) for n, a in leaves.items()]
    text = json.dumps(dict(metadata))
    count = self._counted
    checksum = checkpoint_checksum(round_number, text, count.clients, count.text, rows)
    # The new checkpoint and the `KEPT` - 1 before it stay.
    oldest = min(self._kept(), default=round_number)
    self.write(
      'INSERT INTO server_state VALUES (?, ?, ?, ?, ?, ?)',
      [(round_number, position, *row) for position, row in enumerate(rows)],
    )
    values = (round_number, text, count.clients, count.text, checksum)
    self.write('INSERT INTO checkpoint VALUES (?, ?, ?, ?, ?)', [values])
    for table in ('server_state', 'checkpoint'):
      self.write(f'DELETE FROM {table} WHERE round < ?', [(oldest,)])
    self.commit()
    self.rounds = [r for r in self.rounds if r >= oldest] + [round_number]

  def drop_after(self, round_number: int) -> None:
    """Permanently deletes the checkpoints and client states of all rounds after the given one.

    This also removes SQLite's journal file if a killed process has left one.
    """
    if self.rounds[-1:] > [round_number] or os.path.exists(f'{self.path}-journal'):
      for table in ('client_state', 'server_state', 'checkpoint'):
        self.write(f'DELETE FROM {table} WHERE round > ?', [(round_number,)])
      # A write, though it changes nothing: without one the commit would leave the journal.
      self.write('PRAGMA user_version = 0')
      self.commit()
      self.rounds = [r for r in self.rounds if r <= round_number]

  def _kept(self) -> list[int]:
    """Returns the rounds of the checkpoints that stay when the next one is made."""
    return self.rounds[1 - KEPT :]

  def _read_settings(self) -> dict[str, str]:
    """Returns the file's settings. Raises StateError if it has other tables than this format."""
    # SQLite's own indices have no SQL text.
    schema = self._file.execute('SELECT sql FROM sqlite_master WHERE sql IS NOT NULL')
    tables = [sql for (sql,) in schema]
    settings = {}
    if state_tables.SETTINGS in tables:
      settings = dict(self._file.execute('SELECT key, value FROM run').fetchall())
    name = settings.get('format', state_tables.FORMAT)
    if name != state_tables.FORMAT:
      raise StateError(
        f'{self.path} has the format {name}, this version reads {state_tables.FORMAT}; use the'
        ' version of tff-adaptive that wrote it, or start in a new folder.'
      )
    if tables and sorted(tables) != sorted(state_tables.TABLES):
      raise StateError(
        f'{self.path} has other tables than the states of a run: it is damaged, or of another'
        ' program. Restore a copy of the file, or start in a new folder.'
      )
    return settings

  def _check_signature(self, signature: str) -> None:
    if self.settings.get('clients') == 'shards':  # Of release 0.2.0.
      raise StateError(
        f'{self.path}: its client states are in shards (client_state_store=shards), which this'
        ' version does not read; resume the run with tff-adaptive 0.2.0, or start in a new folder.'
      )
    stored = self.settings.get('client')
    if stored is None:  # Committed now, to refuse other algorithms before a checkpoint too.
      self.set('client', signature)
      self.commit()
    elif stored != signature:
      raise StateError(
        f'{self.path}: its client states are {stored}, but this run needs {signature}: the file is'
        ' of another algorithm or model. Start in a new folder.'
      )

  def _is_lost_or_cut(self) -> bool:
    """Returns whether somebody removed, replaced or cut the file; SQLite never shortens it."""
    return self._watched is not None and not self._watched.is_intact()

  def _way_out(self, made: int) -> str:
    """Returns the advice for a damaged file; `made` is the round in which the bad part was made."""
    # The previous checkpoint helps only if it does not need the bad part.
    if self.rounds[:-1] and self.rounds[-2] < made:
      return (
        f'Resume from the previous checkpoint, of round {self.rounds[-2]}, restore a copy of the'
        ' file, or start in a new folder.'
      )
    return 'Restore a copy of the file, or start in a new folder.'

  def _reason(self, error: Exception) -> str:
    text = str(error)
    if self._watched is not None and not self._watched.is_in_place():
      return 'it was removed, renamed or replaced while the run was going on'
    if self._is_lost_or_cut():
      return (
        'it was cut short while the run was going on, so that its checkpoints are lost; restore a'
        ' copy of it, or start in a new folder'
      )
    if 'locked' in text:
      return self.locked
    if 'malformed' in text or 'not a database' in text or 'decode' in text:
      return f'it is damaged ({text}); restore a copy of it, or start in a new folder'
    if 'full' in text:
      return 'the disk is full; free some space and give the same command again'
    return text

  @contextlib.contextmanager
  def _border(self, kind: type[StateError], how: str) -> Iterator[None]:
    """A context that turns errors of SQLite and the system into one-line ones; keeps SaveErrors."""
    self.check()
    try:
      yield
    except (sqlite3.Error, UnicodeError, OverflowError, OSError) as error:
      failure = kind(f'{self.path} cannot be {how}: {self._reason(error)}.')
      if isinstance(failure, SaveError):  # SQLite may have kept nothing, or a part.
        self._failure = failure
        with contextlib.suppress(sqlite3.Error):  # It may have rolled back by itself.
          self._file.execute('ROLLBACK')
      raise failure from error

  @contextlib.contextmanager
  def _undamaged(self, round_number: int) -> Iterator[None]:
    """Returns a context for reading a checkpoint, in which rows that do not fit are an error."""
    try:
      yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
      raise StateError(
        f'{self.path}: the checkpoint of round {round_number} is damaged ({error}).'
        f' {self._way_out(round_number)}'
      ) from None


def read_last(path: str) -> tuple[int, dict[str, np.ndarray]]:
  """Reads the last checkpoint of a state file, which no run may have open.

  Returns:
    The number of rounds done, and the server state's leaves by name, in the state's order.

  Raises:
    StateError: If there is no checkpoint, or it is damaged or in use.
  """
  if not os.path.isfile(path):
    raise StateError(f'there is no checkpoint {path}: the run has not saved one, or it was moved.')
  with contextlib.closing(StateFile(path)) as file:
    if not file.rounds:
      raise StateError(f'{path} holds no checkpoint yet: resume the run first.')
    return file.rounds[-1], file.read_checkpoint(file.rounds[-1])[1]
