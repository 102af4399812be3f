"""The clients of TFF computations in the workers of a Ray cluster, the server's part here."""

import atexit
import math
from collections.abc import Callable
from typing import Any

import tensorflow_federated as tff

from tff_adaptive._utils import client_references
from tff_adaptive.devices import placement, threads
from tff_adaptive.engine.cluster import joining, ray_worker, schedule, subrounds as subrounds_lib
from tff_adaptive.engine.graph import context

_PATIENCE_SECONDS = 60.0


class RayContext(subrounds_lib.SubroundContext):
  """Runs what a computation's clients do in a Ray cluster's workers.

  A worker, or a node, that ends in the midst of a round is reported, and its subrounds are done by
  the others: a result is made of exactly one result of each subround.

  Attributes:
    each: Has workers call a function with each of some arguments; see `ray_pool.RayPool.each`.
    on_each_node: Has a worker of each node call a function; see `ray_pool.RayPool.on_each_node`.
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
    """Joins a cluster, or starts one; its workers begin to start.

    Args:
      address: 'local': a cluster of this machine alone, which ends with this process; 'auto': the
        one that RAY_ADDRESS names, or that runs here; or 'host:port'. A cluster that this process
        has joined already (`ray.init`) is used whatever the address.
      workers: How many train at once; default: as many as there is room for.
      cpus_per_worker: Processors of each: so many clients train in it at once, on a thread each.
      gpus_per_worker: GPUs of each; with a fraction several share one, and its memory as needed.
      memory_per_worker: GB that Ray keeps for each, so that a node is given no more workers than it
        has memory for; 0: it counts processors and GPUs alone.
      subrounds: Into how many parts a cohort is divided; default 4, or the number of workers if
        more. Results with the same number are equal to the bit, whatever the number of workers.
      server: The engine of the server's part; default a `GraphContext`, on the processors if the
        workers have GPUs.
      patience: Seconds after which what a worker does is given to another one too, if it also
        takes ten times as long as others of late; so long a cluster may be without any worker.

    Raises:
      ValueError: If a number is out of its range, or a cluster of this machine shall have GPUs
        and it has none.
      WorkerError: If Ray is not installed, or the cluster cannot be joined.
    """
    if subrounds is None:
      subrounds = max(schedule.DEFAULT_SUBROUNDS, workers or 0)
    for name, number in (
      ('workers', 1 if workers is None else workers),
      ('cpus_per_worker', cpus_per_worker),
      ('subrounds', subrounds),
    ):
      if number < 1 or number != int(number):
        raise ValueError(f'{name} is {number}; it must be a whole number, at least 1')
    is_whole = gpus_per_worker > 1 and float(gpus_per_worker).is_integer()
    if not (0 <= gpus_per_worker <= 1 or is_whole):
      raise ValueError(
        f'gpus_per_worker is {gpus_per_worker}; it must be a fraction of 1, or a whole number'
      )
    if not 0 <= memory_per_worker < math.inf:
      raise ValueError(f'memory_per_worker is {memory_per_worker}; it must be GB, at least 0')
    if patience <= 0:
      raise ValueError(f'patience is {patience}; it must be above 0 seconds: give 60, say')
    room = workers or max(1, threads.num_processors() // cpus_per_worker)
    if gpus_per_worker:
      server = server or context.GraphContext(device='cpu')  # It would take the workers' memory.
      if address == 'local':
        placement.check('gpu')
    self._leave = joining.join(address, room * cpus_per_worker, gpus_per_worker > 0)
    from tff_adaptive.engine.cluster import ray_pool

    settings = ray_worker.Settings(cpus_per_worker, gpus_per_worker, int(memory_per_worker * 10**9))
    self._ray_pool = ray_pool.RayPool(workers, settings, patience)
    if address != 'local':
      self._ray_pool.ask_for_room(workers or subrounds)
      atexit.register(self._ray_pool.ask_for_room, 0)
    super().__init__(subrounds, server=server, train=self._ray_pool.run)
    self.each, self.on_each_node = self._ray_pool.each, self._ray_pool.on_each_node

  @property
  def workers(self) -> int:
    """How many workers there is room for, and are used."""
    return self._ray_pool.size

  def announce(self, occasion: str, report: Callable[[str], None] | None = None) -> None:
    """Says what the next computations are for.

    Args:
      occasion: 'round 7', say; what is reported of workers, and errors, begin with it.
      report: Takes the lines; default: as before, at first as warnings.
    """
    self._ray_pool.occasion = occasion
    if report is not None:
      self._ray_pool.report = report

  def accepts(self, source: client_references.Source) -> bool:
    """Whether cohorts may be references to a source: the workers load values from copies of it.

    Args:
      source: What the references are to; it stays in the cluster as long as this context.
    """
    try:
      self._ray_pool.source(source)
    except Exception as error:  # Whatever pickling raises.
      reason = ' '.join(str(error).split())
      self._ray_pool.report(
        f'what clients have cannot be pickled ({reason:.200}): it is loaded here and sent'
      )
      return False
    return True

  def counters(self) -> dict[str, float]:
    """Counters of the work since the beginning.

    Returns:
      `seconds_waiting` for workers, `bytes_to_workers`, `bytes_from_workers` and
      `subrounds_retried` (merges among them).
    """
    return dict(self._ray_pool.counters)

  def close(self) -> None:
    """Leaves the cluster, if it was joined here, and ends a local one."""
    self._ray_pool.ask_for_room(0)
    atexit.unregister(self._ray_pool.ask_for_room)
    self._leave()


def set_ray_context(address: str = 'local', **options: Any) -> RayContext:
  """Makes a Ray cluster's workers run the clients of TFF computations in this process.

  Whoever reaches a Ray cluster can run any program on it: keep it on a private network, and set a
  token (RAY_AUTH_MODE=token). A local one listens on loopback only, and asks for a token.

  Args:
    address: 'local', 'auto' or 'host:port'; see `RayContext`.
    **options: The others of `RayContext`.

  Returns:
    The context.

  Raises:
    ValueError: See `RayContext`.
    WorkerError: See `RayContext`.
  """
  subrounds_lib.use_one_thread()
  made = RayContext(address, **options)
  tff.framework.set_default_context(made)
  return made
