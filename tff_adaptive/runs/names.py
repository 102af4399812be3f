"""Names algorithms, optimizers and metrics as papers do, and says which metrics are errors."""

import os
from collections.abc import Mapping
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import metric_names, user_code

is_error = metric_names.is_error

# A correction with one of these on the server is the algorithm as it was published.
_PUBLISHED_SERVER = ('sgd', None)
_ALGORITHMS = {**registry.ALGORITHMS, **registry.BASELINES}
_TABLES: Mapping[str, Mapping[str, Any]] = {
  'algorithm': _ALGORITHMS,
  'server_optimizer': registry.SERVER_OPTIMIZERS,
  'client_optimizer': registry.CLIENT_OPTIMIZERS,
}
# Settings of the clients' training in the name of a composition, and values that are left out.
OF_CLIENTS = ('client_optimizer', 'client_optimizer_state', 'sam_rho')
_PLAIN = {'client_optimizer': 'sgd', 'client_optimizer_state': 'reset'}
_STATES = {'keep': 'kept', 'average': 'averaged'}  # What `client_optimizer_state` does, in words.


def shown(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings of a config.json, with the names of a user's algorithm and optimizers.

  The name replaces FILE.py:NAME. If the package uses it too, the file is added: 'fed_cm (mine.py)'.
  """
  settings = dict(config['settings'])
  for setting, table in _TABLES.items():
    file = config['files'].get(setting, {})
    name = file.get('name')
    if name:
      taken = {*table, *(entry.title for entry in table.values())}
      if name in taken:
        name = f'{name} ({os.path.basename(file["path"])})'
      settings[setting] = name
  return settings


def algorithm(name: Any) -> str:
  """Returns an algorithm's title, such as 'FedYogi'; a user's FILE.py:NAME without its folders."""
  return _title(_ALGORITHMS, name)


def composition(settings: Mapping[str, Any]) -> str:
  """Returns the name of a run's algorithm and optimizers: 'FedYogi', 'AdaBest x Yogi'.

  Args:
    settings: A run's settings as `shown` returns them: `algorithm` and, if present,
      `server_optimizer` and those in `OF_CLIENTS`. Values that the algorithm implies are left out.
  """
  name = str(settings['algorithm'])
  server = settings.get('server_optimizer')
  entry = _ALGORITHMS.get(name)
  fixed = None if entry is None else entry.server_optimizer
  parts = [algorithm(name)]
  if server not in _PUBLISHED_SERVER and server != fixed:
    parts.append(_title(registry.SERVER_OPTIMIZERS, server))
  clients = []
  for setting in OF_CLIENTS:
    value = settings.get(setting)
    default = _PLAIN.get(setting)
    if entry is not None:
      default = entry.settings.get(setting) or default
    if not value or value == default:
      continue
    if setting == 'client_optimizer':
      clients.append(_title(registry.CLIENT_OPTIMIZERS, value))
    else:
      clients.append(_STATES.get(str(value), f'SAM {value}'))
  text = ' x '.join(parts)
  if clients:
    text += f' (clients: {", ".join(clients)})'
  return text


def correction(settings: Mapping[str, Any]) -> str:
  """Returns the title of a run's drift correction, or 'none' for FedAvg and others without one."""
  name = str(settings['algorithm'])
  entry = _ALGORITHMS.get(name)
  is_plain = entry is not None and entry.server_optimizer and not entry.settings
  return 'none' if is_plain else algorithm(name)


def server_optimizer(settings: Mapping[str, Any]) -> str:
  """Returns the title of a run's server optimizer, such as 'SGD' or 'Yogi'."""
  entry = _ALGORITHMS.get(str(settings['algorithm']))
  name = settings.get('server_optimizer') or (entry and entry.server_optimizer) or 'sgd'
  return _title(registry.SERVER_OPTIMIZERS, name)


def _title(table: Mapping[str, Any], name: Any) -> str:
  text = str(name)
  entry = table.get(text)
  if entry is not None:
    return str(entry.title)
  if user_code.is_reference(text):
    return os.path.basename(text)
  return text


def metric(column: str) -> str:
  """Returns a metrics.csv column in words: 'validation recall at 5 (mean of the client models)'."""
  kind, _, rest = column.partition('_')
  if kind == 'inference':
    return f'validation {rest} (mean of the client models)'.replace('_', ' ')
  return column.replace('_', ' ')
