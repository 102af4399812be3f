"""What does the runs of a sweep: processes of this machine, or of a Ray cluster's nodes."""

from collections.abc import Callable
from typing import Any

from tff_adaptive.devices import threads
from tff_adaptive.engine.cluster import errors, joining

from . import ray_options, tensorflow_start


def check(address: str | None, cpus: int | None, gpus: float | None) -> None:
  """Checks --ray, --cpus_per_job and --gpus_per_job of a sweep.

  Raises:
    ValueError: With one line that names the flag, the value and the hint.
  """
  if address is None:
    for name, value in (('cpus_per_job', cpus), ('gpus_per_job', gpus)):
      if value is not None:
        raise ValueError(f'--{name} is for --ray: leave it out, or give --ray=local.')
    return
  ray_options.check_address(address)
  if gpus is not None and not (0 <= gpus <= 1 or (gpus > 1 and gpus.is_integer())):
    raise ValueError(f'--gpus_per_job must be from 0 to 1, or a whole number, found {gpus}.')


def build(
  address: str | None,
  jobs: int | None,
  cpus: int | None,
  gpus: float | None,
  shared: str,
  say: Callable[[str], None],
) -> Any:
  """Returns a context that has `worker_pool.WorkerPool`'s methods.

  Args:
    address: Of a Ray cluster; None: this machine.
    jobs: Runs at a time; None: one, in a cluster as many as there is room for.
    cpus: Processors that a run takes of a cluster; None: 1.
    gpus: GPUs likewise; None: 0.
    shared: A file of the sweep, which all nodes must see.
    say: Shows the user a line.

  Raises:
    ValueError: If the cluster cannot be joined.
  """
  if address is None:
    from . import worker_pool

    return worker_pool.WorkerPool[Any](jobs or 1)
  tensorflow_start.quietly()  # Ray imports some of what TFF does.
  cpus, gpus = cpus or 1, gpus or 0.0
  room = jobs or max(1, threads.num_processors() // cpus)
  try:
    leave = joining.join(address, room * cpus, gpus > 0)
  except errors.WorkerError as error:
    raise ValueError(f'--ray={address}: {error}') from None
  from . import ray_trials  # Ray must be imported by `join`.

  resources = ray_trials.Resources(cpus, gpus)
  if address == 'local' and not ray_trials.room(resources):
    leave()
    raise ValueError(f'--gpus_per_job={gpus:g}: Ray finds fewer GPUs on this machine.')
  return ray_trials.RayTrials[Any](jobs, resources, shared, say, leave)
