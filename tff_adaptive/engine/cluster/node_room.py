"""How many workers, or runs of a sweep, a node of a Ray cluster has room for."""

from collections.abc import Mapping


def room(resources: Mapping[str, float], cpus: int, gpus: float) -> int:
  """How many a node has room for.

  Args:
    resources: What it has, by Ray's names: 'CPU' and 'GPU'.
    cpus: Processors of each.
    gpus: GPUs of each, or a part of one GPU.
  """
  by_cpus = int(resources.get('CPU', 0) // cpus)
  if not gpus:
    return by_cpus
  there = int(resources.get('GPU', 0))
  # A part is of one GPU: two of 0.6 need two. In floating point 1 // 0.1 is 9.
  by_gpus = there * int(1 / gpus + 1e-9) if gpus < 1 else int(there // gpus)
  return min(by_cpus, by_gpus)
