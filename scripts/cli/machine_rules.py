"""Rules about the engine, devices and workers; see `rules`."""

from collections.abc import Callable

from .groups import runtime
from .settings import Settings


def _ray_has_its_own_gpus(settings: Settings) -> str | None:
  if settings.runtime.ray is not None and settings.runtime.device == 'gpu':
    return '--device=gpu does not go with --ray: give --gpus_per_worker=1, say.'
  return None


def _ray_has_its_own_threads(settings: Settings) -> str | None:
  if settings.runtime.ray is None:
    return None
  for name, hint in runtime.ONE_PROCESS.items():
    if getattr(settings.runtime, name) is not None:
      return f'--{name} does not go with --ray: {hint}.'
  return None


# A subround is what one worker gets to do.
def _every_worker_has_a_subround(settings: Settings) -> str | None:
  workers = settings.runtime.ray_workers or 0
  if settings.runtime.ray is None or (settings.runtime.subrounds or 0) >= workers:
    return None
  return (
    f'--subrounds must be at least {workers}, the number of workers, found'
    f' {settings.runtime.subrounds}: some workers would be idle.'
  )


# It would do no harm, but the user expects more than there is.
def _no_more_clients_at_once_than_in_a_round(settings: Settings) -> str | None:
  cohort = settings.most_clients
  for name in runtime.ONE_PROCESS:
    value = getattr(settings.runtime, name)
    if value is not None and value > cohort:
      return (
        f'--{name} must be at most {cohort}, the number of clients in a round, found {value}: give'
        ' fewer.'
      )
  return None


def _native_engine_has_no_gpu(settings: Settings) -> str | None:
  if settings.runtime.device == 'gpu' and settings.runtime.engine == 'native':
    return (
      "--device=gpu does not go with --engine=native: TFF's worker is built without CUDA. Leave one"
      ' of them out.'
    )
  return None


def _compiled_operations_are_in_their_place(settings: Settings) -> str | None:
  compiled = settings.compiled_option
  chosen_runtime = settings.runtime
  for flag, is_given in (
    ('--engine=native', chosen_runtime.engine == 'native'),
    ('--device=gpu', chosen_runtime.device == 'gpu'),
    ('--gpus_per_worker', chosen_runtime.gpus_per_worker),
    ('--mixed_precision', chosen_runtime.mixed_precision),
    ('--xla', chosen_runtime.xla),
  ):
    if compiled and is_given:
      return (
        f'--task_option={compiled} does not go with {flag}: it is an operation of float32, for the'
        ' graph engine on a CPU. Leave one of them out.'
      )
  return None


RULES: tuple[Callable[[Settings], str | None], ...] = (
  _ray_has_its_own_gpus,
  _ray_has_its_own_threads,
  _every_worker_has_a_subround,
  _no_more_clients_at_once_than_in_a_round,
  _native_engine_has_no_gpu,
  _compiled_operations_are_in_their_place,
)
