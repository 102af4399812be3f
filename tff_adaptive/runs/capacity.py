"""Estimates how large a run's client states may grow, before the run starts."""

import pathlib
import shutil

from rich.filesize import decimal as size

from tff_adaptive.runs import memory as memory_lib
from tff_adaptive.runs.state_file import KEPT
from tff_adaptive.runs.state_store import CACHE_BYTES

# Disk space per byte of a state: there are SQLite's pages and index too, and a rollback journal
# that may hold a copy of every page while a checkpoint is written.
_DISK_FACTOR = 2.1
_ROW_BYTES = 512
_WAYS_OUT = {
  'memory': 'save more often (a smaller rounds_per_checkpoint), use a machine with more memory',
  'disk': 'let `checkpoints` in its folder be a link to a larger disk',
}


def plan(num_clients: int, state_bytes: int, path: str, num_unsaved: int) -> str:
  """Returns an estimate of how large the client states may grow, as one line of text.

  Args:
    num_clients: Number of clients that may take part: all, or rounds * clients per round if fewer.
    state_bytes: The size of one client's state in bytes.
    path: The checkpoint file, which may not exist yet. Space taken in its folder counts as free.
    num_unsaved: Number of states that clients return between two checkpoints, which are in memory.

  Raises:
    ValueError: If there is too little memory or disk space. The message says what would help.
  """
  row_bytes = 0
  if state_bytes:
    row_bytes = state_bytes + _ROW_BYTES
  total = num_clients * row_bytes
  memory = min(total, num_unsaved * row_bytes + CACHE_BYTES)
  disk = int(total * KEPT * _DISK_FACTOR)
  folder = pathlib.Path(path).absolute().parent
  taken = sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())
  # The disk is that of the nearest folder that exists already.
  while not folder.is_dir():
    folder = folder.parent
  free = {'memory': memory_lib.available(), 'disk': shutil.disk_usage(folder).free + taken}
  for what, needed in {'memory': memory, 'disk': disk}.items():
    if needed > free[what]:
      raise ValueError(
        f'The states of {num_clients:,} clients of {size(state_bytes)} each may grow to'
        f' {size(needed)} of {what}, but {size(free[what])} are available: {_WAYS_OUT[what]}, or'
        ' let fewer clients take part (rounds, clients_per_round).'
      )
  return (
    f'Client states: {num_clients:,} clients may take part and each keeps {size(state_bytes)}: up'
    f' to {size(memory)} of memory and {size(disk)} of disk.'
  )
