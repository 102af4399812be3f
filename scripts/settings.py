"""From flags to settings: defaults filled in, every value checked, nothing ignored.

Nothing here imports TensorFlow, so that a mistake is told at once.
"""

import math
import os
from collections.abc import Mapping
from typing import Any

from scripts import device_settings
from tasks import catalog
from tff_adaptive import addresses, checks, names, schedules

# The server optimizer that an algorithm's name stands for; the others take --server_optimizer.
_FIXED_SERVER = {
  'fed_avg': 'sgd',
  'fed_avgm': 'sgdm',
  'fed_adagrad': 'adagrad',
  'fed_adam': 'adam',
  'fed_yogi': 'yogi',
}
_NAMED_AFTER = {server: algorithm for algorithm, server in _FIXED_SERVER.items()}

# Flags that only some server optimizers or algorithms have.
_SERVER_FLAGS = {
  'tau': ('adagrad', 'adam', 'yogi'),
  'beta1': ('adagrad', 'adam', 'yogi'),
  'beta2': ('adam', 'yogi'),
  'momentum': ('sgdm',),
  'bias_correction': ('adam', 'yogi'),
  'initial_v': ('adagrad', 'adam', 'yogi'),
}
_STATEFUL = tuple(name for name, entry in names.ALGORITHMS.items() if entry.is_stateful)
_ALGORITHM_FLAGS = {
  'mu': ('fed_prox', 'fed_dyn', 'ada_best'),
  'scale_mu': ('fed_dyn', 'ada_best'),
  'beta': ('ada_best',),
  'beta_decay': ('ada_best',),
  'scaffold_option': ('scaffold',),
  'client_state_store': _STATEFUL,
  'client_state_dir': _STATEFUL,
}
_UNIFORM = ('scaffold', 'scaffold_m', 'fed_dyn', 'ada_best')

# AdaBest's beta with a server optimizer that is not the paper's SGD, from results/ada_best_beta.md.
# g-bar + h is a momentum over the pseudo-gradients already; with a second one on top, that of sgdm,
# adam and yogi, the paper's 0.96 diverges. Adagrad has none, and 0.8 served it best.
_COMPOSED_BETA = {'sgdm': 0.2, 'adagrad': 0.8, 'adam': 0.2, 'yogi': 0.2}

# A resumed run may change these: they do not touch the model's course.
HARMLESS = (
  'rounds',
  'rounds_per_evaluation',
  'rounds_per_checkpoint',
  'client_state_store',
  'data_dir',
  'output_dir',
  'workers',
)

# Of the graph engine only.
_ENGINE_FLAGS = ('clients_per_step', 'parallel_clients')

_FOLDERS = ('output_dir', 'data_dir', 'client_state_dir')

_RATE_MEND = 'give a rate such as 0.1'
_DECAY_MEND = 'give a decay such as 0.9'


def resolve(given: Mapping[str, Any]) -> dict[str, Any]:
  """Fills in defaults and checks every value that can be checked without the data.

  Args:
    given: Flag name -> value, None where none was given (see `flags.parse`).

  Returns:
    Flag name -> value; None only where a flag has no meaning or its default is "none".

  Raises:
    ValueError: With one line that names the flag, the value, the range and the mend.
  """
  settings = dict(given)
  _check_name('task', settings['task'], catalog.names())
  _check_name('algorithm', settings['algorithm'], names.ALGORITHMS)
  _check_name('engine', settings['engine'], ('graph', 'native'))
  for name in _ENGINE_FLAGS:
    if settings[name] is not None and settings['engine'] != 'graph':
      raise ValueError(f'--{name} is for --engine=graph: leave it out')
  for name in _FOLDERS:  # A shell expands no ~ after =.
    if settings[name] is not None:
      settings[name] = os.path.expanduser(settings[name])
  device_settings.check(settings)
  _check_workers(settings)
  _choose_server(settings)
  _refuse_what_does_not_apply(settings)
  for name, value in _defaults(settings).items():
    if settings[name] is None:
      settings[name] = value
  _check_numbers(settings)
  for side in ('client', 'server'):
    schedule(settings, side)
  options(settings, 'task_option')
  weightings = ('examples', 'uniform', catalog.sizes(settings['task']).get('client_weighting'))
  _check_name('client_weighting', settings['client_weighting'], tuple(filter(None, weightings)))
  if settings['client_state_store'] is not None:
    _check_name('client_state_store', settings['client_state_store'], ('memory', 'disk'))
  if settings['output_dir'] is None:
    settings['output_dir'] = os.path.join('runs', f'{settings["task"]}_{settings["algorithm"]}')
  return settings


def check_data_dir(settings: Mapping[str, Any]) -> None:
  """Raises ValueError if --data_dir is no folder, or the task has no files."""
  task, folder = settings['task'], settings['data_dir']
  if folder is None:
    return
  if task in catalog.OFFLINE:
    raise ValueError(
      f'--data_dir has no meaning for --task={task}, which has no files: leave it out.'
    )
  if not os.path.isdir(folder):
    raise ValueError(f'--data_dir={folder}: there is no such folder; leave it out to download.')


def schedule(settings: Mapping[str, Any], side: str) -> schedules.Schedule:
  """Returns the schedule of the client's or the server's rate.

  Args:
    settings: Flag name -> value.
    side: 'client' or 'server'.

  Returns:
    A function of the round, counted from 0.

  Raises:
    ValueError: If the schedule or an option is unknown or out of its range.
  """
  try:
    return schedules.build(
      settings[f'{side}_schedule'],
      settings[f'{side}_learning_rate'],
      **options(settings, f'{side}_schedule_option'),
    )
  except (TypeError, ValueError) as error:
    raise ValueError(f'--{side}_schedule: {error}') from None


def options(settings: Mapping[str, Any], flag: str) -> dict[str, Any]:
  """Returns the NAME=VALUE pairs of a flag, with numbers and truth values as such."""
  result = {}
  for pair in settings[flag]:
    name, equals, text = pair.partition('=')
    if not name.isidentifier() or not equals or not text:
      raise ValueError(f'--{flag}={pair}: write it as NAME=VALUE, such as alpha=0.3.')
    if flag == 'task_option' and name in ('name', 'seed', 'data_dir'):
      raise ValueError(
        f'--{flag}={pair}: no option of a task; there are --task, --seed, --data_dir.'
      )
    result[name] = _value(text)
  return result


def refused_changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
  """Returns the settings that differ and matter, each with both values."""
  return [
    f'--{name} was {before.get(name)!r} and is now {now[name]!r}'
    for name in now
    if name not in HARMLESS and before.get(name) != now[name]
  ]


def _check_workers(settings):
  if settings['workers'] is None:
    if settings['subrounds'] is not None:
      raise ValueError('--subrounds is for --workers: leave it out, or give --workers.')
    return
  for name, is_given in (
    ('engine=native', settings['engine'] != 'graph'),
    *((name, settings[name] is not None) for name in _ENGINE_FLAGS),
  ):
    if is_given:
      raise ValueError(
        f'--{name} does not go with --workers, which run TFF itself: leave one of them out.'
      )
  try:
    workers = addresses.check(settings['workers'].split(','))
  except ValueError as error:
    raise ValueError(f'--workers: {error}.') from None
  settings['workers'] = ','.join(workers)
  if settings['subrounds'] is None:
    settings['subrounds'] = max(addresses.DEFAULT_SUBROUNDS, len(workers))
  elif settings['subrounds'] < len(workers):
    raise ValueError(
      f'--subrounds must be at least {len(workers)}, the number of workers, found'
      f' {settings["subrounds"]}: some workers would be idle.'
    )


def _choose_server(settings):
  algorithm, server = settings['algorithm'], settings['server_optimizer']
  fixed = _FIXED_SERVER.get(algorithm)
  if server is not None:
    _check_name('server_optimizer', server, names.SERVER_OPTIMIZERS)
  if fixed is not None and server not in (None, fixed):
    raise ValueError(
      f'--server_optimizer={server} does not go with --algorithm={algorithm}, whose server is'
      f' {fixed}; take --algorithm={_NAMED_AFTER[server]}, or a drift-corrected algorithm.'
    )
  settings['server_optimizer'] = fixed or server or 'sgd'


def _refuse_what_does_not_apply(settings):
  server, algorithm = settings['server_optimizer'], settings['algorithm']
  for table, chosen, what in (
    (_SERVER_FLAGS, server, 'the server optimizer'),
    (_ALGORITHM_FLAGS, algorithm, '--algorithm'),
  ):
    for name, those in table.items():
      if settings[name] is not None and chosen not in those:
        raise ValueError(
          f'--{name} has no meaning for {what} {chosen}; leave it out (it belongs to'
          f' {", ".join(those)}).'
        )


def _defaults(settings):
  """The values of the task's paper for the algorithm, and the papers' own beside."""
  task, algorithm = settings['task'], settings['algorithm']
  server = settings['server_optimizer']
  values = {
    'client_schedule': 'constant',
    'server_schedule': 'constant',
    'client_weighting': 'examples',
    'weight_decay': 0.0,
    'fill_last_batch': False,
  }
  own = {'beta1': 0.0 if server == 'adagrad' else 0.9, 'beta2': 0.99, 'momentum': 0.9}
  own.update(tau=1e-3, bias_correction=False)
  values.update({k: v for k, v in own.items() if server in _SERVER_FLAGS[k]})
  own = {'mu': 0.02, 'beta': 0.96, 'beta_decay': 1.0, 'scaffold_option': 2, 'scale_mu': False}
  own.update(client_state_store='memory')
  values.update({k: v for k, v in own.items() if algorithm in _ALGORITHM_FLAGS[k]})
  values.update(catalog.defaults(task, algorithm))
  if algorithm in _UNIFORM:
    values['client_weighting'] = 'uniform'
  if server != 'sgd' and algorithm not in _FIXED_SERVER:
    # A composition takes the rates that were tuned for its server optimizer.
    tuned = catalog.defaults(task, _NAMED_AFTER[server])
    values.update({k: tuned[k] for k in ('server_learning_rate', 'tau') if k in tuned})
    if algorithm == 'ada_best' and server in _COMPOSED_BETA:
      values['beta'] = _COMPOSED_BETA[server]
  if values['max_examples_per_client'] is None:
    values['max_examples_per_client'] = 0
  return values


def _check_numbers(settings):
  def each(check, flags, mend):
    for name in flags:
      if settings[name] is not None:
        check(f'--{name}', settings[name], mend)

  whole = ('rounds', 'clients_per_round', 'client_epochs')
  counts = ('rounds_per_evaluation', 'rounds_per_checkpoint', *_ENGINE_FLAGS)
  each(_at_least_one, (*whole, *counts), 'give 1 or more')
  for name, mend in (
    ('batch_size', 'give 0 for all of a client at once'),
    ('max_examples_per_client', 'give 0 for all'),
    ('seed', 'give a whole number such as 0'),
  ):
    checks.whole_number(f'--{name}', settings[name], 0, mend)
  each(checks.at_least_zero, ('client_learning_rate', 'server_learning_rate'), _RATE_MEND)
  each(checks.at_least_zero, ('mu', 'weight_decay', 'initial_v'), 'give 0 or more')
  each(checks.above_zero, ('tau',), 'give a degree of adaptivity such as 0.001')
  each(checks.above_zero, ('clip_norm',), 'give a norm such as 10, or leave it out')
  each(checks.in_unit_interval, ('beta1', 'beta2', 'momentum'), _DECAY_MEND)
  each(checks.above_zero, ('beta_decay',), 'give a factor such as 0.5, or 1 to keep beta')
  each(checks.up_to_one, ('beta', 'beta_decay'), 'give 0.96, say')
  if settings['scaffold_option'] not in (None, 1, 2):
    raise ValueError(
      f'--scaffold_option must be 1 or 2, found {settings["scaffold_option"]}: 2 is the usual one.'
    )
  for name, limit in (('seed', 62), ('batch_size', 31), ('client_epochs', 20)):
    if settings[name] >= 2**limit:
      raise ValueError(f'--{name} must be below 2**{limit}, found {settings[name]}.')


def _at_least_one(name, value, mend):
  checks.whole_number(name, value, 1, mend)


def _check_name(flag, value, valid):
  if value not in valid:
    raise ValueError(f'--{flag}: {names.unknown(flag, value, valid)}')


def _value(text: str) -> Any:
  """Returns the number or truth value that a text writes, or the text."""
  if text.lower() in ('true', 'false'):
    return text.lower() == 'true'
  for kind in (int, float):
    try:
      value = kind(text)
    except ValueError:
      continue
    return text if isinstance(value, float) and math.isnan(value) else value
  return text
