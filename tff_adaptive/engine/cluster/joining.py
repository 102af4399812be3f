"""Joining a Ray cluster: `ray.init`, which takes over signals, waits in silence, and prints."""

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
_FLUSH_SECONDS = 5.0
_HINT_SECONDS = 15.0


def join(address: str, cpus: int, has_gpus: bool = False) -> Callable[[], None]:
  """Joins a cluster, or starts one of this machine.

  Args:
    address: 'local': a cluster of this machine alone, which ends with this process; 'auto': the
      one that RAY_ADDRESS names, or that runs here; or 'host:port'. A cluster that this process
      has joined already (`ray.init`) is used whatever the address.
    cpus: Processors of a local one.
    has_gpus: Whether a local one has this machine's GPUs too.

  Returns:
    What leaves the cluster, if it was joined here, and ends a local one.

  Raises:
    WorkerError: If Ray is not installed, or the cluster cannot be joined.
  """
  if importlib.util.find_spec('ray') is None:
    raise errors.WorkerError('Ray is not installed: pip install tff-adaptive[ray], or ray itself')
  if address == 'local' and not _is_initialized():
    try:
      local_ray.import_ray()
    except RuntimeError as error:
      raise errors.WorkerError(str(error)) from None
  import ray

  # Of the calls of a round that fails the first one's error is raised; Ray prints others'.
  os.environ.setdefault('RAY_IGNORE_UNHANDLED_ERRORS', '1')
  if ray.is_initialized():
    return lambda: None
  named = os.environ.get('RAY_ADDRESS', '') if address == 'auto' else ''
  where = f"'auto' (RAY_ADDRESS={named})" if named else repr(address)
  try:
    if address != 'local':
      await_listener(named or address)
    is_local = address == 'local'
    hint = contextlib.nullcontext() if is_local else hint_after(_HINT_SECONDS, where)
    with signals_kept(), quiet(), hint:
      if is_local:
        return local_ray.LocalRay(cpus, has_gpus).close
      warnings.filterwarnings('ignore', 'Tip: In future versions of Ray', FutureWarning)
      ray.init(address=address, log_to_driver=False, logging_level='ERROR')
      return ray.shutdown
  except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
    reason = ' '.join(str(error).split())
    raise errors.WorkerError(
      f'no Ray cluster can be joined at {where} ({reason:.300}): start one (ray start'
      ' --head), correct the address, or set its token (RAY_AUTH_TOKEN_PATH)'
    ) from None


def _is_initialized() -> bool:
  return 'ray' in sys.modules and sys.modules['ray'].is_initialized()


def await_listener(address: str) -> None:
  """Waits until something listens at an address: Ray waits for minutes, and no signal ends that.

  Args:
    address: 'host:port'. Others, which Ray looks up, are not tried.

  Raises:
    OSError: If nothing has accepted a connection for some 20 s.
  """
  host, _, port = address.rpartition(':')
  if not host or '/' in host or not port.isdecimal():
    return
  end = time.monotonic() + _ANSWER_SECONDS
  while True:
    try:
      socket.create_connection((host.strip('[]'), int(port)), timeout=_ANSWER_SECONDS).close()
      return
    except OSError:
      if time.monotonic() > end:
        raise
    time.sleep(0.5)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
  """Keeps Ray's core in this process from printing that nobody collects its metrics.

  It takes the level of its messages from the environment, and prints that it does, to file
  descriptor 2: this line is left out of what is printed meanwhile.
  """
  stderr = os.dup(2)
  end, start = os.pipe()
  os.dup2(start, 2)
  os.close(start)

  def forward() -> None:
    with open(end, 'rb') as lines:
      for line in lines:
        if b'Set ray log level' not in line:
          os.write(stderr, line)

  forwarder = threading.Thread(target=forward, daemon=True)
  forwarder.start()
  level = os.environ.get('RAY_BACKEND_LOG_LEVEL', 'fatal')
  try:
    with local_ray.environment({'RAY_BACKEND_LOG_LEVEL': level}):
      yield
  finally:
    os.dup2(stderr, 2)  # The pipe closes, unless a process that was started holds it.
    forwarder.join(_FLUSH_SECONDS)
    if not forwarder.is_alive():
      os.close(stderr)


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
  """Keeps what a program does at SIGTERM: Ray would put its own in place."""
  is_main = threading.current_thread() is threading.main_thread()
  before = signal.getsignal(signal.SIGTERM)
  try:
    yield
  finally:
    if is_main:
      signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def hint_after(seconds: float, where: str) -> Iterator[None]:
  """Says what may be wrong while a cluster does not answer: Ray waits long, and says nothing."""

  def hint() -> None:
    warnings.warn(
      f'still waiting for the Ray cluster at {where}: is it there, and is its token here'
      ' (RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH)?',
      stacklevel=1,
    )

  timer = threading.Timer(seconds, hint)
  timer.daemon = True
  timer.start()
  try:
    yield
  finally:
    timer.cancel()
