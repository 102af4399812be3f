"""TFF's own runtime, and the worker process that it starts."""

import atexit
import os
import signal
import subprocess

import tensorflow_federated as tff

_started: list[subprocess.Popen] = []
_patched = False


def set_native_context() -> None:
  """Makes TFF's own runtime the default context; its worker ends with this process.

  TFF 0.87 leaves its worker running at interpreter exit, where it keeps the parent's standard
  output open. Here each worker is remembered when it starts and ended by `reap_workers`.
  """
  remember_workers()
  tff.backends.native.set_sync_local_cpp_execution_context()


def remember_workers() -> None:
  """From now on, `reap_workers` (also called at exit) ends the workers that TFF starts."""
  global _patched
  if _patched:
    return
  _patched = True
  popen = subprocess.Popen

  class RememberingPopen(popen):
    """`subprocess.Popen` that remembers TFF's workers."""

    def __init__(self, args, *more, **options):
      super().__init__(args, *more, **options)
      command = args if isinstance(args, str) else str(args[0])
      if os.path.basename(command).startswith('worker_binary'):
        _started.append(self)

  subprocess.Popen = RememberingPopen  # type: ignore[misc]
  atexit.register(reap_workers)


def reap_workers() -> None:
  """Ends the workers that TFF started in this process and waits for them."""
  while _started:
    worker = _started.pop()
    if worker.poll() is None:
      worker.send_signal(signal.SIGKILL)
      worker.wait()
