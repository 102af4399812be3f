"""Answers the benchmark's requests in a peer's process, as `benchmarks/children.py` does."""

import json
import os
import pathlib
import re
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
  """The largest resident sizes so far of this process and of its children, summed."""
  me = os.getpid()
  with open(f'/proc/{me}/task/{me}/children', encoding='ascii') as file:
    processes = [str(me), *file.read().split()]
  texts = (pathlib.Path(f'/proc/{p}/status').read_text(encoding='utf-8') for p in processes)
  return sum(int(kb) / 1024 for text in texts for kb in re.findall(r'VmHWM:\s*(\d+)', text))
