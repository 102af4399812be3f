"""Workers on this machine, for the benchmark and the tests."""

import os
import subprocess
import sys
import tempfile

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_HOSTS = ('127.0.0.1', '0.0.0.0')  # The second where the system confines no worker.


class LocalWorkers:
  """Some `scripts/worker.py`, which end with this process.

  Attributes:
    addresses: 'host:port' of each.
    processes: A `subprocess.Popen` for each.
  """

  def __init__(self, count: int, *options: str):
    """Starts workers and waits until they are ready.

    Args:
      count: How many.
      *options: More options of `scripts/worker.py`.

    Raises:
      RuntimeError: If one cannot be started; its own words are given.
    """
    self.addresses: list[str] = []
    self.processes: list[subprocess.Popen] = []
    for host in _HOSTS:
      command = [sys.executable, os.path.join(_ROOT, 'scripts', 'worker.py'), f'--host={host}']
      with tempfile.TemporaryFile('w+') as errors:
        self.processes = [
          subprocess.Popen(
            [*command, '--port=0', '--end_with_parent', *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
          )
          for _ in range(count)
        ]
        lines = [process.stdout.readline() for process in self.processes]
        errors.seek(0)
        complaints = errors.read()
      if all(lines):
        self.addresses = [f'127.0.0.1:{line.rpartition(":")[2].strip()}' for line in lines]
        return
      self.close()
    raise RuntimeError(f'a worker does not start: {complaints}')

  def close(self) -> None:
    """Ends them."""
    for process in self.processes:
      process.terminate()
    for process in self.processes:
      process.wait()
      process.stdout.close()
