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

from . import command, defaults, fields, hyperparameters, options, settings
from .groups import what


def resolve(given: Mapping[str, Any] | None = None, **more: Any) -> settings.Settings:
  """Returns a run's settings with defaults filled in. Checks everything that needs no data.

  Args:
    given: The values of flags by name; None means that the flag was not given.
    **more: Flags that override `given`.

  Raises:
    ValueError: If a flag is unknown or invalid. The message is one line with a hint.
  """
  given = {k: v for k, v in {**(given or {}), **more}.items() if v is not None and v != []}
  values = {f.name: f.metadata['default'] for f in settings.FIELDS}
  values.update(dict.fromkeys(hyperparameters.named()))
  for name in given:
    if name not in values:
      raise ValueError(suggestions.unknown('flag', name, values))
  values.update({name: command.expanded(value) for name, value in given.items()})
  if values['data_dir']:  # It is in config.json, which is read from other folders too.
    values['data_dir'] = os.path.abspath(values['data_dir'])
  what.check_task(values['task'])
  for field in settings.FIELDS:
    fields.check(field, values, given)
  algorithm, server = what.entries(values)
  values['server_optimizer'] = values['server_optimizer'] or algorithm.server_optimizer or 'sgd'
  _refuse_hyperparameters_of_others(values, algorithm, server)
  layers = defaults.layers(values, algorithm, server)
  layers += [group.defaults(values) for group in settings.GROUPS.values()]
  values.update(defaults.merged(*layers, values))
  of_name = algorithm.settings.get('client_optimizer_option', ())
  values['client_optimizer_option'] = [*of_name, *values['client_optimizer_option']]
  correction = _hyperparameters(values, 'algorithm_option', algorithm, server)
  server_values = _hyperparameters(values, 'server_optimizer_option', server)
  for name in (n for n, v in values.items() if n.endswith('_option') and isinstance(v, list)):
    values[name] = list({pair.partition('=')[0]: pair for pair in values[name]}.values())
  groups: dict[str, Any] = {}
  for group_name, kind in settings.GROUPS.items():
    own = {f.name: values[f.name] for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    groups[group_name] = kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in own.items()})
  found = settings.Settings(
    **groups,
    correction=types.MappingProxyType(correction),
    server=types.MappingProxyType(server_values),
    given=types.MappingProxyType(given),
  )
  for made in found.groups():
    made.check(found)
  return found


def _refuse_hyperparameters_of_others(
  values: Mapping[str, Any], algorithm: registry.Algorithm, server: registry.ServerOptimizer
) -> None:
  for name, named in hyperparameters.named().items():
    if values[name] is None or named.belongs_to(algorithm, server):
      continue
    is_server = named.group == hyperparameters.SERVER
    entry: Any = server if is_server else algorithm
    option = 'server_optimizer_option' if is_server else 'algorithm_option'
    if entry.takes_options and any(h.name == name for h in entry.hyperparameters):
      raise ValueError(f'--{name} is for {", ".join(named.owners)}: give --{option}={name}=VALUE.')
    kind = 'the server optimizer' if is_server else '--algorithm'
    raise ValueError(
      f'--{name} has no meaning for {kind} {entry.name}; leave it out (it belongs to'
      f' {", ".join(named.owners)}).'
    )
  for option, entry in (('algorithm_option', algorithm), ('server_optimizer_option', server)):
    if values[option] and not entry.takes_options:
      pair = values[option][0]
      raise ValueError(
        f'--{option}={pair} is for a chain, or FILE.py:NAME of your own: give --{pair}.'
      )


def _hyperparameters(
  values: dict[str, Any], option: str, entry: Any, *with_server: registry.ServerOptimizer
) -> dict[str, Any]:
  """Returns an entry's hyperparameters by name. Sets `values[option]` if it takes options."""
  is_own = entry.takes_options
  with fields.about(option):
    if is_own:
      given = options.parse(option, values[option])
    else:
      given = {h.name: values[h.name] for h in entry.hyperparameters}
      for h in entry.hyperparameters:
        if given[h.name] is not None:
          h.checked(given[h.name], f'--{h.name}')
    found: dict[str, Any] = entry.values(given, *with_server)
  if is_own:
    values[option] = list(options.pairs(found))
  return found
