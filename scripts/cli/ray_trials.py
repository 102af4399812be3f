"""Runs of a sweep on the nodes of a Ray cluster, in processes like those of one machine."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

from tff_adaptive.devices import threads
from tff_adaptive.engine.cluster import errors, joining, schedule

from . import tensorflow_start, trainers, worker

_TRIES = 4  # Of a run whose host is lost.
_ANSWER_SECONDS = 10.0


class NodeHost(trainers.LocalHost):
  """On a node of the cluster, a Ray actor: does runs, one at a time."""

  last_signal = signal.SIGKILL  # Where this process is killed, the run goes on elsewhere.

  def __init__(self, folder: str, shared: str):
    """Creates it.

    Args:
      folder: The command's working directory, to which what users name is relative.
      shared: A file of the sweep, which all nodes must see.
    """
    self._shared, self._is_seen = shared, os.path.isfile(shared) and os.path.isdir(folder)
    if self._is_seen:
      os.chdir(folder)

  def do(self, job: worker.Job) -> worker.Answer:
    """Does a run."""
    if not self._is_seen:
      import ray

      node = ray.util.get_node_ip_address()
      reason = f'the node {node} does not see {self._shared}: give a folder that all nodes share.'
      return worker.Answer('failed', reason)
    self.begin(job)
    answer = self.answer(None)
    assert answer is not None
    return answer


class RayHost(trainers.LocalHost):
  """A `NodeHost` as seen from the command; where its node is lost, Ray has another take over."""

  def __init__(self, actor: Any):
    """Creates it.

    Args:
      actor: The `NodeHost`'s.
    """
    import ray

    self._ray, self._actor, self._is_stopped = ray, actor, False

  def begin(self, job: worker.Job) -> None:
    """Begins a run."""
    self._answer = self._actor.do.remote(job)

  def answer(self, seconds: float | None = 0.0) -> worker.Answer | None:
    """What came of the run; None: nothing in so many seconds (None: waits for it)."""
    try:
      answer: worker.Answer = self._ray.get(self._answer, timeout=seconds)
      return answer
    except self._ray.exceptions.GetTimeoutError:
      return None
    except self._ray.exceptions.RayError as error:
      reason = ' '.join(str(error).split())
      lost = f'its Ray worker was lost {_TRIES} times ({reason:.200}).'
      return worker.Answer('stopped' if self._is_stopped else 'failed', lost)

  def stop(self, number: int) -> bool:
    """Ends the run; gives up one that waits for room, or whose node is silent."""
    del number  # What Ray starts has SIGINT blocked.
    self._is_stopped = True
    try:
      return bool(self._ray.get(self._actor.stop.remote(signal.SIGTERM), timeout=_ANSWER_SECONDS))
    except self._ray.exceptions.RayError:
      self._ray.kill(self._actor)
      return True

  def close(self) -> None:
    """Ends the process."""
    with contextlib.suppress(self._ray.exceptions.RayError):
      self._ray.get(self._actor.close.remote(), timeout=_ANSWER_SECONDS)


@contextlib.contextmanager
def cluster(
  address: str,
  jobs: int | None,
  cpus: int,
  gpus: float,
  shared: str,
  say: Callable[[str], None],
) -> Iterator[tuple[Callable[[], int], Callable[[], RayHost]]]:
  """A context in which this process has joined a cluster.

  Args:
    address: local, auto or host:port.
    jobs: Runs at a time; None: as many as there is room for.
    cpus: Processors that a run takes.
    gpus: GPUs likewise.
    shared: A file of the sweep, which all nodes must see.
    say: Shows the user a line.

  Yields:
    What says how many runs there is room for, at least one: where there are no nodes yet it waits
    for them; and what makes a host.

  Raises:
    ValueError: If the cluster cannot be joined, or has no such GPUs.
  """
  tensorflow_start.quietly()  # Ray imports some of what TFF does.
  wanted = jobs or max(1, threads.num_processors() // cpus)
  try:
    leave = joining.join(address, wanted * cpus, gpus > 0)
  except errors.WorkerError as error:
    raise ValueError(f'--ray={address}: {error}') from None
  import ray

  def room() -> int:
    nodes = (node['Resources'] for node in ray.nodes() if node['Alive'])
    return sum(schedule.room(node, cpus, gpus) for node in nodes)

  actor: Any = ray.remote(NodeHost).options(
    num_cpus=cpus,
    num_gpus=gpus,
    max_concurrency=2,  # A run, and a signal to it.
    max_restarts=-1,
    max_task_retries=_TRIES - 1,
  )
  try:
    if not room():
      if address == 'local':
        raise ValueError(f'--gpus_per_job={gpus:g}: Ray finds fewer GPUs on this machine.')
      with_gpus = f' and {gpus:g} GPUs' if gpus else ''
      say(f'No node of the cluster has room for {cpus} CPUs{with_gpus}: waiting for one.')
    yield (
      lambda: max(1, min(room(), jobs or room())),
      lambda: RayHost(actor.remote(os.getcwd(), os.path.abspath(shared))),
    )
  finally:
    leave()
