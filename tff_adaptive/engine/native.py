"""TFF's own runtime, and the worker process that it starts.

TFF 0.87 leaves its worker running when the program ends. The worker keeps the program's standard
output open, so a pipe that reads it never closes. `set_native_context` and `remember_workers` make
the worker end with the program: a function kills it at the program's exit. If the program itself is
killed, a watchdog kills the worker: a shell that waits until a pipe from the program closes.
"""

import atexit
import contextlib
import os
import subprocess
from typing import TYPE_CHECKING

from tff_adaptive._utils import private_apis
from tff_adaptive.environment import check

if TYPE_CHECKING:
  import psutil

# Waits until the program ends, then kills the worker, unless its pid is another program's by then.
_WATCHDOG = (
  f'read -r _; [ "$(cat /proc/$0/comm 2>/dev/null)" = {private_apis.WORKER} ] && kill -9 "$0"'
)
_watchdogs: list[subprocess.Popen] = []


def set_native_context() -> None:
  """Makes TFF's own runtime the default context of TFF. Its worker ends with this process.

  Raises:
    RuntimeError: TFF's worker cannot run on this platform.
  """
  problem = check.native_problem()
  if problem:
    raise RuntimeError(f'{problem} (set_graph_context).')
  import tensorflow_federated as tff

  remember_workers()
  tff.backends.native.set_sync_local_cpp_execution_context()


def remember_workers() -> None:
  """Makes the workers that TFF starts, or has started, end with this process.

  A worker started from now on also gets a session of its own. Ctrl-C in a terminal then does not
  reach the worker, which the program needs to finish its round.
  """
  if private_apis.watch_worker_starts(_watch):
    atexit.register(_end)
    for worker in _workers():
      _watch(worker.pid)


def reap_workers() -> None:
  """Kills the workers that TFF started in this process, and waits until they have ended."""
  import psutil

  for worker in _workers():
    with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
      worker.kill()
      # WNOWAIT keeps the pid of the ended worker: TFF will still signal it and wait for it.
      os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
  while _watchdogs:
    with _watchdogs.pop() as watchdog:
      watchdog.kill()


def _end() -> None:
  """Ends the workers when the program exits. By then TFF's own attempt to end them would fail."""
  reap_workers()
  private_apis.forget_workers()


def _watch(pid: int) -> None:
  _watchdogs.append(
    subprocess.Popen(
      ['/bin/sh', '-c', _WATCHDOG, str(pid)],
      stdin=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      start_new_session=True,
    )
  )


def _workers() -> 'list[psutil.Process]':
  """Returns the running workers of TFF among the children of this process."""
  import psutil

  workers = []
  for child in psutil.Process().children():
    with contextlib.suppress(psutil.NoSuchProcess):
      if child.name() == private_apis.WORKER and child.status() != psutil.STATUS_ZOMBIE:
        workers.append(child)
  return workers
