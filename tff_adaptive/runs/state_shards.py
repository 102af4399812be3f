"""Client states in files beside the checkpoint, which workers read and write themselves.

Those of the rounds since the last checkpoint are staged, in one file for each subround: written
once, whole, under a name that follows from its clients and the round's sequence number, so that a
subround that is trained twice has one file. Nothing there is synced: after a power failure these
rounds are done again.

A checkpoint folds them into shards, SQLite files by a hash of the client's id. The checkpoint in
the run's state file says which round counts, and has the digest of all shards. A shard is written
by one process, in one transaction, which a token admits that each start of the run draws anew.
"""

import contextlib
import hashlib
import os
import uuid
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs.errors import StateError, saving
from tff_adaptive.runs.state_file import Count, StateFile, client_checksum

FOLDER, MARKER, STAGED = 'client_states', 'shards.json', 'staged'
NUM_SHARDS = 16


class Shard(StateFile):
  """One open shard of a folder."""

  seconds = 60.0
  locked = (
    f'the database is locked for {seconds:.0f} s: a process that is stopped or hangs, on this node'
    ' or another, holds it. Kill it (kill -9), and give the same command again: the run goes on'
    ' from its last checkpoint'
  )

  def __init__(self, folder: str, number: int, *, is_writer: bool = False):
    super().__init__(os.path.join(folder, f'shard-{number:02d}.sqlite'), is_writer=is_writer)


class Place(NamedTuple):
  """Where a client's state is staged."""

  name: str  # The file.
  row: int  # Which state of it.
  checksum: bytes  # `client_checksum` with the round's sequence number.


class Fold(NamedTuple):
  """The states of a checkpoint that belong to a shard."""

  folder: str
  shard: int
  token: str  # Of this start of the run.
  size: int  # Bytes of a state.
  rows: list[tuple[str, int, Place]]  # Client id, round, and where the state is.
  last: int  # The round of the checkpoint before.
  kept: list[int]  # Rounds of the checkpoints before whose states stay.


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


def stage(
  folder: str, sequence: int, token: str, client_ids: Sequence[str], states: Sequence[bytes]
) -> list[Place]:
  """Keeps the packed states of a subround's clients; those that are there already stay.

  Returns:
    For each client where its state is.
  """
  names = hashlib.sha256('\0'.join(client_ids).encode()).hexdigest()[:16]
  name = f'{sequence:08d}-{names}-{token}'
  path, temporary = (os.path.join(folder, STAGED, n) for n in (name, f'.{uuid.uuid4().hex}'))
  try:
    with open(temporary, 'wb') as file:
      file.writelines(states)
    try:
      os.link(temporary, path)  # Unlike a renaming, it replaces nothing.
    except FileExistsError:
      with open(path, 'rb') as file:  # What the other call has counted, or will.
        states = [file.read(len(state)) for state in states]
    except OSError:  # A file system without links.
      os.replace(temporary, path)
  finally:
    with contextlib.suppress(OSError):
      os.unlink(temporary)
  return [
    Place(name, row, client_checksum(client_id, sequence, state))
    for row, (client_id, state) in enumerate(zip(client_ids, states))
  ]


def read_staged(
  folder: str, size: int, rows: Sequence[tuple[str, Place]]
) -> Iterator[tuple[str, bytes]]:
  """Yields staged states of `size` bytes with their clients' ids, those of one file together.

  Raises:
    StateError: If a state is missing or damaged.
  """
  by_name: dict[str, list[tuple[str, Place]]] = {}
  for row in rows:
    by_name.setdefault(row[1].name, []).append(row)
  for name, of_file in by_name.items():
    path = os.path.join(folder, STAGED, name)
    try:
      with open(path, 'rb') as file:
        for client_id, place in of_file:
          file.seek(place.row * size)
          state = file.read(size)
          sequence = int(name.partition('-')[0])
          if client_checksum(client_id, sequence, state) != place.checksum:
            raise OSError(f'the checksum of client {client_id!r} differs')
          yield client_id, state
    except OSError as error:
      raise StateError(
        f'{path}: client states of a round since the last checkpoint cannot be read ({error}):'
        ' give the same command again, it goes on from the checkpoint.'
      ) from None


def clear_staged(folder: str) -> None:
  """Removes all staged files: the states are in a checkpoint, or of rounds that are lost."""
  staged = os.path.join(folder, STAGED)
  for name in os.listdir(staged):
    with contextlib.suppress(FileNotFoundError):
      os.unlink(os.path.join(staged, name))


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
  with contextlib.closing(Shard(work.folder, work.shard, is_writer=True)) as shard:
    if shard.settings.get('token') != work.token:
      raise StateError(
        f'{work.folder}: another process has gone on with this run; this one cannot save.'
      )
    # Later ones are of this very checkpoint, from a call that was lost.
    later = [(client_id, work.last) for client_id in made]
    shard.write('DELETE FROM client_state WHERE id = ? AND round > ?', later)
    for client_id, state in read_staged(work.folder, work.size, places):
      total = total.plus(shard.write_client(client_id, made[client_id], state, work.kept))
    shard.commit()
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
    with contextlib.closing(Shard(folder, number, is_writer=True)) as shard:
      shard.set('token', token)
      shard.write('DELETE FROM client_state WHERE round > ?', [(round_number,)])
      shard.commit()
  staged = os.path.join(folder, STAGED)
  with saving(staged):
    os.makedirs(staged, exist_ok=True)
    clear_staged(folder)
