"""TFF's own runtime, and the worker process that it starts.

TFF 0.87 leaves its worker running when the program ends, where it keeps the program's standard
output open: a pipe behind it never closes. Here the worker ends with the program, however the
program ends: at exit it is killed, and a watchdog, a shell that waits for the end of a pipe from
the program, sees to it where the program has no time for that.
"""

import atexit
import contextlib
import os
import subprocess

import psutil
import tensorflow_federated as tff

_NAME = 'worker_binary'
# Reads until the program ends, then kills the worker, unless its number is another's by then.
_WATCHDOG = f'read -r _; [ "$(cat /proc/$0/comm 2>/dev/null)" = {_NAME} ] && kill -9 "$0"'
_popen = subprocess.Popen
_watchdogs: list[subprocess.Popen] = []


def set_native_context() -> None:
  """Makes TFF's own runtime the default context; its worker ends with this process."""
  remember_workers()
  tff.backends.native.set_sync_local_cpp_execution_context()


def remember_workers() -> None:
  """From now on, the workers that TFF starts, or has started, end with this process.

  A worker started from now on also gets a session of its own, so that Ctrl-C in a terminal stops
  the program and not the worker of the round that it is about to finish.
  """
  if subprocess.Popen is not _popen:
    return
  subprocess.Popen = _Popen  # type: ignore[misc]
  atexit.register(_at_exit)
  for worker in _workers():
    _watch(worker.pid)


def reap_workers() -> None:
  """Kills the workers that TFF started in this process, and returns when they have ended."""
  for worker in _workers():
    with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
      worker.kill()
      # It stays a child that has ended: TFF has its number, to signal it and to wait for it.
      os.waitid(os.P_PID, worker.pid, os.WEXITED | os.WNOWAIT)
  while _watchdogs:
    with _watchdogs.pop() as watchdog:
      watchdog.kill()


class _Popen(_popen):
  """`subprocess.Popen` that takes care of TFF's workers."""

  def __init__(self, args, *more, **options):
    command = args if isinstance(args, (str, bytes, os.PathLike)) else args[0]
    is_worker = os.path.basename(os.fsdecode(command)) == _NAME
    if is_worker:
      options['start_new_session'] = True
    super().__init__(args, *more, **options)
    if is_worker:
      _watch(self.pid)


def _watch(pid):
  _watchdogs.append(
    _popen(
      ['/bin/sh', '-c', _WATCHDOG, str(pid)],
      stdin=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      start_new_session=True,
    )
  )


def _workers():
  workers = []
  for child in psutil.Process().children():
    with contextlib.suppress(psutil.NoSuchProcess):
      if child.name() == _NAME and child.status() != psutil.STATUS_ZOMBIE:
        workers.append(child)
  return workers


class _Ended(tff.framework.SyncContext):
  """The context of a program that is ending."""

  def invoke(self, comp, arg):
    """Raises RuntimeError."""
    raise RuntimeError('the program is ending: no TFF computation can run any more')


def _at_exit():
  reap_workers()
  # TFF's own clean-up fails, with a traceback, once the modules that it uses are gone; unless the
  # program holds the context elsewhere, it is cleaned up here.
  tff.framework.set_default_context(_Ended())
