"""Client states at checkpoints, over SQLite files by a hash of the client's id.

The checkpoint in the run's state file says which round counts, and has the digest of all shards. A
shard is written when a checkpoint is made: by one process, in one transaction, which a token
admits that each start of the run draws anew.
"""

import contextlib
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs import staged_states
from tff_adaptive.runs.errors import StateError, saving
from tff_adaptive.runs.state_database import Count, StateDatabase

FOLDER, MARKER, STAGED = 'client_states', 'shards.json', 'staged'
NUM_SHARDS = 16


class Shard(StateDatabase):
  """One open shard."""

  seconds = 60.0
  locked = (
    f'the database is locked for {seconds:.0f} s: a process that is stopped or hangs, on this node'
    ' or another, holds it. Kill it (kill -9), and give the same command again: the run goes on'
    ' from its last checkpoint'
  )

  def __init__(self, folder: str, number: int, *, is_writer: bool = False):
    """Opens a shard.

    Args:
      folder: The folder of the shards.
      number: Which.
      is_writer: As for `StateDatabase`.
    """
    super().__init__(os.path.join(folder, f'shard-{number:02d}.sqlite'), is_writer=is_writer)


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


def create(folder: str) -> None:
  """Makes the folder, unless it is there; shards are made when needed.

  Raises:
    SaveError: If it cannot be made.
  """
  with saving(folder):
    os.makedirs(os.path.join(folder, STAGED), exist_ok=True)
    if not read_marker(folder):
      atomic_files.write_json(os.path.join(folder, MARKER), {'id': os.urandom(8).hex()})


def read_marker(folder: str) -> str:
  """Returns what each folder has of its own; '' if this process cannot read it."""
  try:
    with open(os.path.join(folder, MARKER), encoding='utf-8', errors='replace') as file:
      return file.read()
  except OSError:
    return ''


def shard_of(client_id: str) -> int:
  """The shard that a client belongs to, on every machine."""
  return zlib.crc32(client_id.encode()) % NUM_SHARDS


def group(client_ids: Sequence[str]) -> dict[int, list[int]]:
  """Positions of clients by their shard."""
  found: dict[int, list[int]] = {}
  for position, client_id in enumerate(client_ids):
    found.setdefault(shard_of(client_id), []).append(position)
  return found


def fold(work: Fold) -> Count:
  """Takes a checkpoint's states into a shard; done again, it changes nothing.

  Returns:
    What the checkpoint counts more than the one before.

  Raises:
    StateError: If a state is damaged, or another start of the run has taken over.
    SaveError: If the shard cannot be written.
  """
  made = {client_id: number for client_id, number, _ in work.rows}
  places = [(client_id, place) for client_id, _, place in work.rows]
  total = Count()
  with _writing(work.folder, work.shard) as shard:
    if shard.settings.get('token') != work.token:
      raise StateError(
        f'{work.folder}: another process has gone on with this run; this one cannot save.'
      )
    staged = os.path.join(work.folder, STAGED)
    # Later ones are of this very checkpoint, from a call that was lost.
    later = [(client_id, work.last) for client_id in made]
    shard.write('DELETE FROM client_state WHERE id = ? AND round > ?', later)
    for client_id, state in staged_states.read(staged, work.size, places):
      total = total.plus(shard.write_client(client_id, made[client_id], state, work.kept))
  return total


def count(folder: str, round_number: int) -> Count:
  """Returns how many client states a checkpoint counts in all shards, and their digest."""
  total = Count()
  for number in range(NUM_SHARDS):
    with contextlib.closing(Shard(folder, number)) as shard:
      total = total.plus(shard.count(round_number))
  return total


def take_over(folder: str, token: str, round_number: int) -> None:
  """Makes a token the valid one, and forgets states of later rounds than a checkpoint's.

  All shards are there afterwards: on a network's file system one that is made later might not be
  seen by who has looked for it before.
  """
  for number in range(NUM_SHARDS):
    with _writing(folder, number) as shard:
      shard.set('token', token)
      shard.write('DELETE FROM client_state WHERE round > ?', [(round_number,)])
  staged = os.path.join(folder, STAGED)
  with saving(staged):
    os.makedirs(staged, exist_ok=True)
    staged_states.clear(staged)


@contextlib.contextmanager
def _writing(folder: str, number: int) -> Iterator[Shard]:
  """A transaction on a shard, which is on the disk when it ends."""
  with contextlib.closing(Shard(folder, number, is_writer=True)) as shard:
    yield shard
    shard.commit()
