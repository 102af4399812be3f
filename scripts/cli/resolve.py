"""From what was given to `Settings`: defaults filled in, every value checked, nothing ignored.

Nothing here imports TensorFlow, unless an algorithm of the user's own does, so that a mistake is
reported at once.
"""

import os
import types
from collections.abc import Mapping
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import suggestions, user_code
from tff_adaptive_tasks import catalog

from . import (
  aggregator_settings,
  device_settings,
  evaluation_settings,
  hyperparameters,
  options,
  population_options,
  ray_options,
  settings,
  tensorflow_start,
  trackers,
)

# Of the graph engine only.
ENGINE_FLAGS = ('clients_per_step', 'parallel_clients')
_STATEFUL_FLAGS = ('client_state_store', 'client_state_dir')
_PATHS = (
  *('output_dir', 'data_dir', 'client_state_dir', 'initial_weights'),
  *population_options.FILES,
)
_FILES = ('task', 'algorithm', 'server_optimizer')


def resolve(given: Mapping[str, Any] | None = None, **more: Any) -> settings.Settings:
  """Fills in defaults and checks every value that can be checked without the data.

  Args:
    given: Flag name -> value; one that is missing or None was not given.
    **more: The same, by keyword; these win.

  Returns:
    The settings.

  Raises:
    ValueError: With one line that names the flag, the value, the range and the hint.
  """
  given = {k: v for k, v in {**(given or {}), **more}.items() if v is not None and v != []}
  values = {f.name: f.metadata['default'] for f in settings.FIELDS}
  values.update(dict.fromkeys(hyperparameters.named()))
  for name in given:
    if name not in values:
      raise ValueError(suggestions.unknown('flag', name, values))
  values.update(given)
  for name in (*_PATHS, *_FILES):  # A shell expands no ~ after =.
    if values[name] is not None:
      values[name] = os.path.expanduser(values[name])
  for name in ('client_state_dir', 'data_dir'):
    if values[name]:  # config.json has it, and is read from other folders too.
      values[name] = os.path.abspath(values[name])
  _check_choices(values)
  algorithm, server = _entries(values)
  _refuse_what_does_not_apply(values, algorithm, server)
  _check_given(values)
  population_options.check(values)
  for name, value in _defaults(values, algorithm, server).items():
    if values[name] is None:
      values[name] = value
  correction, server_values = _hyperparameters(values, algorithm, server)
  _check_together(values)
  aggregator_settings.check(values, algorithm, correction)
  evaluation_settings.check(values)
  if values['output_dir'] is None:
    values['output_dir'] = os.path.join('runs', f'{_short(values["task"])}_{algorithm.name}')
  fields = {}
  for field in settings.FIELDS:
    value = values[field.name]
    fields[field.name] = tuple(value) if isinstance(value, (list, tuple)) else value
  return settings.Settings(
    **fields,
    correction=types.MappingProxyType(correction),
    server=types.MappingProxyType(server_values),
    given=types.MappingProxyType(given),
  )


def check_data_dir(task: str, folder: str | None) -> None:
  """Raises ValueError if --data_dir is no folder, or the task has no files."""
  if folder is None:
    return
  if task in catalog.OFFLINE:
    raise ValueError(
      f'--data_dir has no meaning for --task={task}, which has no files: leave it out.'
    )
  if not os.path.isdir(folder):
    raise ValueError(f'--data_dir={folder}: there is no such folder; leave it out to download.')


def check_initial_weights(path: str | None) -> None:
  """Raises ValueError if --initial_weights names nothing that has weights."""
  if path is None or os.path.isfile(os.path.join(path, 'config.json')):
    return
  if not (os.path.isfile(path) and path.endswith(('.keras', '.npz'))):
    raise ValueError(
      f'--initial_weights={path}: give the folder of a run, a .keras or an .npz file.'
    )


def check_name(flag: str, value: Any, valid: Any) -> None:
  """Refuses a name that is not among the valid ones; ValueError, in one line."""
  if value not in valid:
    raise ValueError(f'--{flag}: {suggestions.unknown(flag, value, valid)}')


def check_task(task: str) -> None:
  """Refuses a task that is neither in the catalogue nor FILE.py:FUNCTION of a file."""
  if not user_code.is_reference(task):
    check_name('task', task, catalog.names())
    return
  path, _, name = task.rpartition(':')
  if not name.isidentifier() or not os.path.isfile(path):
    raise ValueError(f'--task={task}: write FILE.py:FUNCTION, a function of a file that there is.')


def _check_choices(values: dict[str, Any]) -> None:
  check_task(values['task'])
  check_name('engine', values['engine'], ('graph', 'native'))
  check_name('resume_from', values['resume_from'], ('latest', 'previous'))
  for name in ENGINE_FLAGS:
    if values[name] is not None and values['engine'] != 'graph':
      raise ValueError(f'--{name} is for --engine=graph: leave it out')
  trackers.check(values['log_to'])
  ray_options.check(values)
  device_settings.check(values)
  if values['client_state_store'] is not None:
    check_name('client_state_store', values['client_state_store'], ('memory', 'disk', 'shards'))


def _entries(values: dict[str, Any]) -> tuple[registry.Algorithm, registry.ServerOptimizer]:
  """Returns the algorithm's entry and its server optimizer's, whose name it fills in."""
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
  values['server_optimizer'] = asked or fixed or 'sgd'
  return algorithm, server


def _entry(flag: str, spec: str, find: Any) -> Any:
  if user_code.is_reference(spec):
    tensorflow_start.quietly()  # The file may import it.
  try:
    return find(spec)
  except ValueError as error:
    raise ValueError(f'--{flag}: {error}') from None


def _refuse_what_does_not_apply(
  values: Mapping[str, Any], algorithm: registry.Algorithm, server: registry.ServerOptimizer
) -> None:
  for name, named in hyperparameters.named().items():
    is_server = named.group == hyperparameters.SERVER
    entry: Any = server if is_server else algorithm
    if values[name] is None or (entry.source is None and entry.name in named.owners):
      continue
    what = 'the server optimizer' if is_server else '--algorithm'
    option = 'server_optimizer_option' if is_server else 'algorithm_option'
    if entry.source is not None and any(h.name == name for h in entry.hyperparameters):
      raise ValueError(f'--{name} is for {", ".join(named.owners)}: give --{option}={name}=VALUE.')
    raise ValueError(
      f'--{name} has no meaning for {what} {entry.name}; leave it out (it belongs to'
      f' {", ".join(named.owners)}).'
    )
  for option, entry in (('algorithm_option', algorithm), ('server_optimizer_option', server)):
    if values[option] and entry.source is None:
      pair = values[option][0]
      raise ValueError(f'--{option}={pair} is for FILE.py:NAME of your own: give --{pair}.')
  for name in _STATEFUL_FLAGS:
    if values[name] is not None and not algorithm.is_stateful:
      stateful = [a.name for a in registry.ALGORITHMS.values() if a.is_stateful]
      raise ValueError(
        f'--{name} has no meaning for --algorithm {algorithm.name}; leave it out (it belongs to'
        f' {", ".join(stateful)}).'
      )


def _check_given(values: Mapping[str, Any]) -> None:
  for field in settings.FIELDS:
    if values[field.name] is not None:
      settings.check(field.name, values[field.name])


def _defaults(
  values: Mapping[str, Any], algorithm: registry.Algorithm, server: registry.ServerOptimizer
) -> dict[str, Any]:
  """The values of the task's paper for the server optimizer, and the papers' own."""
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
  found.update(aggregator_settings.default_weighting(values['aggregator']))
  if algorithm.is_stateful:
    # On one machine the trainer's memory is as near to the workers as a file.
    is_cluster = values['ray'] not in (None, 'local')
    found['client_state_store'] = 'shards' if is_cluster else 'memory'
  if found['max_examples_per_client'] is None:
    found['max_examples_per_client'] = 0
  tuned = values['server_optimizer'] in catalog.SERVER_OPTIMIZERS
  if algorithm.server_optimizer is not None and tuned:
    found.update(catalog.rates(task, values['server_optimizer']))
    return found
  # A correction has FedAvg's client rate and, as published, the server rate 1; composed with
  # another server optimizer, what was tuned for that one.
  found['client_learning_rate'] = catalog.rates(task, 'sgd')['client_learning_rate']
  found['server_learning_rate'] = 1.0
  if values['server_optimizer'] != 'sgd' and tuned:
    rates = catalog.rates(task, values['server_optimizer'])
    found.update({k: v for k, v in rates.items() if k != 'client_learning_rate'})
  return found


def _hyperparameters(
  values: dict[str, Any], algorithm: registry.Algorithm, server: registry.ServerOptimizer
) -> tuple[dict[str, Any], dict[str, Any]]:
  """Returns those of the correction and of the server optimizer, and fills them in as options."""
  found = []
  table: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ('algorithm_option', algorithm, (values['server_optimizer'],)),
    ('server_optimizer_option', server, ()),
  )
  for option, entry, extra in table:
    try:
      if entry.source is None:
        _check_flags(values, entry)
        given = {h.name: values[h.name] for h in entry.hyperparameters}
        found.append(entry.values(given, *extra))
      else:
        found.append(entry.values(_converted(option, values[option], entry), *extra))
        values[option] = list(options.pairs(found[-1]))
    except (TypeError, ValueError) as error:
      text = str(error)
      raise ValueError(text if text.startswith('--') else f'--{option}: {text}') from None
  return found[0], found[1]


def _check_flags(values: Mapping[str, Any], entry: Any) -> None:
  for h in entry.hyperparameters:
    if values[h.name] is not None:
      h.checked(values[h.name], f'--{h.name}')


def _converted(option: str, pairs: Any, entry: Any) -> dict[str, Any]:
  """Returns options by name; a whole number stands for a float too."""
  kinds = {h.name: h.kind for h in entry.hyperparameters}
  given = options.parse(option, pairs)
  return {
    name: float(value) if kinds.get(name) is float and type(value) is int else value
    for name, value in given.items()
  }


def _check_together(values: dict[str, Any]) -> None:
  """Refuses what is allowed alone, but not with the rest."""
  task = '' if user_code.is_reference(values['task']) else values['task']
  for side in ('client', 'server'):
    rate = values[f'{side}_learning_rate']
    settings.schedule(side, values[f'{side}_schedule'], rate, values[f'{side}_schedule_option'])
  task_options = options.parse('task_option', values['task_option'])
  device_settings.check_lstm(values, task_options.get('lstm'))
  weightings = ('examples', 'uniform', catalog.sizes(task).get('client_weighting'))
  if not task:
    weightings = ('examples', 'uniform', 'tokens')
  check_name('client_weighting', values['client_weighting'], tuple(filter(None, weightings)))
  cohort, clients = values['clients_per_round'], catalog.num_clients(task, task_options)
  if clients is not None and cohort > clients:
    raise ValueError(too_many_clients(cohort, clients))
  for name in ENGINE_FLAGS:
    if values[name] is not None and values[name] > cohort:
      raise ValueError(
        f'--{name} must be at most {cohort}, the clients of a round, found {values[name]}: give'
        ' fewer, or more --clients_per_round.'
      )


def too_many_clients(cohort: int, clients: int) -> str:
  """The error of more clients in a round than there are."""
  return (
    f'--clients_per_round must be from 1 to {clients}, the clients there are; found {cohort}: give'
    ' fewer.'
  )


def _short(spec: str) -> str:
  """A task's name for a folder: of FILE.py:FUNCTION the function."""
  return spec.rpartition(':')[2]
