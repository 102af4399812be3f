"""--ray and --subrounds: checks, and what has a Ray cluster's workers run the clients."""

import importlib.util
import re
from typing import TYPE_CHECKING, Any

from tff_adaptive.devices import threads
from tff_adaptive.engine.cluster import schedule

from . import command

if TYPE_CHECKING:
  from . import settings as settings_lib

_OF_RAY = ('ray_workers', 'cpus_per_worker', 'gpus_per_worker')
_NOT_WITH_RAY = {
  'clients_per_step': 'leave it out',
  'parallel_clients': '--cpus_per_worker says how many clients a worker trains at once',
}
_ADDRESS = re.compile(r'(\[[0-9a-fA-F:]+\]|[^\s:]+):\d{1,5}')


def check(values: dict[str, Any]) -> None:
  """Checks the flags and fills in their defaults.

  Args:
    values: Flag name -> value; changed in place.

  Raises:
    ValueError: With one line that names the flag, the value and the hint.
  """
  if values['subrounds'] is not None and values['engine'] != 'graph':
    raise ValueError('--subrounds is for --engine=graph: leave it out')
  if values['ray'] is None:
    for name in _OF_RAY:
      if values[name] is not None:
        raise ValueError(f'--{name} is for --ray: leave it out, or give --ray=local.')
    return
  check_address(values['ray'])
  _check_company(values)
  workers = values['ray_workers'] or 0
  for name, default in (
    ('cpus_per_worker', 1),
    ('gpus_per_worker', 0.0),
    ('subrounds', max(schedule.DEFAULT_SUBROUNDS, workers)),
  ):
    if values[name] is None:
      values[name] = default
  gpus = values['gpus_per_worker']
  if not (0 <= gpus <= 1 or (gpus > 1 and gpus.is_integer())):
    raise ValueError(f'--gpus_per_worker must be from 0 to 1, or a whole number, found {gpus}.')
  if values['subrounds'] < workers:
    raise ValueError(
      f'--subrounds must be at least {workers}, the number of workers, found'
      f' {values["subrounds"]}: some workers would be idle.'
    )


def check_address(address: str) -> None:
  """Refuses what is no address of a cluster, and any where Ray is not installed; ValueError."""
  if address not in ('local', 'auto') and not _ADDRESS.fullmatch(address):
    raise ValueError(f'--ray must be local, auto or host:port, found {address!r}.')
  if importlib.util.find_spec('ray') is None:
    raise ValueError('--ray: Ray is not installed: pip install tff-adaptive[ray]')


def _check_company(values: dict[str, Any]) -> None:
  """Refuses what does not go with --ray."""
  if values['engine'] != 'graph':
    raise ValueError('--engine=native does not go with --ray: leave one of them out.')
  if values['device'] == 'gpu':
    raise ValueError('--device=gpu does not go with --ray: give --gpus_per_worker=1, say.')
  for name, hint in _NOT_WITH_RAY.items():
    if values[name] is not None:
      raise ValueError(f'--{name} does not go with --ray: {hint}.')


def connect(settings: 'settings_lib.Settings') -> Any:
  """Has the workers run the clients, or this process, in subrounds, if the settings say so.

  The engine of the settings must have been set; it runs the server's part.

  Returns:
    The `engine.RayContext`, or None.

  Raises:
    engine.WorkerError: If the cluster cannot be had.
  """
  if settings.subrounds is None:
    return None
  import tensorflow_federated as tff

  from tff_adaptive import engine

  server = tff.framework.get_context_stack().current
  if settings.ray is None:
    engine.set_subround_context(settings.subrounds, server=server)
    return None
  if settings.ray == 'local':
    _say_if_crowded(settings)
  return engine.set_ray_context(
    settings.ray,
    workers=settings.ray_workers,
    cpus_per_worker=settings.cpus_per_worker or 1,
    gpus_per_worker=settings.gpus_per_worker or 0.0,
    subrounds=settings.subrounds,
    server=server,
  )


def _say_if_crowded(settings: 'settings_lib.Settings') -> None:
  wanted = (settings.ray_workers or 1) * (settings.cpus_per_worker or 1)
  if wanted > threads.num_processors():
    command.say(
      f'--ray_workers and --cpus_per_worker ask for {wanted} processors; this machine has'
      f' {threads.num_processors()}, which the workers share: fewer are as fast, in less memory.'
    )
