"""Client states of the rounds since the last checkpoint: one file for each subround.

A file is written once, whole, under a name that follows from its clients and the round's sequence
number: a subround that is trained twice has one file. Who reads a state is given its place and its
checksum, so that it is the one that was counted. Nothing is synced: the rounds since the last
checkpoint are done again after a power failure.
"""

import contextlib
import hashlib
import os
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tff_adaptive.runs.errors import StateError
from tff_adaptive.runs.state_database import client_checksum


class Place(NamedTuple):
  """Where a client's state is.

  Attributes:
    name: The file.
    row: Which state of it.
    checksum: `client_checksum` with the round's sequence number.
  """

  name: str
  row: int
  checksum: bytes


def write(
  folder: str, sequence: int, token: str, client_ids: Sequence[str], states: Sequence[bytes]
) -> list[Place]:
  """Keeps the states of a subround's clients; those that are there already stay.

  Args:
    folder: Of the files.
    sequence: The round's number among those since the run was opened.
    token: Of this start of the run.
    client_ids: Ids.
    states: States, of equal length, packed.

  Returns:
    For each client where its state is.
  """
  names = hashlib.sha256('\0'.join(client_ids).encode()).hexdigest()[:16]
  name = f'{sequence:08d}-{names}-{token}'
  path, temporary = (os.path.join(folder, n) for n in (name, f'.{uuid.uuid4().hex}'))
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


def read(folder: str, size: int, rows: Sequence[tuple[str, Place]]) -> Iterator[tuple[str, bytes]]:
  """Reads states, those of one file together.

  Args:
    folder: Of the files.
    size: Bytes of a state.
    rows: Client ids, and where their states are.

  Yields:
    Client ids and states; in another order, perhaps.

  Raises:
    StateError: If a state is missing or damaged.
  """
  by_name: dict[str, list[tuple[str, Place]]] = {}
  for row in rows:
    by_name.setdefault(row[1].name, []).append(row)
  for name, of_file in by_name.items():
    path = os.path.join(folder, name)
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


def clear(folder: str) -> None:
  """Removes all files: the states are in a checkpoint, or of rounds that are lost."""
  for name in os.listdir(folder):
    with contextlib.suppress(FileNotFoundError):
      os.unlink(os.path.join(folder, name))
