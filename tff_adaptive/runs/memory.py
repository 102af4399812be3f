"""The memory that this process may still use, within its control groups."""

import pathlib

import psutil

_CGROUP_LIMITS = (
  ('/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory.current'),
  ('/sys/fs/cgroup/memory/memory.limit_in_bytes', '/sys/fs/cgroup/memory/memory.usage_in_bytes'),
)


def available() -> int:
  """Returns the bytes of memory that this process may still use."""
  least: int = psutil.virtual_memory().available
  for limit_file, usage_file in _CGROUP_LIMITS:
    try:
      left = _left(pathlib.Path(limit_file), pathlib.Path(usage_file))
    except (OSError, ValueError):  # There is no such control group, or its limit is 'max'.
      continue
    least = min(least, left)
  return least


def _left(limit_file: pathlib.Path, usage_file: pathlib.Path) -> int:
  """Returns the bytes that a control group may still use, whose limit and usage files are given."""
  limit = int(limit_file.read_text())
  usage = int(usage_file.read_text())
  stat_file = limit_file.with_name('memory.stat')
  stat: dict[str, int] = {}
  if stat_file.exists():
    for line in stat_file.read_text(encoding='utf-8').splitlines():
      name, number = line.split()
      stat[name] = int(number)
  # The cache of files gives way. In version 1 the totals include the groups below.
  cache = 0
  for name in ('inactive_file', 'active_file'):
    cache += stat.get(f'total_{name}', stat.get(name, 0))
  used = max(0, usage - cache)
  return max(0, limit - used)
