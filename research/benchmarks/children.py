"""What a process of the benchmark does: it builds a variant once, and does a round at a request."""

import contextlib
import functools
import multiprocessing
import os
import threading
import time
from typing import Any

import psutil

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # Of the processes.
os.environ.setdefault('PYTHONWARNINGS', 'ignore')
_peak_mb = 0.0


def do_round(workload: str, variant: str, device: str, r: int) -> dict[str, float]:
  """Does a round in a process of this variant alone; its `seconds`, and `peak_mb` so far."""
  built = _built(workload, variant, device)
  start = time.perf_counter()
  built(r)
  seconds = time.perf_counter() - start
  return {'seconds': seconds, 'peak_mb': max(_peak_mb, _megabytes())}


@functools.cache
def _built(workload: str, variant: str, device: str) -> Any:
  from . import variants, workloads

  threading.Thread(target=_sample, daemon=True).start()
  return variants.build(variant, workloads.WORKLOADS[workload], device)


def _sample() -> None:
  """Keeps the most memory that was in use at some second; ends with the benchmark."""
  global _peak_mb
  parent = multiprocessing.parent_process()
  while parent is not None and parent.is_alive():
    _peak_mb = max(_peak_mb, _megabytes())
    time.sleep(1.0)
  os._exit(1)


def _megabytes() -> float:
  """The memory of this process and its children, each page's size shared by those who map it."""
  total = 0
  me = psutil.Process()
  for process in [me, *me.children(recursive=True)]:
    with contextlib.suppress(psutil.Error):
      total += process.memory_full_info().pss
  return total / 2**20
