"""How large a run's client states may grow, reported before it starts."""

import dataclasses
import os
import shutil

from tff_adaptive._utils import memory as memory_lib

STORES = ('memory', 'disk', 'shards')
# SQLite's pages and index next to the states, and a rollback journal that may hold a copy of
# every page while a checkpoint is written.
_DISK_FACTOR = 2.1
_ROW_BYTES = 512


@dataclasses.dataclass(frozen=True)
class GrowthPlan:
  """How large the client states of a run may grow.

  Attributes:
    num_clients: clients that may take part.
    state_bytes: bytes one client keeps.
    store: One of `STORES`.
    memory_bytes: the most memory the store may take, in bytes.
    disk_bytes: the most the checkpoint file and its journal may take, in bytes.
  """

  num_clients: int
  state_bytes: int
  store: str
  memory_bytes: int
  disk_bytes: int

  def describe(self) -> str:
    """Returns one line for people."""
    return (
      f'Client states: {self.num_clients:,} clients may take part and each keeps'
      f' {human(self.state_bytes)}: up to {human(self.memory_bytes)} of memory and'
      f' {human(self.disk_bytes)} of disk (client_state_store={self.store!r}).'
    )


def plan(
  num_clients: int,
  state_bytes: int,
  store: str,
  limit: int | None = None,
  *,
  cache_bytes: int = 0,
  path: str | None = None,
  keep_checkpoints: int = 2,
) -> GrowthPlan:
  """Says how large the client states may grow, and refuses what cannot fit.

  Args:
    num_clients: clients that may take part: the smaller of the clients there are and
      rounds times clients a round.
    state_bytes: bytes one client keeps.
    store: 'memory' (all states in memory, and on disk at checkpoints), 'disk' (a cache
      of `cache_bytes` in memory) or 'shards' (none in this process's memory).
    limit: the most bytes the store may take of what it is named after; None for what is
      available now.
    cache_bytes: size of the disk store's cache.
    path: the checkpoint file, which need not exist yet: what a run that is resumed takes
      already counts as available; None for a run that saves nothing.
    keep_checkpoints: how many checkpoints the file keeps, and so versions of a client's state.

  Returns:
    The plan.

  Raises:
    ValueError: if the store is unknown, a number is negative, or the states cannot fit;
      the message says what would help.
  """
  if store not in STORES:
    raise ValueError(f'client_state_store is {store!r}; it must be one of {", ".join(STORES)}.')
  for name, value in (('num_clients', num_clients), ('state_bytes', state_bytes)):
    if value < 0:
      raise ValueError(f'{name} is {value}; it must be at least 0.')
  total = num_clients * (state_bytes + (_ROW_BYTES if state_bytes else 0))
  result = GrowthPlan(
    num_clients=num_clients,
    state_bytes=state_bytes,
    store=store,
    memory_bytes={'memory': total, 'disk': min(total, cache_bytes), 'shards': 0}[store],
    disk_bytes=int(total * keep_checkpoints * _DISK_FACTOR) if path is not None else 0,
  )
  free = {'memory': memory_lib.available_memory()}
  if path is not None:
    taken = os.path.getsize(path) if os.path.exists(path) else 0
    free['disk'] = available_disk(os.path.dirname(path)) + taken
  if limit is not None:
    free['memory' if store == 'memory' else 'disk'] = limit
  ways_out = {
    'memory': "use client_state_store='disk', or a machine with more memory",
    'disk': 'name a client_state_dir on a larger disk, or keep fewer checkpoints',
  }
  for what, available in free.items():
    needed = result.memory_bytes if what == 'memory' else result.disk_bytes
    if needed > available:
      raise ValueError(
        f'The states of {num_clients:,} clients of {human(state_bytes)} each may grow to'
        f' {human(needed)} of {what}, but {human(available)} are available: {ways_out[what]}, or'
        ' let fewer clients take part (rounds, clients_per_round).'
      )
  return result


def available_disk(folder: str) -> int:
  """Returns the free bytes of the disk that holds `folder`, or will hold it."""
  folder = os.path.abspath(folder)
  while not os.path.isdir(folder):
    folder = os.path.dirname(folder)
  return shutil.disk_usage(folder).free


def human(num_bytes: int) -> str:
  """Returns a number of bytes as people read it: '4.8 MB'."""
  value = float(num_bytes)
  for unit in ('bytes', 'kB', 'MB', 'GB'):
    if value < 1000:
      return f'{value:.0f} {unit}' if unit == 'bytes' else f'{value:.1f} {unit}'
    value /= 1000
  return f'{value:.1f} TB'
