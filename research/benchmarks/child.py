"""Child process of the benchmark: does a round at each request on standard input."""

import json
import os
import sys
import threading
import time

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import psutil


class _PeakMemory(threading.Thread):
  """Peak of the memory of this process and its children (proportional set size), sampled."""

  def __init__(self) -> None:
    super().__init__(daemon=True)
    self.peak_mb = self.now_mb = 0.0
    self.start()

  def sample(self) -> None:
    """Takes a sample."""
    total = 0
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
      try:
        total += process.memory_full_info().pss
      except psutil.Error:
        continue
    self.now_mb = total / 2**20
    self.peak_mb = max(self.peak_mb, self.now_mb)

  def run(self) -> None:
    """Samples until the process ends."""
    while True:
      time.sleep(1.0)
      self.sample()


def main() -> None:
  """Serves requests until standard input closes."""
  from tff_adaptive import engine

  from . import variants, workloads

  name, variant, data_dir, device = sys.argv[1:5]
  memory = _PeakMemory()
  try:
    runner = variants.build(variant, workloads.WORKLOADS[name], data_dir, device)
    r = 0
    for request in sys.stdin:
      if request.strip() == 'memory':
        memory.sample()
        answer = {'peak_mb': memory.peak_mb, 'now_mb': memory.now_mb}
      elif request.strip() == 'accuracy':
        answer = {'accuracy': runner.accuracy()}
      else:
        start = time.perf_counter()
        runner.round(r)
        answer = {'seconds': time.perf_counter() - start}
        r += 1
      print(json.dumps(answer), flush=True)
  finally:
    engine.reap_workers()


if __name__ == '__main__':
  main()
