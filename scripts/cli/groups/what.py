"""Settings of the task, the algorithm and the optimizers."""

import dataclasses
import os
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import user_code, validation
from tff_adaptive.corrections import chains
from tff_adaptive.registry import described
from tff_adaptive_tasks import catalog

from .. import fields, options

# The flags whose value may be a user's own FILE.py:NAME.
OWN = ('task', 'algorithm', 'server_optimizer', 'client_optimizer')
# The values of `client.local_training.OPTIMIZER_STATES`, without importing TensorFlow.
_STATES = ('reset', 'keep', 'average')
# The parts that flags of every algorithm add to its chain.
_PARTS_OF_FLAGS = {'sam_rho': 'sam', 'clip_norm': 'clip', 'weight_decay': 'weight_decay'}
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
    return '' if user_code.is_reference(self.task) else self.task

  def check(self, settings: 'fields.Settings') -> None:
    """Raises ValueError if task or algorithm does not allow the cohort or the client optimizer."""
    algorithm = self.algorithm_entry
    clients = catalog.num_clients(self.known_task, self.task_options)
    if algorithm.pools_clients:
      self._check_pooled(settings)
    elif clients is not None:
      check_cohort(settings.training.cohort(clients), clients, algorithm)
    self._check_parts(settings)
    if settings.population.availability and 'participation' in algorithm.settings:
      raise ValueError(
        f'--algorithm {algorithm.name} needs all clients in every round: leave out the flags of'
        ' unavailable, slow and failing clients, or take another algorithm, such as scaffold.'
      )
    for name in ('client_optimizer', 'client_optimizer_state', 'sam_rho'):
      fixed = algorithm.settings.get(name)
      value = getattr(self, name)
      is_other_radius = name == 'sam_rho' and value > 0  # The name stands for SAM, at any radius.
      if fixed is not None and value != fixed and not is_other_radius:
        raise ValueError(
          f'--{name}={value} does not go with --algorithm {algorithm.name}, which stands for'
          f' {fixed}: leave it out, or take another algorithm.'
        )
    _ = self.client_values  # Raises where an option is bad.
    if self.client_optimizer == 'sgd' and self.client_optimizer_state != 'reset':
      raise ValueError(
        f'--client_optimizer_state={self.client_optimizer_state} has no meaning for'
        ' --client_optimizer=sgd, which has no state: give another optimizer, or leave it out.'
      )
    if self.client_optimizer != 'sgd' and algorithm.assumes_sgd:
      raise ValueError(
        f'--client_optimizer={self.client_optimizer} does not go with --algorithm {algorithm.name}:'
        f' {algorithm.assumes_sgd}, so clients train with sgd; leave it out, or take another'
        ' algorithm, such as fed_avg.'
      )

  def _check_parts(self, settings: 'fields.Settings') -> None:
    """Raises ValueError if a part of the algorithm excludes a part, or a way to train, of flags."""
    classes = described.classes_of(self.algorithm_entry)
    for name, value in (
      ('sam_rho', self.sam_rho),
      ('clip_norm', settings.clients.clip_norm),
      ('weight_decay', settings.clients.weight_decay),
    ):
      if value:
        with fields.about(name):
          chains.check([*classes, registry.PARTS[_PARTS_OF_FLAGS[name]]])
    if settings.synchrony.synchrony != 'buffered':
      return
    for part in classes:
      if part.overrides('exchange'):
        raise ValueError(
          f'--synchrony=buffered does not go with --algorithm={self.algorithm}: the clients of'
          f' {part.name} exchange values before any of them trains; leave it out, or take another'
          ' algorithm, such as mime_lite.'
        )

  def _check_pooled(self, settings: 'fields.Settings') -> None:
    """Raises ValueError if settings do not go with one client that has the examples of all."""
    is_plain = settings.population.availability is None and settings.synchrony.synchrony is None
    if settings.training.clients_per_round != 1 or not is_plain:
      raise ValueError(
        f'--algorithm={self.algorithm} trains one client, which has the examples of all: leave out'
        ' --clients_per_round, --participation, --synchrony, and the flags of unavailable, slow and'
        ' failing clients.'
      )
    if settings.rates.client_learning_rate is None:
      raise ValueError(
        f'--algorithm={self.algorithm} has no default rate for {self.client_optimizer}: give'
        ' --client_learning_rate=0.1, say.'
      )

  def check_files(self) -> None:
    """Raises ValueError if --initial_weights is neither a run nor a .keras or .npz file."""
    from tff_adaptive.training import initial_weights

    path = self.initial_weights and initial_weights.file_of(self.initial_weights)
    if path is None or os.path.isfile(os.path.join(path, 'config.json')):
      return
    if not (os.path.isfile(path) and path.endswith(('.keras', '.npz'))):
      raise ValueError(
        f'--initial_weights={path} must be the folder of a run or of a keras or npz export, or a'
        ' .keras or .npz file.'
      )

  def sources(self) -> dict[str, user_code.UserCode]:
    """Loads the user's own files, and returns their origins by the flags that name them."""
    sources = {}
    for name in OWN:
      pieces = [getattr(self, name)]
      if name == 'algorithm':
        pieces = registry.pieces(self.algorithm)
      references = [piece for piece in pieces if user_code.is_reference(piece)]
      for number, reference in enumerate(references, 1):
        flag = name if number == 1 else f'{name}_{number}'  # Several parts of a chain.
        sources[flag] = user_code.load(reference)[1]
    return sources


def check_task(task: str) -> None:
  """Raises ValueError for an unknown task. A FILE.py:FUNCTION is checked when it is loaded."""
  if not user_code.is_reference(task):
    fields.check_name('task', task, catalog.names())


def check_cohort(cohort: int, clients: int, algorithm: registry.Algorithm) -> None:
  """Raises ValueError for more clients in a round than exist, or fewer than the algorithm needs."""
  if cohort < clients and 'participation' in algorithm.settings:
    raise ValueError(
      f'--algorithm {algorithm.name} needs all {clients} clients in every round, found {cohort}:'
      ' its h_i are renewed by the model of the very next round; give --participation=1, or take'
      ' another algorithm, such as scaffold.'
    )
  if cohort > clients:
    raise ValueError(
      f'the number of clients in a round must be from 1 to {clients}, which are all clients; found'
      f' {cohort}: give fewer.'
    )


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
  return algorithm.rpartition(':')[2] if name in registry.ALGORITHMS else name
