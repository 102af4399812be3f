"""Answers the benchmark's requests in a peer's process, as `benchmarks/children.py` does."""

import json
import os
import pathlib
import sys
from collections.abc import Iterator

# Only NumPy is loaded; what this toolkit's packages need may be absent here.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / 'benchmarks'))
import workloads


def workload() -> workloads.Workload:
  """The workload that the command line names."""
  return workloads.WORKLOADS[sys.argv[1]]


def data_dir() -> str:
  """The folder of real data, which the command line may name after the workload."""
  return sys.argv[2] if len(sys.argv) > 2 else ''


def requests() -> Iterator[str]:
  """Waits for the next request for a round; answers those for memory itself."""
  for request in sys.stdin:
    if request.strip() == 'memory':
      answer(peak_mb=peak_mb())
    else:
      yield request


def answer(**figures: float) -> None:
  """Writes one answer."""
  print(json.dumps(figures), flush=True)


def peak_mb() -> float:
  """The peaks of this process and of its children's children that run, summed."""
  return sum(_peak_mb(process) for process in [os.getpid(), *_descendants(os.getpid())])


def _descendants(process: int) -> list[int]:
  """Numbers of the processes below a process."""
  try:
    with open(f'/proc/{process}/task/{process}/children', encoding='ascii') as file:
      children = [int(number) for number in file.read().split()]
  except OSError:
    return []
  return [*children, *(below for child in children for below in _descendants(child))]


def _peak_mb(process: int) -> float:
  """A process's largest resident size so far; 0.0 if it has ended."""
  try:
    with open(f'/proc/{process}/status', encoding='utf-8') as file:
      return sum(int(line.split()[1]) / 1024 for line in file if line.startswith('VmHWM'))
  except OSError:
    return 0.0
