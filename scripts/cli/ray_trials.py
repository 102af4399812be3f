"""Runs of a sweep on the nodes of a Ray cluster, each in a process like those of one machine."""

import contextlib
import dataclasses
import os
import signal
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import ray

from tff_adaptive.engine.cluster import node_room

from . import worker, worker_pool

_TRIES = 4  # Of a run whose host is lost.
_ANSWER_SECONDS = 10.0
T = TypeVar('T')


@dataclasses.dataclass(frozen=True)
class Resources:
  """What Ray reserves for a run.

  Attributes:
    cpus: Processors.
    gpus: GPUs, or a part of one.
  """

  cpus: int = 1
  gpus: float = 0.0

  def __str__(self) -> str:
    return f'{self.cpus} CPUs' + (f' and {self.gpus:g} GPUs' if self.gpus else '')


class _Host:
  """On a node of the cluster: a process that does runs, one at a time."""

  def __init__(self, folder: str, shared: str, program: str):
    """Creates it.

    Args:
      folder: The command's working directory, to which what users name is relative.
      shared: A file of the sweep, which all nodes must see.
      program: See `worker_pool.WorkerPool`.
    """
    self._pool: worker_pool.WorkerPool[str] | None = None
    self._refusal = ''
    self._beginning = threading.Lock()  # A run is stopped before it begins, or after that.
    if os.path.isfile(shared) and os.path.isdir(folder):
      os.chdir(folder)
      self._pool = worker_pool.WorkerPool(1, program, signal.SIGKILL)
    else:
      node = ray.util.get_node_ip_address()
      self._refusal = f'the node {node} does not see {shared}: give a folder that all nodes share.'

  def do(self, job: worker.Job, key: tuple[Any, ...] | None) -> worker.Answer:
    """Does a run."""
    if self._pool is None:
      return worker.Answer('failed', self._refusal)
    with self._beginning:
      self._pool.begin('', job, key)
    found: list[tuple[str, worker.Answer]] = []
    while not found:
      found = self._pool.wait(60.0)
    return found[0][1]

  def is_there(self) -> bool:
    """Answers when it has been made."""
    return True

  def stop(self) -> None:
    """Has the run save and end, also one that begins later."""
    if self._pool is not None:
      with self._beginning:
        self._pool.send(signal.SIGTERM)

  def close(self) -> None:
    """Ends the process."""
    if self._pool is not None:
      self._pool.__exit__()


@dataclasses.dataclass
class _Work(Generic[T]):
  """A run that a host does, a reference that is ready when the host is there, and signals."""

  ticket: T
  job: worker.Job
  key: tuple[Any, ...] | None
  host: Any = None
  there: Any = None
  tries: int = 1
  is_asked: bool = False

  def stop(self) -> None:
    """Has it save and end."""
    self.is_asked = True
    self.host.stop.remote()


class RayTrials(Generic[T]):
  """Like `worker_pool.WorkerPool`, on a cluster; a run whose host is lost goes on in another."""

  def __init__(
    self,
    jobs: int | None,
    resources: Resources,
    shared: str,
    say: Callable[[str], None],
    leave: Callable[[], None],
  ):
    """Creates it, without any host, on the cluster that this process has joined.

    Args:
      jobs: Runs at a time; None: as many as there is room for.
      resources: What each takes.
      shared: A file of the sweep, which all nodes must see.
      say: Shows the user a line.
      leave: Leaves the cluster.
    """
    self._jobs, self._resources, self._say, self._leave = jobs, resources, say, leave
    self._arguments = (os.getcwd(), os.path.abspath(shared), worker_pool.WORKER)
    self._remote: Any = ray.remote(_Host).options(  # Two at a time: a run, and a signal to it.
      num_cpus=resources.cpus, num_gpus=resources.gpus, max_concurrency=2
    )
    self._idle: list[Any] = []
    self._at_work: dict[Any, _Work[T]] = {}
    self._is_stopping = False
    if not room(resources):
      say(f'No node of the cluster has room for {resources}: waiting for one.')

  def __enter__(self) -> 'RayTrials[T]':
    return self

  def __exit__(self, *unused_exception: object) -> None:
    try:
      self.send(signal.SIGTERM)  # They save and end, if an error left any at work.
      while self._at_work:
        self.wait(1.0)
      for closing in [host.close.remote() for host in self._idle]:
        with contextlib.suppress(ray.exceptions.RayError):
          ray.get(closing)
    finally:
      self._leave()

  @property
  def tickets(self) -> list[T]:
    """What the runs that are being done were given for."""
    return [work.ticket for work in self._at_work.values()]

  @property
  def has_room(self) -> bool:
    """Whether another run can begin now; where there are no nodes yet, one waits for them."""
    most = max(1, room(self._resources))
    return len(self._at_work) < (most if self._jobs is None else min(most, self._jobs))

  def begin(self, ticket: T, job: worker.Job, key: tuple[Any, ...] | None) -> None:
    """As `worker_pool.WorkerPool.begin`; a host replaces its process where the key is another."""
    self._start(_Work(ticket, job, key))

  def wait(self, seconds: float) -> list[tuple[T, worker.Answer]]:
    """As `worker_pool.WorkerPool.wait`."""
    ready, _ = ray.wait([*self._at_work], num_returns=1, timeout=seconds)
    found = self._not_begun() if self._is_stopping else []
    for reference in ready:
      if reference not in self._at_work:
        continue
      work = self._at_work.pop(reference)
      try:
        answer = ray.get(reference)
        self._idle.append(work.host)
      except ray.exceptions.RayError as error:
        if work.tries < _TRIES and not self._is_stopping:
          self._say(f'{os.path.basename(work.job.log)[:-4]}: its Ray worker is lost; it goes on')
          work.tries += 1
          self._start(work)
          continue
        reason = ' '.join(str(error).split())
        answer = worker.Answer('failed', f'its Ray worker was lost {_TRIES} times ({reason:.200}).')
      found.append((work.ticket, answer))
    return found

  def send(self, number: int) -> None:
    """Ends the runs; as SIGTERM, whatever the signal: what Ray starts has SIGINT blocked."""
    del number
    self._is_stopping = True
    for work in self._at_work.values():
      work.stop()

  def _start(self, work: _Work[T]) -> None:
    work.host = self._host()
    work.there = work.host.is_there.remote()
    self._at_work[work.host.do.remote(work.job, work.key)] = work
    if self._is_stopping and not work.is_asked:  # The signal came just before.
      work.stop()

  def _host(self) -> Any:
    """An idle host, if one answers: they may have gone with their nodes; else a new one."""
    while self._idle:
      host = self._idle.pop()
      with contextlib.suppress(ray.exceptions.RayError):
        ray.get(host.is_there.remote(), timeout=_ANSWER_SECONDS)
        return host
    return self._remote.remote(*self._arguments)

  def _not_begun(self) -> list[tuple[T, worker.Answer]]:
    """Gives up the runs whose hosts still wait for room."""
    found = []
    for reference, work in list(self._at_work.items()):
      if not ray.wait([work.there], timeout=0)[0]:
        ray.kill(work.host)
        del self._at_work[reference]
        found.append((work.ticket, worker.Answer('stopped')))
    return found


def room(resources: Resources) -> int:
  """How many runs the cluster that this process has joined has room for."""
  nodes = (node['Resources'] for node in ray.nodes() if node['Alive'])
  return sum(node_room.room(node, resources.cpus, resources.gpus) for node in nodes)
