"""Estimates how large a run's client states may grow, before the run starts."""

import pathlib
import shutil

import psutil
from rich.filesize import decimal as size

from tff_adaptive.runs.state_file import KEPT

STORES = ('memory', 'shards')
# Disk space per byte of a state: there are SQLite's pages and index too, and a rollback journal
# that may hold a copy of every page while a checkpoint is written.
_DISK_FACTOR = 2.1
_ROW_BYTES = 512
_WAYS_OUT = {
  'memory': "use client_state_store='shards', or a machine with more memory",
  'disk': 'let `checkpoints` in its folder be a link to a larger disk',
}

_CGROUP_LIMITS = (
  ('/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory.current'),
  ('/sys/fs/cgroup/memory/memory.limit_in_bytes', '/sys/fs/cgroup/memory/memory.usage_in_bytes'),
)


def plan(num_clients: int, state_bytes: int, store: str, path: str, num_staged: int = 0) -> str:
  """Returns an estimate of how large the client states may grow, as one line of text.

  Args:
    num_clients: Number of clients that may take part: all, or rounds * clients per round if fewer.
    state_bytes: The size of one client's state in bytes.
    store: 'memory' (all states in memory, and on disk at checkpoints) or 'shards' (only on disk).
    path: The checkpoint file, which may not exist yet. Space taken in its folder counts as free.
    num_staged: Number of states that clients return between two checkpoints. With 'shards' these
      states take extra space until the checkpoint.

  Raises:
    ValueError: If there is too little memory or disk space. The message says what would help.
  """
  total = num_clients * (state_bytes + (_ROW_BYTES if state_bytes else 0))
  memory = total if store == 'memory' else 0
  disk = int(total * KEPT * _DISK_FACTOR)
  if store == 'shards':
    disk += num_staged * state_bytes
  folder = pathlib.Path(path).absolute().parent
  taken = sum(file.stat().st_size for file in folder.rglob('*') if file.is_file())
  while not folder.is_dir():
    folder = folder.parent
  free = {'memory': available_memory(), 'disk': shutil.disk_usage(folder).free + taken}
  for what, needed in (('memory', memory), ('disk', disk)):
    if needed > free[what]:
      raise ValueError(
        f'The states of {num_clients:,} clients of {size(state_bytes)} each may grow to'
        f' {size(needed)} of {what}, but {size(free[what])} are available: {_WAYS_OUT[what]}, or'
        ' let fewer clients take part (rounds, clients_per_round).'
      )
  return (
    f'Client states: {num_clients:,} clients may take part and each keeps {size(state_bytes)}: up'
    f' to {size(memory)} of memory and {size(disk)} of disk (client_state_store={store!r}).'
  )


def available_memory() -> int:
  """Returns the bytes of memory that this process may still use, within its control groups."""
  available = psutil.virtual_memory().available
  for limit_file, usage_file in _CGROUP_LIMITS:
    try:
      with open(limit_file) as limit, open(usage_file) as usage:
        file = pathlib.Path(limit_file).with_name('memory.stat')
        lines = file.read_text(encoding='utf-8').splitlines() if file.exists() else []
        stat = {name: int(number) for name, number in map(str.split, lines)}
        cache = (stat.get(f'total_{n}', stat.get(n, 0)) for n in ('inactive_file', 'active_file'))
        used = int(usage.read()) - sum(cache)  # The cache of files gives way.
        available = min(available, max(0, int(limit.read()) - max(0, used)))
    except (OSError, ValueError):  # no such control group, or its limit is 'max'
      continue
  return available
