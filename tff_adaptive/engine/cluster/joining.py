"""Joins a Ray cluster with `ray.init`, but keeps signal handlers and does not wait silently.

If asked for, a local cluster is started, which ends with the process that started it. Run as a
script, this module is the watchdog that ends the local cluster.
"""

import atexit
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import psutil

_ANSWER_SECONDS = 20.0
_LISTEN_SECONDS = 20.0  # How long to wait for a head that starts together with the trainer.
_HINT_SECONDS = 15.0
_PACKAGES = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
_ENVIRONMENT = {
  'RAY_enable_metrics_collection': '0',  # There is no dashboard to show them.
  'RAY_USAGE_STATS_ENABLED': '0',
  'RAY_worker_niceness': '0',  # As without Ray. With Ray's 15, it starves beside other programs.
  'RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO': '0',  # Avoids a warning; workers hide GPUs.
}
_MARK = 'TFF_ADAPTIVE_RAY'  # An environment variable of a local cluster's processes: its folder.


def join(address: str, cpus: int, has_gpus: bool = False) -> Callable[[], None]:
  """Joins a cluster, or starts a local one; returns a function that leaves or ends it.

  For the address see `RayContext`; `cpus` and `has_gpus` are the resources of a local cluster.
  Raises WorkerError if Ray is not installed, or the cluster cannot be joined.
  """
  # The watchdog does not need these modules.
  from tff_adaptive._utils import private_apis
  from tff_adaptive.engine.cluster import errors

  if importlib.util.find_spec('ray') is None:
    raise errors.WorkerError('Ray is not installed: pip install tff-adaptive[ray], or ray itself')
  named = ''
  if address == 'auto':
    named = os.environ.get('RAY_ADDRESS', '')
  where = repr(address)
  if named:
    where = f"'auto' (RAY_ADDRESS={named})"
  # Otherwise Ray would retry a task for ever on a node that has not enough memory for it.
  is_limited = 'RAY_task_oom_retries' in os.environ
  os.environ.setdefault('RAY_task_oom_retries', '3')
  if address == 'local' and 'ray' not in sys.modules:
    import_ray()
  import ray

  # If several calls of a round fail, the first error is raised; Ray would print the others.
  os.environ.setdefault('RAY_IGNORE_UNHANDLED_ERRORS', '1')
  if ray.is_initialized():
    if not is_limited:
      private_apis.reread_ray_settings()
    return lambda: None
  try:
    # Otherwise Ray's core would print, after half a minute, that nobody collects its metrics.
    level = os.environ.get('RAY_BACKEND_LOG_LEVEL', 'fatal')
    with _signals_kept(), environment({'RAY_BACKEND_LOG_LEVEL': level}):
      if address == 'local':
        return _start(cpus, has_gpus)
      check_listener(named or address, _LISTEN_SECONDS)
      _init(address, where)
      return ray.shutdown
  except Exception as error:  # Ray raises plain ones too, such as for a node that starts slowly.
    reason = ' '.join(str(error).split())
    if address == 'local':
      raise errors.WorkerError(f'no Ray cluster can be started here: {reason:.300}') from None
    raise errors.WorkerError(
      f'no Ray cluster can be joined at {where} ({reason:.300}): start one (ray start'
      ' --head), correct the address, or set its token (RAY_AUTH_TOKEN_PATH)'
    ) from None


def _init(address: str, where: str) -> None:
  """Joins the cluster at `address`; warns that it still waits, for the cluster `where`."""
  import ray

  warnings.filterwarnings('ignore', 'Tip: In future versions of Ray', FutureWarning)
  hint = (
    f'still waiting for the Ray cluster at {where}: is it there, and is its token here'
    ' (RAY_AUTH_MODE=token and RAY_AUTH_TOKEN_PATH)?'
  )
  timer = threading.Timer(_HINT_SECONDS, warnings.warn, [hint])  # Ray waits in silence.
  timer.daemon = True  # It does not keep a program that is interrupted from ending.
  timer.start()
  try:
    ray.init(address=address, log_to_driver=False, logging_level='ERROR')
  finally:
    timer.cancel()


def check_listener(address: str, seconds: float) -> None:
  """Raises OSError if nothing listens at 'host:port' within `seconds`. Ray would never give up."""
  host, _, port = address.rpartition(':')
  if not host or '/' in host or not port.isdecimal():  # Not 'host:port'; Ray looks it up.
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
  """A context manager that keeps the program's SIGTERM handler, which Ray would replace."""
  before = signal.getsignal(signal.SIGTERM)
  try:
    yield
  finally:
    if threading.current_thread() is threading.main_thread():
      signal.signal(signal.SIGTERM, before)


def _start(cpus: int, has_gpus: bool) -> Callable[[], None]:
  """Starts a cluster of one node for this process to join; returns a function that ends it.

  Ray's agents outlive a driver that is killed. Therefore a watchdog process kills the cluster's
  processes, which it finds by a mark in their environment, when a pipe from the program closes. The
  cluster listens on loopback only, asks for a token, and has a folder that only the user can read.
  """
  import_ray()
  import ray

  from tff_adaptive._utils import private_apis

  # Paths of sockets must be short. Ray lets everybody write into its own folder, which has its
  # sockets. Therefore this folder around it has mode 0700.
  folder = tempfile.mkdtemp(prefix='tff-ray-', dir='/tmp')
  watchdog = subprocess.Popen(
    [sys.executable, __file__, folder],
    stdin=subprocess.PIPE,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
    start_new_session=True,
    cwd='/',
  )

  def close() -> None:
    """Ends the cluster, and returns when all of its processes have ended."""
    atexit.unregister(close)
    ray.shutdown()
    watchdog.communicate()

  atexit.register(close)
  # Workers import this package, which may be used without being installed.
  python_path = [_PACKAGES]
  if os.environ.get('PYTHONPATH'):
    python_path.append(os.environ['PYTHONPATH'])
  # SPT_NOENV: otherwise the process titles of Ray's workers would overwrite the mark.
  marked = {_MARK: folder, 'SPT_NOENV': '1', 'PYTHONPATH': os.pathsep.join(python_path)}
  # For the processes that Ray starts, what `ray_on_loopback` is for this one.
  on_loopback = {'RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER': '0'}
  try:
    with environment({**_ENVIRONMENT, **marked, **on_loopback}), private_apis.ray_on_loopback():
      ray.init(
        address='local',  # Otherwise Ray would join the cluster that RAY_ADDRESS names.
        num_cpus=cpus,
        num_gpus=None if has_gpus else 0,  # With None Ray takes all of the machine's.
        include_dashboard=False,
        log_to_driver=False,
        logging_level='ERROR',
        _node_ip_address='127.0.0.1',
        _temp_dir=os.path.join(folder, 'ray'),
      )
  except BaseException:
    close()
    raise
  return close


def import_ray() -> None:
  """Imports Ray with token authentication; keeps a mode or token that the user has chosen."""
  if 'RAY_AUTH_MODE' not in os.environ:
    if 'ray' in sys.modules:
      raise RuntimeError(
        'Ray was imported before, without a token, and anybody on this machine could use the'
        ' cluster: set RAY_AUTH_MODE=token (or disabled) before importing it'
      )
    os.environ['RAY_AUTH_MODE'] = 'token'
    if 'RAY_AUTH_TOKEN_PATH' not in os.environ:
      os.environ.setdefault('RAY_AUTH_TOKEN', secrets.token_hex(32))
  with environment(_ENVIRONMENT):  # Ray reads some of it now, some at the start of the cluster.
    importlib.import_module('ray')


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
  """A context manager that sets environment variables and restores them at the end."""
  before = {name: os.environ.get(name) for name in variables}
  os.environ.update(variables)
  try:
    yield
  finally:
    for name, value in before.items():
      os.environ.pop(name)
      if value is not None:
        os.environ[name] = value


def watch(folder: str) -> None:
  """Waits until standard input closes, then kills the cluster of `folder` and removes `folder`."""
  sys.stdin.read()
  looks_in_vain = 0
  while looks_in_vain < 3:  # A process may have started another one before it was killed.
    marked = processes(folder)
    for process in marked:
      with contextlib.suppress(psutil.Error):
        process.kill()
    looks_in_vain += 1
    if marked:
      looks_in_vain = 0
    time.sleep(0.1)
  shutil.rmtree(folder, ignore_errors=True)


def processes(folder: str) -> list[Any]:
  """Returns the processes whose environment has the mark of the cluster of `folder`."""
  marked = []
  for process in psutil.process_iter():
    with contextlib.suppress(psutil.Error, OSError):  # It has ended, or is another user's.
      if process.environ().get(_MARK) == folder:
        marked.append(process)
  return marked


if __name__ == '__main__':
  sys.path.pop(0)  # This folder's modules are not top-level ones.
  watch(sys.argv[1])
