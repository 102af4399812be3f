"""Runs with their tasks: what config.json says of a task, loaded again."""

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive._utils import option_values, user_code
from tff_adaptive_tasks import client_split, errors, loading

if TYPE_CHECKING:
  from tff_adaptive import runs
  from tff_adaptive_tasks import task as task_lib

_NEEDED = ('task', 'task_option', 'data_dir', 'seed')  # Settings that say how a task is loaded.


def load_run(folder: str) -> 'runs.Run':
  """Loads a run of a task of the catalogue or of a user's file.

  Args:
    folder: The run's folder.

  Returns:
    A `tff_adaptive.runs.Run` whose `task()` and `evaluate()` load the run's task.

  Raises:
    ValueError: If the folder is no run's, or the run has no rounds yet.
  """
  from tff_adaptive import runs

  return runs.load_run(folder, task_of)


def task_of(config: Mapping[str, Any]) -> 'task_lib.Task':
  """Loads the task that a run was on, with the clients and examples that it trained on.

  Args:
    config: The run's config.json.

  Raises:
    DataError: If the run's task is unknown, its file was changed, its folder of data is not there,
      or the numbers of clients and examples are not those that the run was on. Nothing else of the
      data is compared.
  """
  settings = config['settings']
  missing = [name for name in _NEEDED if name not in settings]
  if missing:  # A program may say of its run what it likes.
    raise errors.DataError(
      f'the run was made by a program and its config.json names no {missing[0]}: give '
      'tff_adaptive.load_run(folder, load_task=lambda config: my_task)'
    )
  pairs = (pair.partition('=') for pair in settings['task_option'])
  options = {name: option_values.value(text) for name, _, text in pairs}
  name, file = settings['task'], config.get('files', {}).get('task')
  if file is not None:
    name = f'{file["path"]}:{name.rpartition(":")[2]}'
    if user_code.load(name)[1].sha256 != file['sha256']:
      raise errors.DataError(f'the file of the task, {file["path"]!r}, was changed since the run')
  data_dir = settings['data_dir']
  if data_dir is not None and not os.path.isdir(data_dir):
    raise errors.DataError(
      f"the run's data_dir, {data_dir!r}, is not there: put the data there again"
    )
  task = loading.load(name, data_dir=data_dir, seed=settings['seed'], **options)
  parts = client_split.split_clients(
    task.train,
    seed=settings['seed'],
    heldout_clients=settings.get('heldout_clients') or 0.0,
    heldout_examples=settings.get('heldout_examples') or 0.0,
    unit_starts=task.unit_starts,
  )
  task = dataclasses.replace(task, train=parts.train)
  ids, expected = task.train.client_ids, config['data']
  found = {
    'clients': len(ids),
    'examples': sum(map(task.train.num_examples, ids)),
    'validation_examples': len(task.validation['y']),
    'unseen_clients': 0 if parts.unseen is None else len(parts.unseen),
  }
  for what, number in found.items():
    if what in expected and expected[what] != number:
      raise errors.DataError(
        f'the data have changed since the run: {what} was {expected[what]} and is now {number};'
        ' give the former data'
      )
  return task
