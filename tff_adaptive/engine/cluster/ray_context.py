"""Runs the clients of TFF computations in the workers of a Ray cluster."""

import atexit
import functools
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow_federated as tff

from tff_adaptive._utils import client_references, validation
from tff_adaptive.devices import placement, threads
from tff_adaptive.engine.cluster import joining, ray_worker, schedule, subrounds as subrounds_lib
from tff_adaptive.engine.graph import context

_PATIENCE_SECONDS = 60.0


class RayContext(subrounds_lib.SubroundContext):
  """A TFF context that runs clients in the workers of a Ray cluster, and the server here.

  A cohort is divided into parts (subrounds) for the workers. If a worker or a node ends, this is
  reported and other workers train its subrounds. Each subround counts exactly once in a result.
  """

  def __init__(
    self,
    address: str = 'local',
    *,
    workers: int | None = None,
    cpus_per_worker: int = 1,
    gpus_per_worker: float = 0,
    memory_per_worker: float = 0,
    subrounds: int | None = None,
    server: context.GraphContext | None = None,
    patience: float = _PATIENCE_SECONDS,
  ):
    """Joins a cluster, or starts one, and starts its workers.

    Args:
      address: 'local' starts a cluster on this machine, which ends with this process. 'auto' joins
        the cluster that RAY_ADDRESS names or that runs here. 'host:port' joins the cluster there.
        If this process has joined a cluster already (`ray.init`), the address is ignored.
      workers: The maximum number of workers. By default the cluster's resources limit it.
      cpus_per_worker: Processors of a worker. A worker trains as many clients at once.
      gpus_per_worker: GPUs of a worker. If it is a fraction, several workers share a GPU.
      memory_per_worker: GB of memory that Ray reserves for a worker, so that a node gets no more
        workers than it has memory for. With 0 only processors and GPUs are counted.
      subrounds: Number of parts into which a cohort is divided. The default is 4, or `workers` if
        that is larger. Results with the same number are equal to the bit, whatever the number of
        workers.
      server: The server's engine; by default a `GraphContext`, on a CPU if the workers have GPUs.
      patience: If the cluster has no room for a worker, the context waits for `patience` seconds
        before it gives up.

    Raises:
      ValueError, TypeError: If a number is out of range or no number, or a local GPU is missing.
      WorkerError: If Ray is not installed, or the cluster cannot be joined.
    """
    if subrounds is None:
      subrounds = max(schedule.DEFAULT_SUBROUNDS, workers or 0)
    if workers is not None:
      validation.count('workers', workers, 'leave it out for all')
    validation.count('cpus_per_worker', cpus_per_worker, 'give 1, say')
    validation.count('subrounds', subrounds, 'give 4, say')
    validation.at_least_zero('memory_per_worker', memory_per_worker, 'give GB such as 4')
    validation.above_zero('patience', patience, 'give 60 seconds, say')
    is_whole = gpus_per_worker > 1 and float(gpus_per_worker).is_integer()
    if not (0 <= gpus_per_worker <= 1 or is_whole):
      raise ValueError(
        f'gpus_per_worker is {gpus_per_worker}; it must be a fraction of 1, or a whole number'
      )
    room = workers or max(1, threads.num_processors() // cpus_per_worker)
    if gpus_per_worker:
      server = server or context.GraphContext(device='cpu')  # It would take the workers' memory.
      if address == 'local':
        placement.check('gpu')
    self._leave = joining.join(address, room * cpus_per_worker, gpus_per_worker > 0)
    from tff_adaptive.engine.cluster import ray_pool, ray_round  # Ray must be installed.

    settings = ray_worker.Settings(cpus_per_worker, gpus_per_worker, int(memory_per_worker * 10**9))
    self._ray_pool = ray_pool.RayPool(workers, settings, patience)
    if address != 'local':  # Such a cluster may add and remove nodes, as it is asked.
      self._ray_pool.ask_for_room(workers or subrounds)
      atexit.register(self._ray_pool.ask_for_room, 0)
    train = functools.partial(ray_round.train, self._ray_pool)
    super().__init__(subrounds, server=server, train=train)

  @property
  def workers(self) -> int:
    """The number of workers in use: those requested, as far as the cluster has room for them."""
    return self._ray_pool.size

  def announce(self, occasion: str, report: Callable[[str], None] | None = None) -> None:
    """Sets the text that begins messages and errors of the next computations.

    Args:
      occasion: The text, such as 'round 7'.
      report: A function that is called with each line to show. None keeps the present function,
        which at first issues a warning.
    """
    self._ray_pool.occasion = occasion
    if report is not None:
      self._ray_pool.report = report

  def accepts(self, source: client_references.Source) -> bool:
    """Returns whether a source can be pickled, so that cohorts may be references to its values.

    Args:
      source: A source of values. Workers load them from copies that live as long as this context.
    """
    try:
      self._ray_pool.source(source)
    except Exception as error:  # Whatever pickling raises.
      reason = ' '.join(str(error).split())
      self._ray_pool.report(
        f"clients' data cannot be pickled ({reason:.200}): this process sends them"
      )
      return False
    return True

  def counters(self) -> dict[str, float]:
    """Returns totals since this context was created, by name.

    They are `seconds_waiting` (for workers), `bytes_to_workers`, `bytes_from_workers`, and
    `subrounds_retried`, the number of subrounds that were given to a worker again.
    """
    return dict(self._ray_pool.counters)

  def each_node(self) -> Iterator[str]:
    """Yields the name of each node; until the next one, clients train on this node alone.

    With it a program can try out each node before a long run. Nodes without room for a worker are
    left out.
    """
    return self._ray_pool.each_node()

  def close(self) -> None:
    """Leaves the cluster if this context joined it; ends the cluster if this context started it."""
    self._ray_pool.ask_for_room(0)
    atexit.unregister(self._ray_pool.ask_for_room)
    self._leave()


def set_ray_context(address: str = 'local', **options: Any) -> RayContext:
  """Makes a new `RayContext` the default context of TFF in this process, and returns it.

  Everyone who can reach a Ray cluster can run programs on it. Keep it on a private network, and set
  a token (RAY_AUTH_MODE=token). A local cluster listens on loopback only and asks for a token.

  Args:
    address: 'local', 'auto' or 'host:port'; see `RayContext`.
    **options: The other arguments of `RayContext`.

  Raises:
    ValueError, TypeError, WorkerError: See `RayContext`.
  """
  subrounds_lib.use_one_thread()
  ray_context = RayContext(address, **options)
  tff.framework.set_default_context(ray_context)
  return ray_context
