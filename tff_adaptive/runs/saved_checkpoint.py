"""Reading a run's last checkpoint without its process, and without changing the file."""

import json
import pathlib
import sqlite3
from typing import NamedTuple

import numpy as np

from tff_adaptive.runs import state_file, state_migration
from tff_adaptive.runs.errors import StateError


class SavedState(NamedTuple):
  """A checkpoint's server state.

  Attributes:
    round_number: Rounds finished.
    arrays: The state's leaves: the global model's trainable weights come first.
  """

  round_number: int
  arrays: list[np.ndarray]


def read(path: str) -> SavedState:
  """Reads the last checkpoint of a state file, of this format or the one before.

  Args:
    path: The file.

  Returns:
    The server state.

  Raises:
    StateError: If there is no checkpoint, or it is damaged or in use.
  """
  if not pathlib.Path(path).is_file():
    raise StateError(f'there is no checkpoint {path}: the run has not saved one, or it was moved.')
  try:
    # Not 'ro': what a run that was killed has left in the midst of saving is rolled back first.
    file = sqlite3.connect(f'{pathlib.Path(path).resolve().as_uri()}?mode=rw', uri=True, timeout=1)
    try:
      found = state_migration.settings(file)
      is_old = found.get('format') == state_migration.FORMAT
      state = _read_old(file, found) if is_old else _read(file)
    finally:
      file.close()
  except sqlite3.Error as error:
    reason = 'the run is going on' if 'locked' in str(error) else str(error)
    raise StateError(f'{path} cannot be read: {reason}.') from None
  except (ValueError, TypeError, LookupError) as error:
    raise StateError(f'{path}: the checkpoint is damaged ({error}).') from None
  if state is None:
    raise StateError(f'{path} holds no checkpoint yet: let the run go on first.')
  return state


def _read(file: sqlite3.Connection) -> SavedState | None:
  rows = file.execute(
    'SELECT round, metadata, clients, digest, checksum FROM checkpoint ORDER BY round DESC LIMIT 1'
  ).fetchall()
  if not rows:
    return None
  number, metadata, clients, digest, checksum = rows[0]
  leaves = [
    state_file.Leaf(*leaf)
    for leaf in file.execute(
      'SELECT dtype, shape, data FROM server_state WHERE round = ? ORDER BY position', (number,)
    )
  ]
  if state_file.checkpoint_checksum(number, metadata, clients, digest, leaves) != checksum:
    raise ValueError('its checksum differs')
  return SavedState(number, [_array(leaf) for leaf in leaves])


def _read_old(file: sqlite3.Connection, found: dict[str, str]) -> SavedState | None:
  if 'round' not in found:
    return None
  leaves = file.execute('SELECT dtype, shape, data FROM server ORDER BY position')
  return SavedState(int(found['round']), [_array(state_file.Leaf(*leaf)) for leaf in leaves])


def _array(leaf: state_file.Leaf) -> np.ndarray:
  return np.frombuffer(leaf.data, np.dtype(leaf.dtype)).reshape(json.loads(leaf.shape))
