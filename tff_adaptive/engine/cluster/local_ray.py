"""A Ray cluster of this machine alone, which ends with the process that started it.

Ray's agents outlive a driver that is killed. Here a watchdog, a process of its own, kills all of
the cluster's processes when a pipe from the program closes, however the program ends: they have a
mark in the environment that they were started with, and no other process has. The cluster listens
on loopback only, asks for a token that its processes share, and has a folder that is the user's
alone.
"""

import atexit
import contextlib
import importlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import psutil

_PACKAGES = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
_ENVIRONMENT = {
  'RAY_enable_metrics_collection': '0',  # There is no dashboard to show them.
  'RAY_USAGE_STATS_ENABLED': '0',
  'RAY_worker_niceness': '0',  # As a program without Ray has; Ray's 15 starves beside any other.
  'RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO': '0',  # It would warn; workers hide GPUs by themselves.
}
# Values up to this size travel with a call and its answer, not by way of the object store. Within
# one machine a larger one pays: sums of W4's model, 0.4 MB, take 3 ms less each.
_INLINED, _INLINED_BYTES = 'RAY_max_direct_call_object_size', 2**20
_RAYS_INLINED_BYTES = 100 * 1024
_MARK = 'TFF_ADAPTIVE_RAY'  # Its value is the cluster's folder.


class LocalRay:
  """A cluster of one node, which this process has joined."""

  def __init__(self, cpus: int, has_gpus: bool = False):
    import_ray()
    import ray

    # Paths of sockets must be short. Ray lets everybody write into its folder, and so to its
    # sockets: it is in one of mode 0700.
    self._folder = tempfile.mkdtemp(prefix='tff-ray-', dir='/tmp')
    self._watchdog = subprocess.Popen(
      [sys.executable, __file__, self._folder],
      stdin=subprocess.PIPE,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      start_new_session=True,
      cwd='/',
    )
    atexit.register(self.close)
    python_path = os.pathsep.join([_PACKAGES, *filter(None, [os.environ.get('PYTHONPATH')])])
    # Titles of processes, Ray's workers have some, would be written over the mark.
    marked = {_MARK: self._folder, 'SPT_NOENV': '1', 'PYTHONPATH': python_path}
    try:
      with environment({**_ENVIRONMENT, **marked}):
        ray.init(
          address='local',  # Or it would join the one that RAY_ADDRESS names.
          num_cpus=cpus,
          num_gpus=None if has_gpus else 0,
          include_dashboard=False,
          log_to_driver=False,
          logging_level='ERROR',
          _node_ip_address='127.0.0.1',
          _temp_dir=os.path.join(self._folder, 'ray'),
        )
    except BaseException:
      self.close()
      raise

  def close(self) -> None:
    """Ends it; returns when all of its processes have ended."""
    atexit.unregister(self.close)
    import ray

    ray.shutdown()
    assert self._watchdog.stdin is not None
    self._watchdog.stdin.close()
    self._watchdog.wait()


def import_ray() -> None:
  """Imports Ray so that it asks for a token; a mode and a token that were chosen stay."""
  if 'RAY_AUTH_MODE' not in os.environ:
    if 'ray' in sys.modules:
      raise RuntimeError(
        'Ray was imported before, without a token, and anybody on this machine could use the'
        ' cluster: set RAY_AUTH_MODE=token (or disabled) before importing it'
      )
    os.environ['RAY_AUTH_MODE'] = 'token'
    if 'RAY_AUTH_TOKEN_PATH' not in os.environ:
      os.environ.setdefault('RAY_AUTH_TOKEN', secrets.token_hex(32))
  os.environ.setdefault(_INLINED, str(_INLINED_BYTES))
  with environment(_ENVIRONMENT):  # Some of it is read here, some at the start of the cluster.
    importlib.import_module('ray')


def inlined_bytes() -> int:
  """Up to which size Ray sends a value with a call that is made in this process."""
  return int(os.environ.get(_INLINED, _RAYS_INLINED_BYTES))


@contextlib.contextmanager
def environment(variables: dict[str, str]) -> Iterator[None]:
  """A context with other environment variables."""
  before = {name: os.environ.get(name) for name in variables}
  os.environ.update(variables)
  try:
    yield
  finally:
    for name, value in before.items():
      os.environ.pop(name)
      if value is not None:
        os.environ[name] = value


def watch(folder: str, passes: int = 3, seconds: float = 0.1) -> None:
  """Waits until standard input closes, then kills a folder's cluster, and removes the folder."""
  sys.stdin.read()
  quiet = 0
  while quiet < passes:
    found = processes(folder)
    for process in found:
      with contextlib.suppress(psutil.Error):
        process.kill()
    quiet = 0 if found else quiet + 1
    time.sleep(seconds)
  shutil.rmtree(folder, ignore_errors=True)


def processes(folder: str) -> list[Any]:
  """The processes of the cluster of a folder, and what they have started."""
  found = []
  for process in psutil.process_iter():
    with contextlib.suppress(psutil.Error, OSError):  # Ended, or somebody else's.
      if process.environ().get(_MARK) == folder:
        found.append(process)
  return found


if __name__ == '__main__':
  sys.path.pop(0)  # This folder's modules are not top-level ones.
  watch(sys.argv[1])
