"""A process that does a round of the benchmark at each request, and what asks it."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time

import psutil

from . import names

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')  # Of the child.


class Child:
  """A process that runs one variant of one workload, a round at each request."""

  def __init__(self, workload: str, variant: str, data_dir: str, device: str):
    """Starts it."""
    self._errors = tempfile.TemporaryFile('w+', errors='replace')  # noqa: SIM115
    self._process = subprocess.Popen(
      names.command(workload, variant, data_dir, device),
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._errors,
      text=True,
      cwd=names.ROOT,
    )

  def round(self) -> dict[str, float]:
    """Has it do a round; its `seconds`, and `peak_mb` so far. RuntimeError if the child ended."""
    assert self._process.stdin is not None
    assert self._process.stdout is not None
    with contextlib.suppress(BrokenPipeError):
      self._process.stdin.write('round\n')
      self._process.stdin.flush()
    for answer in self._process.stdout:
      if answer.startswith('{'):
        return dict(json.loads(answer))
    raise RuntimeError(f'a child ended with code {self._process.wait()}: {self._last_error()}')

  def _last_error(self) -> str:
    self._errors.seek(0)
    said = self._errors.read().partition('Exception ignored in')[0]  # TFF's own clean-up.
    return (said.strip().splitlines() or ['it said nothing'])[-1]

  def end(self) -> None:
    """Ends the process."""
    self._process.communicate()
    self._errors.close()


def _megabytes() -> float:
  """The memory of this process and its children, each page's size shared by those who map it."""
  total, me = 0, psutil.Process()
  for process in [me, *me.children(recursive=True)]:
    with contextlib.suppress(psutil.Error):
      total += process.memory_full_info().pss
  return total / 2**20


def main() -> None:
  """Serves requests until standard input closes."""
  from tff_adaptive import engine

  from . import variants, workloads

  name, variant, data_dir, device = sys.argv[1:5]
  peak = _megabytes()

  def sample() -> None:
    nonlocal peak
    while True:
      time.sleep(1.0)
      peak = max(peak, _megabytes())

  threading.Thread(target=sample, daemon=True).start()
  try:
    runner = variants.build(variant, workloads.WORKLOADS[name], data_dir, device)
    for r, _ in enumerate(sys.stdin):
      start = time.perf_counter()
      runner.round(r)
      seconds = time.perf_counter() - start
      answer = {'seconds': seconds, 'peak_mb': max(peak, _megabytes())}
      print(json.dumps(answer), flush=True)
  finally:
    engine.reap_workers()


if __name__ == '__main__':
  main()
