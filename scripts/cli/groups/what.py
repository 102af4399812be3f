"""Settings of the task, the algorithm and the optimizers."""

import dataclasses
import os
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import user_code, validation
from tff_adaptive_tasks import catalog

from .. import fields, options

# The flags whose value may be a user's own FILE.py:NAME.
OWN = ('task', 'algorithm', 'server_optimizer', 'client_optimizer')
# The values of `client.local_training.OPTIMIZER_STATES`, without importing TensorFlow.
_STATES = ('reset', 'keep', 'average')
ALGORITHM = 'fed_yogi'  # By default.


@dataclasses.dataclass(frozen=True, kw_only=True)
class What(fields.Group):
  """The settings of task and algorithm; see `--help`."""

  TITLE = 'What is trained'

  task: str = fields.flag('The task: one of the list above, or FILE.py:FUNCTION.', 'digits')
  algorithm: str = fields.flag(
    'The algorithm: one of the list above, your own, FILE.py:NAME, or a chain of these and of the'
    ' parts above, as scaffold+sam.',
    ALGORITHM,
  )
  algorithm_option: tuple[str, ...] = fields.flag(
    'An option of a chain or of your own algorithm, NAME=VALUE, as sam.rho=0.05; may be repeated.',
    [],
  )
  server_optimizer: str = fields.flag(
    'The server optimizer, if the name of the algorithm fixes none: one of the list above (default'
    ' sgd, as published), or your own, FILE.py:NAME. fed_avg also takes nesterov, lamb and'
    ' lion.'
  )
  server_optimizer_option: tuple[str, ...] = fields.flag(
    'An option of a server optimizer of your own, NAME=VALUE; may be repeated.', []
  )
  client_optimizer: str = fields.flag(
    'The client optimizer: one of the list above, or your own, FILE.py:NAME. Default sgd, or'
    ' that of the algorithm.'
  )
  client_optimizer_option: tuple[str, ...] = fields.flag(
    'An option of the client optimizer, NAME=VALUE; see the list above. May be repeated.', []
  )
  client_optimizer_state: str = fields.flag(
    "What happens to the client optimizer's state after a round: reset, keep (by each client) or"
    ' average (by the server, for the next cohort). Default reset, or that of the algorithm.',
    choices=_STATES,
  )
  sam_rho: float = fields.number(
    'rho of sharpness-aware minimization at the clients, with every correction; 0 for none. The'
    ' default is 0 except for FedSAM and similar algorithms.',
    validation.at_least_zero,
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
    'Start from these weights: the folder of a run or of export.py, a .keras or an .npz file.'
    ' Default: drawn by the seed.'
  )

  @property
  def algorithm_entry(self) -> registry.Algorithm:
    """The registry's entry of the algorithm."""
    return registry.algorithm(self.algorithm)

  @property
  def server_entry(self) -> registry.ServerOptimizer:
    """The registry's entry of the server optimizer."""
    return registry.server_optimizer(self.server_optimizer)

  @property
  def client_entry(self) -> registry.ServerOptimizer:
    """The registry's entry of the client optimizer."""
    return registry.client_optimizer(self.client_optimizer)

  @property
  def client_values(self) -> dict[str, Any]:
    """All options of the client optimizer by name, checked. Those not given have their defaults."""
    with fields.about('client_optimizer_option'):
      given = options.parse('client_optimizer_option', self.client_optimizer_option)
      return self.client_entry.values(given)

  @property
  def task_options(self) -> dict[str, Any]:
    """The options of the task by name."""
    return options.parse('task_option', self.task_option)

  @property
  def known_task(self) -> str:
    """The task's name in the catalogue; '' for a user's own task."""
    return catalog_name(self.task)

  def check_files(self) -> None:
    """Raises ValueError if --initial_weights is neither a run nor a .keras or .npz file."""
    from tff_adaptive.training import initial_weights

    if self.initial_weights is None:
      return
    path = initial_weights.file_of(self.initial_weights)
    if os.path.isfile(os.path.join(path, 'config.json')):
      return
    if not (os.path.isfile(path) and path.endswith(('.keras', '.npz'))):
      raise ValueError(
        f'--initial_weights={path} must be the folder of a run or of a keras or npz export, or a'
        ' .keras or .npz file.'
      )

  def sources(self) -> dict[str, user_code.UserCode]:
    """Loads the user's own files, and returns their origins by the flags that name them.

    In a chain with several parts of the user's, the second is algorithm_2, and so on.
    """
    sources = {}
    for name in OWN:
      pieces = [getattr(self, name)]
      if name == 'algorithm':  # A chain may have several parts of the user's.
        pieces = registry.pieces(self.algorithm)
      references = [piece for piece in pieces if user_code.is_reference(piece)]
      for number, reference in enumerate(references, 1):
        flag = name
        if number > 1:
          flag = f'{name}_{number}'
        _, sources[flag] = user_code.load(reference)
    return sources

  def given_as(self, key: str) -> str:
    """Returns the flag and value, --FLAG=VALUE, that name a file; `key` is one of `sources`."""
    flag = 'algorithm'
    if key in OWN:
      flag = key
    return f'--{flag}={getattr(self, flag)}'


def catalog_name(task: str) -> str:
  """Returns a task's name in the catalogue; '' for a user's own task."""
  if task in catalog.names():
    return task
  return ''


def check_task(task: str) -> None:
  """Raises ValueError for an unknown task. A FILE.py:FUNCTION is checked when it is loaded."""
  if not user_code.is_reference(task):
    fields.check_name('task', task, catalog.names())


def entries(values: dict[str, Any]) -> tuple[registry.Algorithm, registry.ServerOptimizer]:
  """Returns the entries that flag `values` name. Raises ValueError if unknown or not compatible."""
  with fields.about('algorithm'):
    algorithm = registry.algorithm(values['algorithm'])
  asked = values['server_optimizer']
  fixed = algorithm.server_optimizer
  with fields.about('server_optimizer'):
    server = registry.server_optimizer(asked or fixed or 'sgd')
  if not registry.takes(algorithm, asked):
    named_after = [
      a.name for a in registry.ALGORITHMS.values() if a.server_optimizer == asked and not a.settings
    ]
    instead = '--algorithm=fed_avg'
    if named_after:
      instead = f'--algorithm={named_after[0]}'
    raise ValueError(
      f'--server_optimizer={asked} does not go with --algorithm={values["algorithm"]}, whose server'
      f' is {fixed}; take {instead}, or a drift-corrected algorithm.'
    )
  return algorithm, server


def folder_name(algorithm: str) -> str:
  """Returns an algorithm's name for folders, but NAME for a FILE.py:NAME with a built-in name."""
  if not user_code.is_reference(algorithm):
    return algorithm
  name = registry.algorithm(algorithm).name
  if name in registry.ALGORITHMS:
    return algorithm.rpartition(':')[2]
  return name
