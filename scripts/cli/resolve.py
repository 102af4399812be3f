"""Makes `Settings` from the given flags: fills in defaults and checks every value.

Nothing here imports TensorFlow, so that mistakes are reported quickly; a user's own algorithm may.
"""

import dataclasses
import os
import types
from collections.abc import Mapping
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import suggestions

from . import command, defaults, fields, hyperparameters, options, rules, settings
from .groups import what


def resolve(
  given: Mapping[str, Any] | None = None,
  *,
  task_object: Any = None,
  writes: bool = True,
  **more: Any,
) -> settings.Settings:
  """Returns a run's settings with defaults filled in. Checks everything that needs no data.

  Args:
    given: The values of flags by name; None means that the flag was not given.
    task_object: A task that a program gives; its name is the value of the flag.
    writes: Whether the run has a folder.
    **more: Flags that override `given`.

  Raises:
    ValueError: If a flag is unknown or invalid. The message is one line with a hint.
  """
  given = {**(given or {}), **more}
  given = {name: value for name, value in given.items() if value is not None and value != []}
  values = _values(given)
  if task_object is None:
    what.check_task(values['task'])
  # Only what was given can be wrong so far. Defaults come after, because they are never wrong.
  for field in settings.FIELDS:
    fields.check(field, values, given)
  algorithm, server = what.entries(values)
  values['server_optimizer'] = values['server_optimizer'] or algorithm.server_optimizer or 'sgd'
  _refuse_hyperparameters_of_others(values, algorithm, server)
  # The defaults of a group win over those of task and algorithm: noise, for example, needs clients
  # of equal weight whatever the task says.
  layers = defaults.layers(values, algorithm, server)
  layers += [group.defaults(values) for group in settings.GROUPS.values()]
  values.update(defaults.merged(*layers, values))
  # An option that is given comes later than that of the algorithm's name, and so replaces it.
  of_name = algorithm.settings.get('client_optimizer_option', ())
  values['client_optimizer_option'] = [*of_name, *values['client_optimizer_option']]
  correction = _hyperparameters(values, 'algorithm_option', algorithm, server)
  server_values = _hyperparameters(values, 'server_optimizer_option', server)
  _drop_repeated_options(values)
  result = settings.Settings(
    **{name: _group(kind, values) for name, kind in settings.GROUPS.items()},
    correction=types.MappingProxyType(correction),
    server=types.MappingProxyType(server_values),
    given=types.MappingProxyType(given),
    task_object=task_object,
    writes=writes,
  )
  for checked in result.groups():
    checked.check()
  rules.check(result)
  return result


def _values(given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the values of all flags: those given, and the defaults that depend on no other flag.

  Raises ValueError if a given flag is unknown.
  """
  values = {field.name: field.metadata['default'] for field in settings.FIELDS}
  values.update(dict.fromkeys(hyperparameters.named()))
  for name in given:
    if name not in values:
      raise ValueError(suggestions.unknown('flag', name, values))
  values.update({name: command.expanded(value) for name, value in given.items()})
  if values['data_dir']:  # It is in config.json, which is read from other folders too.
    values['data_dir'] = os.path.abspath(values['data_dir'])
  return values


def _drop_repeated_options(values: dict[str, Any]) -> None:
  """Leaves of the options of each flag, NAME=VALUE, the last one of a name."""
  for flag, pairs in values.items():
    if flag.endswith('_option') and isinstance(pairs, list):
      last = {pair.partition('=')[0]: pair for pair in pairs}
      values[flag] = list(last.values())


def _group(kind: type[fields.Group], values: Mapping[str, Any]) -> Any:
  """Returns a group of settings with its flags' values; lists become tuples."""
  arguments = {}
  for field in dataclasses.fields(kind):  # type: ignore[arg-type]
    value = values[field.name]
    if isinstance(value, list):
      value = tuple(value)
    arguments[field.name] = value
  return kind(**arguments)


def _refuse_hyperparameters_of_others(
  values: Mapping[str, Any], algorithm: registry.Algorithm, server: registry.ServerOptimizer
) -> None:
  """Raises ValueError for a hyperparameter that the algorithm and the server do not have."""
  entries: Mapping[str, Any] = {
    hyperparameters.CORRECTION: algorithm,
    hyperparameters.SERVER: server,
  }
  for name, named in hyperparameters.named().items():
    if values[name] is None or named.belongs_to(algorithm, server):
      continue
    entry = entries[named.group]
    option = _OPTION_OF[named.group]
    if entry.takes_options and any(h.name == name for h in entry.hyperparameters):
      raise ValueError(f'--{name} is for {", ".join(named.owners)}: give --{option}={name}=VALUE.')
    raise ValueError(
      f'--{name} has no meaning for {_KIND_OF[named.group]} {entry.name}; leave it out (it belongs'
      f' to {", ".join(named.owners)}).'
    )
  for group, option in _OPTION_OF.items():
    if values[option] and not entries[group].takes_options:
      pair = values[option][0]
      raise ValueError(
        f'--{option}={pair} is for a chain, or FILE.py:NAME of your own: give --{pair}.'
      )


# By group of hyperparameters: the flag for those of a user's own entry, and how messages name it.
_OPTION_OF = {
  hyperparameters.CORRECTION: 'algorithm_option',
  hyperparameters.SERVER: 'server_optimizer_option',
}
_KIND_OF = {
  hyperparameters.CORRECTION: '--algorithm',
  hyperparameters.SERVER: 'the server optimizer',
}


def _hyperparameters(
  values: dict[str, Any], option: str, entry: Any, *with_server: registry.ServerOptimizer
) -> dict[str, Any]:
  """Returns an entry's hyperparameters by name. Sets `values[option]` if it takes options."""
  with fields.about(option):
    if entry.takes_options:
      given = options.parse(option, values[option])
    else:
      given = {h.name: values[h.name] for h in entry.hyperparameters}
      # Here, so that messages name the flag: `values` names the option.
      for h in entry.hyperparameters:
        if given[h.name] is not None:
          h.checked(given[h.name], f'--{h.name}')
    by_name: dict[str, Any] = entry.values(given, *with_server)
  if entry.takes_options:
    values[option] = list(options.pairs(by_name))
  return by_name
