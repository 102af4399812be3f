"""State files of the format before: one checkpoint, one state a client, no checksums."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

FORMAT = 'tff-adaptive-1'


def settings(file: sqlite3.Connection) -> dict[str, str]:
  """Returns what a state file of any format says of itself; nothing for an empty file."""
  tables = file.execute("SELECT 1 FROM sqlite_master WHERE name = 'run'").fetchall()
  return dict(file.execute('SELECT key, value FROM run').fetchall()) if tables else {}


def migrate(
  file: sqlite3.Connection,
  checksum: Callable[[str, int, bytes], bytes],
  add_checkpoint: Callable[[int, str, int, int, Sequence[Any]], None],
) -> None:
  """Takes the states over, with the checksums that they have now, in the open transaction.

  Args:
    file: The open file, which has the present format's tables too.
    checksum: Client id, round and bytes -> the checksum of a client state.
    add_checkpoint: Called with the round, the metadata, the number and the digest of the client
      states, and the server state's arrays, if there is a checkpoint.
  """
  stored = settings(file)
  if 'round' in stored:
    round_number = int(stored['round'])
    file.create_function('checksum', 3, checksum, deterministic=True)
    file.execute(
      'INSERT INTO client_state SELECT id, ?1, checksum(id, ?1, state), state FROM client',
      (round_number,),
    )
    file.execute(
      'INSERT INTO server_state SELECT ?, position, dtype, shape, data FROM server', (round_number,)
    )
    clients, digest = 0, 0
    for (found,) in file.execute('SELECT checksum FROM client_state'):
      clients, digest = clients + 1, digest + int.from_bytes(found, 'big')
    leaves = file.execute('SELECT dtype, shape, data FROM server ORDER BY position').fetchall()
    add_checkpoint(round_number, stored['metadata'], clients, digest, leaves)
  for table in ('client', 'server'):
    file.execute(f'DROP TABLE {table}')
  file.execute("DELETE FROM run WHERE key IN ('round', 'metadata')")
