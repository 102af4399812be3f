"""What is trained: the task, the algorithm and the server optimizer."""

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive import registry
from tff_adaptive._utils import user_code
from tff_adaptive_tasks import catalog

from .. import fields, options

if TYPE_CHECKING:
  from .. import settings as settings_lib

OWN = ('task', 'algorithm', 'server_optimizer')  # Each may be a user's own FILE.py:NAME.


@dataclasses.dataclass(frozen=True, kw_only=True)
class What(fields.Group):
  """The settings of task and algorithm; see `--help` for what each means."""

  TITLE = 'What'

  task: str = fields.flag('The task: of the list above, or FILE.py:FUNCTION.', 'digits')
  algorithm: str = fields.flag(
    'The algorithm: of the list above, or FILE.py:NAME of your own.', 'fed_yogi'
  )
  algorithm_option: tuple[str, ...] = fields.flag(
    'A hyperparameter of an algorithm of your own, NAME=VALUE; may be repeated.', []
  )
  server_optimizer: str = fields.flag(
    'The server optimizer, where the name of the algorithm fixes none: of the list above (default'
    ' sgd, as published), or FILE.py:FUNCTION of your own, which fed_avg takes too.'
  )
  server_optimizer_option: tuple[str, ...] = fields.flag(
    'An option of a server optimizer of your own, NAME=VALUE; may be repeated.', []
  )
  task_option: tuple[str, ...] = fields.flag(
    "A task's own option, NAME=VALUE, such as only_digits=true or alpha=0.3; may be repeated.", []
  )
  seed: int = fields.count(
    'Seeds the partition, the initial weights, sampling and shuffling.',
    0,
    zero='the default',
    high=2**62 - 1,
  )
  initial_weights: str | None = fields.flag(
    'Start from these weights: the folder of a run, a .keras or an .npz file. Default: drawn by the'
    ' seed.'
  )

  @property
  def algorithm_entry(self) -> registry.Algorithm:
    """The algorithm's entry."""
    return registry.algorithm(self.algorithm)

  @property
  def server_entry(self) -> registry.ServerOptimizer:
    """The server optimizer's entry."""
    return registry.server_optimizer(self.server_optimizer)

  @property
  def task_options(self) -> dict[str, Any]:
    """The task's options, by name."""
    return options.parse('task_option', self.task_option)

  @property
  def known_task(self) -> str:
    """The name of a task of the catalogue; '' for a user's own."""
    return '' if user_code.is_reference(self.task) else self.task

  def check(self, settings: 'settings_lib.Settings') -> None:
    """Refuses more clients in a round than the task has."""
    cohort = settings.training.clients_per_round
    clients = catalog.num_clients(self.known_task, self.task_options)
    if clients is not None:
      check_cohort(cohort, clients)

  def check_files(self) -> None:
    """Refuses initial weights that are not there; ValueError."""
    path = self.initial_weights
    if path is None or os.path.isfile(os.path.join(path, 'config.json')):
      return
    if not (os.path.isfile(path) and path.endswith(('.keras', '.npz'))):
      raise ValueError(
        f'--initial_weights={path}: give the folder of a run, a .keras or an .npz file.'
      )

  def sources(self) -> dict[str, user_code.UserCode]:
    """The user's own files by the flag that names them."""
    own = [name for name in OWN if user_code.is_reference(getattr(self, name))]
    return {name: user_code.load(getattr(self, name))[1] for name in own}


def check_task(task: str) -> None:
  """Refuses a task that is neither in the catalogue nor FILE.py:FUNCTION of a file."""
  if not user_code.is_reference(task):
    fields.check_name('task', task, catalog.names())
    return
  path, _, name = task.rpartition(':')
  if not name.isidentifier() or not os.path.isfile(path):
    raise ValueError(f'--task={task}: write FILE.py:FUNCTION, a function of a file that there is.')


def check_cohort(cohort: int, clients: int) -> None:
  """Refuses more clients in a round than there are; ValueError."""
  if cohort > clients:
    raise ValueError(
      f'--clients_per_round must be from 1 to {clients}, the clients there are; found {cohort}:'
      ' give fewer.'
    )


def entries(values: dict[str, Any]) -> tuple[registry.Algorithm, registry.ServerOptimizer]:
  """Returns the entries of algorithm and server optimizer; ValueError if they do not match."""
  algorithm = _entry('algorithm', values['algorithm'], registry.algorithm)
  asked, fixed = values['server_optimizer'], algorithm.server_optimizer
  server = _entry('server_optimizer', asked or fixed or 'sgd', registry.server_optimizer)
  # FedAvg's mean of the models with a server optimizer of one's own is Algorithm 2 with it.
  is_open = fixed == 'sgd' and server.source is not None
  if fixed is not None and asked not in (None, fixed) and not is_open:
    named_after = [a.name for a in registry.ALGORITHMS.values() if a.server_optimizer == asked]
    instead = f'--algorithm={named_after[0]}' if named_after else '--algorithm=fed_avg'
    raise ValueError(
      f'--server_optimizer={asked} does not go with --algorithm={values["algorithm"]}, whose server'
      f' is {fixed}; take {instead}, or a drift-corrected algorithm.'
    )
  return algorithm, server


def _entry(flag: str, spec: str, find: Any) -> Any:
  try:
    return find(spec)
  except ValueError as error:
    raise ValueError(f'--{flag}: {error}') from None


def defaults(
  values: Mapping[str, Any], algorithm: registry.Algorithm, server: str
) -> dict[str, Any]:
  """Returns the values of the task's paper for the server optimizer, and the papers' own."""
  task = '' if user_code.is_reference(values['task']) else values['task']
  found = {
    'client_schedule': 'constant',
    'server_schedule': 'constant',
    'client_weighting': 'examples',
    'weight_decay': 0.0,
    'fill_last_batch': False,
    **catalog.sizes(task),
  }
  if algorithm.client_weighting == 'uniform':
    found['client_weighting'] = 'uniform'
  if algorithm.is_stateful:
    # On one machine the trainer's memory is as near to the workers as a file.
    is_cluster = values['ray'] not in (None, 'local')
    found['client_state_store'] = 'shards' if is_cluster else 'memory'
  found['max_examples_per_client'] = found['max_examples_per_client'] or 0
  tuned = catalog.rates(task, server) if server in catalog.SERVER_OPTIMIZERS else {}
  if algorithm.server_optimizer is not None and tuned:
    return {**found, **tuned}
  # A correction has FedAvg's client rate and, as published, the server rate 1; composed with
  # another server optimizer, what was tuned for that one.
  more = {} if server == 'sgd' else tuned
  client = {'client_learning_rate': catalog.rates(task, 'sgd')['client_learning_rate']}
  return {**found, 'server_learning_rate': 1.0, **more, **client}
