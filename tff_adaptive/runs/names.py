"""What papers call algorithms, server optimizers and metrics."""

import os
from collections.abc import Mapping
from typing import Any

from tff_adaptive import registry

# A correction with one of these on the server is the algorithm as it was published.
_PUBLISHED_SERVER = ('sgd', None)


def algorithm(name: Any) -> str:
  """'fed_yogi' -> 'FedYogi'; of a user's FILE.py:NAME the file and the name."""
  entry = registry.ALGORITHMS.get(str(name))
  return os.path.basename(str(name)) if entry is None else entry.title


def composition(settings: Mapping[str, Any]) -> str:
  """What a run trained with: 'FedYogi', 'AdaBest', 'AdaBest x Yogi'.

  Args:
    settings: A run's settings: `algorithm`, and `server_optimizer` if any.
  """
  name, server = str(settings['algorithm']), settings.get('server_optimizer')
  entry = registry.ALGORITHMS.get(name)
  fixed = None if entry is None else entry.server_optimizer
  if server in _PUBLISHED_SERVER or server == fixed:
    return algorithm(name)
  server_entry = registry.SERVER_OPTIMIZERS.get(str(server))
  title = os.path.basename(str(server)) if server_entry is None else server_entry.title
  return f'{algorithm(name)} x {title}'


def correction(settings: Mapping[str, Any]) -> str:
  """The drift correction of a run: 'none' of FedAvg, FedYogi and so on."""
  name = str(settings['algorithm'])
  entry = registry.ALGORITHMS.get(name)
  return 'none' if entry is not None and entry.server_optimizer else algorithm(name)


def server_optimizer(settings: Mapping[str, Any]) -> str:
  """The server optimizer of a run: 'SGD', 'Yogi'."""
  entry = registry.ALGORITHMS.get(str(settings['algorithm']))
  name = settings.get('server_optimizer') or (entry and entry.server_optimizer) or 'sgd'
  found = registry.SERVER_OPTIMIZERS.get(str(name))
  return os.path.basename(str(name)) if found is None else found.title


def metric(column: str) -> str:
  """'validation_recall_at_5' -> 'validation recall at 5'; theta-bar's columns are said so."""
  kind, _, rest = column.partition('_')
  if kind == 'inference':
    return f'validation {rest} (mean of the client models)'.replace('_', ' ')
  return column.replace('_', ' ')
