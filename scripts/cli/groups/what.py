"""Settings of the task, the algorithm and the optimizers."""

import dataclasses
import os
from collections.abc import Mapping
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
_EPOCHS = 100  # Rounds by default of one client that has the examples of all.


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
    ' sgd, as published), or your own, FILE.py:FUNCTION. fed_avg also takes nesterov, lamb and'
    ' lion.'
  )
  server_optimizer_option: tuple[str, ...] = fields.flag(
    'An option of a server optimizer of your own, NAME=VALUE; may be repeated.', []
  )
  client_optimizer: str = fields.flag(
    'The client optimizer: one of the list above, or your own, FILE.py:FUNCTION. Default sgd, or'
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
    if user_code.is_reference(self.task):
      return ''
    return self.task

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


def check_task(task: str) -> None:
  """Raises ValueError for an unknown task. A FILE.py:FUNCTION is checked when it is loaded."""
  if not user_code.is_reference(task):
    fields.check_name('task', task, catalog.names())


def entries(values: dict[str, Any]) -> tuple[registry.Algorithm, registry.ServerOptimizer]:
  """Returns the entries that flag `values` name. Raises ValueError if unknown or not compatible."""
  with fields.about('algorithm'):
    algorithm = registry.algorithm(values['algorithm'])
  asked, fixed = values['server_optimizer'], algorithm.server_optimizer
  with fields.about('server_optimizer'):
    server = registry.server_optimizer(asked or fixed or 'sgd')
  if not registry.takes(algorithm, asked):
    named_after = [
      a.name for a in registry.ALGORITHMS.values() if a.server_optimizer == asked and not a.settings
    ]
    instead = f'--algorithm={named_after[0]}' if named_after else '--algorithm=fed_avg'
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


def defaults(
  values: Mapping[str, Any], algorithm: registry.Algorithm, server: str
) -> dict[str, Any]:
  """Returns the defaults of task and algorithm by flag, with the learning rates for `server`."""
  task = '' if user_code.is_reference(values['task']) else values['task']
  found = {
    'client_schedule': 'constant',
    'server_schedule': 'constant',
    'client_weighting': 'examples',
    'weight_decay': 0.0,
    'fill_last_batch': False,
    'client_optimizer': 'sgd',
    'client_optimizer_state': 'reset',
    'sam_rho': 0.0,
    **catalog.sizes(task),
  }
  if algorithm.client_weighting == 'uniform':
    found['client_weighting'] = 'uniform'
  if algorithm.pools_clients:
    found = _of_pooled_clients(found, values['client_optimizer'] or 'sgd')
  how_long = ('participation', 'local_steps', 'random_local_steps')
  found.update({k: v for k, v in algorithm.settings.items() if k in how_long})
  for name, other in (('participation', 'clients_per_round'), ('local_steps', 'client_epochs')):
    given = values[other] if name == 'local_steps' else values[other] or values['buffer_size']
    if given is not None:
      found.pop(name, None)
      if name == 'local_steps':
        found.pop('random_local_steps', None)
    elif (values[name] or found.get(name)) is not None:
      found[other] = None
  chosen = {**algorithm.settings, **{k: v for k, v in values.items() if v is not None}}
  has_passes = values['batch_size'] != 0 and (values['local_steps'] or 'local_steps' in found)
  is_random = values['random_local_steps'] or found.get('random_local_steps')
  if not has_passes or values['with_replacement'] or is_random:
    found.pop('continue_batches', None)
  with fields.about('client_optimizer'):
    client = registry.client_optimizer(chosen.get('client_optimizer', 'sgd'))
  found['max_examples_per_client'] = found['max_examples_per_client'] or 0
  tuned = catalog.rates(task, server) if server in catalog.SERVER_OPTIMIZERS else {}
  if algorithm.server_optimizer is None or not tuned:
    # A correction has FedAvg's client rate and, as published, the server rate 1. With another
    # server optimizer it has the server rate and tau that were tuned for that optimizer.
    more = {} if server == 'sgd' else tuned
    client_rate = catalog.rates(task, 'sgd')['client_learning_rate']
    server_rate = registry.server_optimizer(server).rate or 1.0
    tuned = {'server_learning_rate': server_rate, **more, 'client_learning_rate': client_rate}
  found.update(tuned)
  if client.rate is not None:
    found['client_learning_rate'] = client.rate
  elif algorithm.pools_clients:
    del found['client_learning_rate']  # It was tuned for clients of a few examples each.
  others = ('client_optimizer_option', *how_long)
  named = {k: v for k, v in algorithm.settings.items() if k not in others}
  return {**found, **named}


def _of_pooled_clients(defaults: Mapping[str, Any], client_optimizer: str) -> dict[str, Any]:
  """Returns the defaults of one client that has the examples of all: a round is an epoch."""
  kept = ('batch_size', 'fill_last_batch', 'max_examples_per_client', 'weight_decay')
  return {
    **{name: defaults[name] for name in kept},
    'rounds': _EPOCHS,
    'clients_per_round': 1,
    'client_epochs': 1,
    'client_schedule': 'constant',
    'server_schedule': 'constant',
    'client_weighting': 'examples',
    'client_optimizer': 'sgd',
    'client_optimizer_state': 'reset' if client_optimizer == 'sgd' else 'keep',
    'sam_rho': 0.0,
  }
