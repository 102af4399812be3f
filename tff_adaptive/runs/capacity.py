"""Estimates how large a run's client states may grow, before the run starts."""

import os
import shutil

from tff_adaptive._utils import memory as memory_lib
from tff_adaptive.runs.state_file import PAGE_CACHE_BYTES

STORES = ('memory', 'disk', 'shards')
# SQLite's pages and index next to the states, and a rollback journal that may hold a copy of
# every page while a checkpoint is written.
_DISK_FACTOR = 2.1
_ROW_BYTES = 512
_WAYS_OUT = {
  'memory': "use client_state_store='disk', or a machine with more memory",
  'disk': 'name a client_state_dir on a larger disk, or keep fewer checkpoints',
}


def plan(
  num_clients: int,
  state_bytes: int,
  store: str,
  path: str,
  *,
  keep_checkpoints: int = 2,
  num_staged: int = 0,
) -> str:
  """Describes in one line how large the client states may grow; refuses what cannot fit.

  Args:
    num_clients: Number of clients that may take part: the smaller of all clients and rounds times
      clients a round.
    state_bytes: Bytes of one client's state.
    store: 'memory' (all states in memory, and on disk at checkpoints), 'disk' (only SQLite's page
      cache in memory) or 'shards' (nothing in this process's memory).
    path: The checkpoint file, which need not exist yet. The space that a resumed run already takes
      counts as available.
    keep_checkpoints: Number of checkpoints that the file keeps, and so of versions of a client's
      state.
    num_staged: Number of states that clients return between two checkpoints; 'shards' stages them.

  Raises:
    ValueError: If the states cannot fit. The message says what would help.
  """
  total = num_clients * (state_bytes + (_ROW_BYTES if state_bytes else 0))
  memory = {'memory': total, 'disk': min(total, PAGE_CACHE_BYTES), 'shards': 0}[store]
  disk = int(total * keep_checkpoints * _DISK_FACTOR)
  if store == 'shards':
    disk += num_staged * state_bytes
  folder = os.path.dirname(os.path.abspath(path))
  while not os.path.isdir(folder):
    folder = os.path.dirname(folder)
  taken = os.path.getsize(path) if os.path.exists(path) else 0
  free = {'memory': memory_lib.available_memory(), 'disk': shutil.disk_usage(folder).free + taken}
  for what, needed in (('memory', memory), ('disk', disk)):
    if needed > free[what]:
      raise ValueError(
        f'The states of {num_clients:,} clients of {human(state_bytes)} each may grow to'
        f' {human(needed)} of {what}, but {human(free[what])} are available: {_WAYS_OUT[what]}, or'
        ' let fewer clients take part (rounds, clients_per_round).'
      )
  return (
    f'Client states: {num_clients:,} clients may take part and each keeps {human(state_bytes)}: up'
    f' to {human(memory)} of memory and {human(disk)} of disk (client_state_store={store!r}).'
  )


def human(num_bytes: int) -> str:
  """Formats a number of bytes for people: '4.8 MB'."""
  value = float(num_bytes)
  for unit in ('bytes', 'kB', 'MB', 'GB'):
    if value < 1000:
      return f'{value:.0f} {unit}' if unit == 'bytes' else f'{value:.1f} {unit}'
    value /= 1000
  return f'{value:.1f} TB'
