"""Settings of the engine, its devices, and the workers of a Ray cluster."""

import dataclasses
import importlib.util
import re
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive.devices import cuda, threads
from tff_adaptive.engine.cluster import schedule
from tff_adaptive.environment import check as environment

from .. import fields

# Flags for the graph engine in one process, and what to do instead with --ray.
ONE_PROCESS = {
  'clients_per_step': 'leave it out',
  'parallel_clients': '--cpus_per_worker says how many clients a worker trains at once',
}
_GRAPH = fields.Needs('engine', ('graph',))
_ADDRESS = re.compile(r'(\[[0-9a-fA-F:]+\]|[^\s:]+):\d{1,5}')


def check_address(name: str, address: str) -> None:
  """Raises ValueError if an address of a cluster has no valid form, or Ray is not installed."""
  if address not in ('local', 'auto') and not _ADDRESS.fullmatch(address):
    raise ValueError(f'{name} must be local, auto or host:port, found {address!r}.')
  if importlib.util.find_spec('ray') is None:
    raise ValueError(f'{name}: Ray is not installed: pip install tff-adaptive[ray]')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtime(fields.Group):
  """The settings of engine, devices and workers; see `--help`."""

  TITLE = 'Where it runs'

  engine: str = fields.flag(
    "graph: one TensorFlow graph a round; native: TFF's own runtime.",
    'graph',
    choices=('graph', 'native'),
  )
  clients_per_step: int | None = fields.count(
    'Clients that train together, as batched operations, in the graph engine. Default: one; on a'
    ' GPU the cohort, at most 32, if the model takes a client axis. Lower it if memory runs'
    ' out.',
    needs=_GRAPH,
  )
  parallel_clients: int | None = fields.count(
    'Clients that train at the same time, each on a thread, in the graph engine. Memory grows with'
    ' it. Default: the number of processors, but at most 4 and the clients of a round. If it'
    ' is at least the number of processors, TensorFlow uses one thread for each operation, unless'
    ' TF_NUM_INTRAOP_THREADS is set.',
    needs=_GRAPH,
    changes_numbers=False,
  )
  device: str | None = fields.flag(
    'Device of the graph engine: auto, cpu or gpu. Several GPUs divide the clients. Default auto: a'
    ' GPU if TensorFlow has one.',
    choices=cuda.DEVICES,
  )
  mixed_precision: str | None = fields.flag(
    'bfloat16 or float16: clients compute predictions and gradients in this type; everything else'
    ' stays float32. Gradients differ by some percent. With float16 gradients are scaled by 1024,'
    ' and a client in which they overflow counts as diverged. Default: float32 throughout.',
    choices=('bfloat16', 'float16'),
  )
  xla: bool | None = fields.flag(
    'Compile the local step by XLA, for GPUs. On a CPU it was faster for an MLP and twice as slow'
    ' for a CNN. Dropout then draws different numbers. Default no.'
  )
  ray: str | None = fields.flag(
    'Train clients on a Ray cluster: local, a cluster of this machine that ends with the command;'
    ' auto, the cluster of RAY_ADDRESS or of this machine; or host:port. Default: train in this'
    ' process.',
    check=check_address,
    needs=_GRAPH,
    changes_numbers=False,
  )
  ray_workers: int | None = fields.count(
    'The most workers. Default: as many as there is room for.', needs='ray', changes_numbers=False
  )
  cpus_per_worker: int | None = fields.count(
    'Processors of a worker, and the number of clients that it trains at once. Default 1.',
    needs='ray',
    changes_numbers=False,
  )
  gpus_per_worker: float | None = fields.flag(
    "GPUs of a worker; with 0.25 four share one. The server's part stays on"
    ' processors. Default 0: workers use processors only.',
    needs='ray',
  )
  memory_per_worker: float | None = fields.number(
    'GB of memory that Ray reserves for a worker: a node gets no more workers than it has memory'
    ' for. Default: only processors and GPUs are counted.',
    validation.above_zero,
    needs='ray',
    changes_numbers=False,
  )
  check_ray: bool | None = fields.flag(
    'Check the cluster for this run, and train nothing: each node trains one step of a few clients,'
    ' and must have the same versions, the data, and give the same bits as this process. Nothing is'
    ' written.',
    needs='ray',
    changes_numbers=False,
  )
  subrounds: int | None = fields.count(
    'Number of parts of equal cost into which a cohort is divided. It changes the last bits of'
    ' results; the number of workers does not. Default with --ray 4, or --ray_workers if larger;'
    ' else 1.',
    needs=_GRAPH,
  )

  @classmethod
  def defaults(cls, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the defaults of the workers' flags if --ray is given, else {}."""
    if values['ray'] is None:
      return {}
    subrounds = max(schedule.DEFAULT_SUBROUNDS, values['ray_workers'] or 0)
    return {'cpus_per_worker': 1, 'gpus_per_worker': 0.0, 'subrounds': subrounds}

  def check(self) -> None:
    """Raises ValueError if what is asked for is not on this machine."""
    if self.engine == 'native' and environment.native_problem():
      raise ValueError(f'--engine=native: {environment.native_problem()} (--engine=graph).')
    if self.device != 'gpu' or self.engine == 'native' or self.ray is not None:
      return  # `rules` refuses a GPU with these.
    try:
      cuda.check_libraries()
    except ValueError as error:
      raise ValueError(f'--device=gpu: {error} (--device=cpu).') from None

  def build(self, cohort: int, *, is_compiled: bool = False) -> Any:
    """Sets the engine that runs TFF computations. Call it before TensorFlow's first operation.

    `cohort` is the number of clients in a round, and `is_compiled` says whether the task or a
    part uses a compiled operation. Returns the `engine.RayContext` of --ray, else None. Raises
    ValueError if the device does not exist, and `engine.WorkerError` if the cluster is not
    available.
    """
    import tensorflow_federated as tff

    from tff_adaptive import engine
    from tff_adaptive.devices import placement
    from tff_adaptive.kernels import library

    if self.device == 'cpu' or self.gpus_per_worker or is_compiled:
      placement.hide_gpus()  # From evaluation too: it would take memory of the workers' GPUs.
    if self.engine == 'graph':
      engine.set_graph_context(
        parallel_clients=self.parallel_clients or threads.side_by_side(cohort),
        clients_per_step=self.clients_per_step,
        device=self.device or 'auto',
        results='tensors',
      )
    else:
      engine.set_native_context()
    if is_compiled:
      library.load()  # Now, rather than while the process is built.
    if self.subrounds is None:
      return None
    # The server's part stays in the engine that was set above.
    server = tff.framework.get_context_stack().current
    if self.ray is None:
      engine.set_subround_context(self.subrounds, server=server)
      return None
    return engine.set_ray_context(
      self.ray,
      workers=self.ray_workers,
      cpus_per_worker=self.cpus_per_worker or 1,
      gpus_per_worker=self.gpus_per_worker or 0.0,
      memory_per_worker=self.memory_per_worker or 0.0,
      subrounds=self.subrounds,
      server=server,
    )
