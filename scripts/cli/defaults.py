"""The defaults of flags, as layers: what comes later in the list wins, the command line last.

A layer is a mapping from a flag's name to its value. A value of None says nothing. A value on the
command line counts as given, whether it equals a default or not.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from tff_adaptive import registry
from tff_adaptive_tasks import catalog

from . import fields
from .groups import what

Layer: TypeAlias = Mapping[str, Any]

# What a layer says replaces what earlier ones say of another flag for the same thing.
_REPLACES: Mapping[str, tuple[str, ...]] = {
  'participation': ('clients_per_round',),
  'clients_per_round': ('participation',),
  'buffer_size': ('participation',),
  'local_steps': ('client_epochs',),
  'client_epochs': ('local_steps', 'random_local_steps'),
}
_GENERAL: Layer = {
  'client_schedule': 'constant',
  'server_schedule': 'constant',
  'client_weighting': 'examples',
  'weight_decay': 0.0,
  'fill_last_batch': False,
  'max_examples_per_client': 0,
  'client_optimizer': 'sgd',
  'client_optimizer_state': 'reset',
  'sam_rho': 0.0,
}
# One client that has the examples of all: a round is an epoch, and its weight has no meaning.
_POOLED: Layer = {
  'rounds': 100,
  'clients_per_round': 1,
  'client_epochs': 1,
  'client_schedule': 'constant',
  'client_weighting': 'examples',
}


def merged(*layers: Layer) -> dict[str, Any]:
  """Returns the values of all layers by name; later layers win."""
  values: dict[str, Any] = {}
  for layer in layers:
    for name, value in layer.items():
      if value is None:
        continue
      for replaced in _REPLACES.get(name, ()):
        values.pop(replaced, None)
      values[name] = value
  return values


def layers(
  given: Layer, algorithm: registry.Algorithm, server: registry.ServerOptimizer
) -> list[Layer]:
  """Returns the layers below the command line, which is `given`.

  Args:
    given: The values on the command line by flag name; None for flags that were not given.
    algorithm, server: The entries that these values name.
  """
  task = what.catalog_name(given['task'])
  of_algorithm = _of_algorithm(given, algorithm)
  below = [
    _GENERAL,
    catalog.sizes(task),
    of_algorithm,
    {'server_learning_rate': server.rate or 1.0},
    _tuned(task, algorithm, server.name),
    _of_client_optimizer(merged(_GENERAL, of_algorithm, given)),
    # Again, for the rates that the algorithm's name stands for.
    of_algorithm,
  ]
  if not _continues(merged(*below, given)):
    below = [{k: v for k, v in layer.items() if k != 'continue_batches'} for layer in below]
  return below


def _of_algorithm(given: Layer, algorithm: registry.Algorithm) -> Layer:
  """Returns what an algorithm's name stands for."""
  layer: dict[str, Any] = {}
  if algorithm.pools_clients:
    layer.update(_POOLED)
    if given['client_optimizer'] not in (None, 'sgd'):
      layer['client_optimizer_state'] = 'keep'  # As in ordinary training: SGD alone has no state.
  if algorithm.client_weighting == 'uniform':
    layer['client_weighting'] = 'uniform'
  layer.update(algorithm.settings)
  # Its options are put before those of the command line, not replaced by them.
  layer.pop('client_optimizer_option', None)
  return layer


def _tuned(task: str, algorithm: registry.Algorithm, server: str) -> Layer:
  """Returns the rates, and tau, that were tuned for the task and the server optimizer."""
  tuned: dict[str, float] = {}
  if server in catalog.SERVER_OPTIMIZERS:
    tuned = catalog.rates(task, server)
  if algorithm.server_optimizer is None or not tuned:
    # Most corrections have FedAvg's client rate and, with SGD, as published, the server rate 1.
    if server == 'sgd':
      tuned = {}
    # A chain such as fed_babu+sam has the rate of its first part.
    name = algorithm.name.partition('+')[0]
    tuned = {**tuned, 'client_learning_rate': catalog.client_rate(task, name)}
  if algorithm.pools_clients:
    del tuned['client_learning_rate']  # It was tuned for clients of a few examples each.
  return tuned


def _of_client_optimizer(chosen: Layer) -> Layer:
  """Returns the rate of the client optimizer, if it has one of its own."""
  with fields.about('client_optimizer'):
    return {'client_learning_rate': registry.client_optimizer(chosen['client_optimizer']).rate}


def _continues(values: Layer) -> bool:
  """Whether a client can begin a round with the batch after its last one: see the flag's check."""
  has_passes = values['batch_size'] != 0 and values.get('local_steps') is not None
  return has_passes and not (values.get('with_replacement') or values.get('random_local_steps'))
