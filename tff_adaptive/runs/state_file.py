"""The SQLite file of a run's states: checkpoints of the server state, versions of client states.

A checkpoint is one transaction over everything, so a process killed at any instant leaves the file
as of its last checkpoint: SQLite rolls back what was not committed when the file is opened again.
It has a checksum over its round, its metadata, the server state, and the number and the digest of
the client states that it counts. The server state's leaves have names: their paths in the tree.
"""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.runs.errors import SaveError, StateError
from tff_adaptive.runs.state_database import Count, StateDatabase, checksum_of

STATE_FILE = 'state.sqlite'  # Its name in a run's folder of checkpoints.
_MOVED = 'it was removed, renamed or replaced while the run was going on'


class SavedStates(StateDatabase):
  """The checkpoints of a state file, as anybody reads them while no run holds it.

  Attributes:
    rounds: Of the checkpoints.
  """

  tables = (
    *StateDatabase.tables,
    'CREATE TABLE checkpoint (round INTEGER PRIMARY KEY, metadata TEXT NOT NULL,'
    ' clients INTEGER NOT NULL, digest TEXT NOT NULL, checksum BLOB NOT NULL)',
    'CREATE TABLE server_state (round INTEGER NOT NULL, position INTEGER NOT NULL,'
    ' name TEXT NOT NULL, dtype TEXT NOT NULL, shape TEXT NOT NULL, data BLOB NOT NULL,'
    ' PRIMARY KEY (round, position))',
  )

  def _prepare(self) -> None:
    self.rounds: list[int] = []
    if self.settings:
      self.rounds = [r for (r,) in self.rows('SELECT round FROM checkpoint ORDER BY round')]

  @property
  def is_sharded(self) -> bool:
    """Whether the client states are in shards beside the file."""
    return self.settings.get('clients') == 'shards'

  def read_checkpoint(self, round_number: int) -> tuple[Any, dict[str, np.ndarray]]:
    """Returns a checkpoint's metadata and the leaves of its server state by their names.

    Raises:
      StateError: If they are damaged.
    """
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

  def _way_out(self, made: int) -> str:
    """What helps if a part of the last checkpoint that was made in a round is damaged."""
    previous = self.rounds[:-1]
    if previous and previous[-1] < made:
      return (
        f'Resume from the previous checkpoint, of round {previous[-1]}, bring back a copy of the'
        ' file, or start in a new folder.'
      )
    return super()._way_out(made)

  @contextlib.contextmanager
  def _undamaged(self, round_number: int) -> Iterator[None]:
    """A context in which a checkpoint's rows are looked at: what does not fit is damage."""
    try:
      yield
    except (ValueError, TypeError, LookupError, AttributeError) as error:
      raise StateError(
        f'{self.path}: the checkpoint of round {round_number} is damaged ({error}).'
        f' {self._way_out(round_number)}'
      ) from None


class StateFile(SavedStates):
  """A state file that a run holds; use it from one thread.

  What is written is lost together unless `save` follows.
  """

  def __init__(self, path: str, signature: str, keep_checkpoints: int = 2):
    """Opens the file, or makes it.

    Args:
      path: The file; its folder must exist.
      signature: Says how a client state is laid out.
      keep_checkpoints: How many checkpoints to keep, >= 1.

    Raises:
      StateError: If the file is damaged, in use, or of another signature.
    """
    self._signature, self._keep = signature, keep_checkpoints
    self._counted = Count()
    self._place: os.stat_result | None = None
    super().__init__(path, is_writer=True, is_held=True)

  def _prepare(self) -> None:
    super()._prepare()
    self._place = os.stat(self.path)
    found = self.settings.get('client')
    if found is None:  # Committed at once: an empty file of another algorithm is recognised too.
      self.set('client', self._signature)
      self.commit()
    elif found != self._signature:
      raise StateError(
        f'{self.path}: its client states are {found}, but this run needs {self._signature}: the'
        ' file is of another algorithm or model. Start in a new folder.'
      )

  def begin_from(self, round_number: int, elsewhere: Count) -> None:
    """Takes the client states that a checkpoint counts as the present ones.

    Args:
      round_number: The checkpoint's.
      elsewhere: Client states that are not in this file.

    Raises:
      StateError: If they are not those that the checkpoint was made of.
    """
    expected = self.rows('SELECT clients, digest FROM checkpoint WHERE round = ?', round_number)
    found = self.count(round_number).plus(elsewhere)
    with self._undamaged(round_number):
      if [(found.clients, found.text)] != expected:
        raise ValueError('client states are missing, or are not those that it was made of')
    self._counted = found

  def add(self, more: Count) -> None:
    """Counts client states that were written to other files."""
    self._counted = self._counted.plus(more)

  def put_client(self, client_id: str, round_number: int, state: bytes) -> None:
    """Makes a state, of a round after the last checkpoint, its client's present one."""
    self.add(self.write_client(client_id, round_number, state, self._kept()))

  def save(
    self, round_number: int, metadata: Mapping[str, Any], leaves: Mapping[str, np.ndarray]
  ) -> None:
    """Makes a checkpoint, of a round after the last one, and drops the oldest.

    Args:
      round_number: Rounds finished.
      metadata: Anything JSON can hold.
      leaves: The server state's, by their names.

    Raises:
      SaveError: If it cannot be written; the file then still holds the checkpoint before.
    """
    rows = [(n, a.dtype.str, json.dumps(a.shape), a.tobytes()) for n, a in leaves.items()]
    text, count = json.dumps(dict(metadata)), self._counted
    checksum = checkpoint_checksum(round_number, text, count.clients, count.text, rows)
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

  def commit(self) -> None:
    """Ends the transaction and begins the next one; SaveError if the file was moved."""
    with self._border(SaveError, 'written'):
      for statement in ('COMMIT', 'BEGIN IMMEDIATE'):
        if not self._is_in_place():
          raise FileNotFoundError(self.path)
        self._file.execute(statement)

  def drop_after(self, round_number: int) -> None:
    """Forgets the checkpoints and client states of later rounds than a checkpoint's, for good."""
    for table in ('client_state', 'server_state', 'checkpoint'):
      self.write(f'DELETE FROM {table} WHERE round > ?', [(round_number,)])
    self.commit()
    self.rounds = [r for r in self.rounds if r <= round_number]

  def remove_dead_journal(self) -> None:
    """Has SQLite remove the journal that a killed process left behind: it does with its own."""
    if os.path.exists(f'{self.path}-journal'):
      self.write('PRAGMA user_version = 0')
      self.commit()

  def _kept(self) -> list[int]:
    """Rounds of the checkpoints that stay when the next one is made."""
    return self.rounds[1 - self._keep :] if self._keep > 1 else []

  def _is_in_place(self) -> bool:
    try:
      return self._place is None or os.path.samestat(os.stat(self.path), self._place)
    except OSError:
      return False

  def _reason(self, error: Exception) -> str:
    return super()._reason(error) if self._is_in_place() else _MOVED


def checkpoint_checksum(
  round_number: int, metadata: str, clients: int, digest: str, leaves: Sequence[tuple]
) -> bytes:
  """Returns the checksum of a checkpoint, of whose leaves a row has name, dtype, shape and data."""
  parts = [json.dumps([round_number, metadata, clients, digest, len(leaves)]).encode()]
  for *texts, data in leaves:
    parts += [*(text.encode() for text in texts), data]
  return checksum_of(parts)
