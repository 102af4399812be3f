"""Joining a Ray cluster: `ray.init`, which takes over signals, and waits in silence."""

import contextlib
import importlib.util
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator

from tff_adaptive.engine.cluster import errors, local_ray

_ANSWER_SECONDS = 20.0
_LISTEN_SECONDS = 20.0  # In which a head that starts together with its trainer listens.
_HINT_SECONDS = 15.0


def join(address: str, cpus: int, has_gpus: bool = False) -> Callable[[], None]:
  """Joins a cluster, or starts one of this machine; returns what leaves or ends it.

  `WorkerError` if it cannot be joined. For the address see `ray_context.RayContext`.
  """
  if importlib.util.find_spec('ray') is None:
    raise errors.WorkerError('Ray is not installed: pip install tff-adaptive[ray], or ray itself')
  named = os.environ.get('RAY_ADDRESS', '') if address == 'auto' else ''
  where = f"'auto' (RAY_ADDRESS={named})" if named else repr(address)
  # What has no room on a node would be tried without end.
  os.environ.setdefault('RAY_task_oom_retries', '3')
  if address == 'local' and 'ray' not in sys.modules:
    local_ray.import_ray()
  import ray

  # Of the calls of a round that fails the first one's error is raised; Ray prints others'.
  os.environ.setdefault('RAY_IGNORE_UNHANDLED_ERRORS', '1')
  if ray.is_initialized():
    return lambda: None
  try:
    # Or its core would print half a minute later that nobody collects its metrics.
    level = os.environ.get('RAY_BACKEND_LOG_LEVEL', 'fatal')
    with _signals_kept(), local_ray.environment({'RAY_BACKEND_LOG_LEVEL': level}):
      if address == 'local':
        return local_ray.LocalRay(cpus, has_gpus).close
      check_listener(named or address, _LISTEN_SECONDS)
      warnings.filterwarnings('ignore', 'Tip: In future versions of Ray', FutureWarning)
      hint = (
        f'still waiting for the Ray cluster at {where}: is it there, and is its token here'
        ' (RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH)?'
      )
      timer = threading.Timer(_HINT_SECONDS, warnings.warn, [hint])  # Ray waits in silence.
      timer.daemon = True
      timer.start()
      try:
        ray.init(address=address, log_to_driver=False, logging_level='ERROR')
      finally:
        timer.cancel()
      return ray.shutdown
  except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
    reason = ' '.join(str(error).split())
    if address == 'local':
      raise errors.WorkerError(f'no Ray cluster can be started here: {reason:.300}') from None
    raise errors.WorkerError(
      f'no Ray cluster can be joined at {where} ({reason:.300}): start one (ray start'
      ' --head), correct the address, or set its token (RAY_AUTH_TOKEN_PATH)'
    ) from None


def check_listener(address: str, seconds: float) -> None:
  """Refuses 'host:port' where nothing listens in so long: Ray waits without end; OSError."""
  host, _, port = address.rpartition(':')
  if not host or '/' in host or not port.isdecimal():  # Ray looks it up.
    return
  end = time.monotonic() + seconds
  while True:
    try:
      return socket.create_connection((host.strip('[]'), int(port)), _ANSWER_SECONDS).close()
    except OSError:
      if time.monotonic() >= end:
        raise
    time.sleep(0.5)


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
  """Keeps what a program does at SIGTERM: Ray would put its own in place."""
  before = signal.getsignal(signal.SIGTERM)
  try:
    yield
  finally:
    if threading.current_thread() is threading.main_thread():
      signal.signal(signal.SIGTERM, before)
