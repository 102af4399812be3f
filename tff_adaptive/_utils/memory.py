"""Measures the available memory."""

import psutil

_CGROUP_LIMITS = (
  ('/sys/fs/cgroup/memory.max', '/sys/fs/cgroup/memory.current'),
  (
    '/sys/fs/cgroup/memory/memory.limit_in_bytes',
    '/sys/fs/cgroup/memory/memory.usage_in_bytes',
  ),
)


def available_memory() -> int:
  """Returns the bytes of memory that this process may still use, within its control groups."""
  available = psutil.virtual_memory().available
  for limit_file, usage_file in _CGROUP_LIMITS:
    try:
      with open(limit_file) as limit, open(usage_file) as usage:
        available = min(available, max(0, int(limit.read()) - int(usage.read())))
    except (OSError, ValueError):  # no such control group, or its limit is 'max'
      continue
  return available
