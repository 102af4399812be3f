"""What config.json says of a task, loaded again, also from the run's copy of a user's file."""

import hashlib
import re
import sys
import warnings

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import loading

SETTINGS = {'task': 'digits', 'task_option': ['num_clients=7'], 'data_dir': None, 'seed': 3}
DATA = {'source': 'any', 'clients': 7, 'examples': 1438, 'validation_examples': 359}
NOWHERE = '/no/run'  # These tasks have no file of which a copy might be needed.


def test_the_task_has_its_options_and_seed():
  task = loading.task_of({'settings': SETTINGS, 'data': DATA}, NOWHERE)
  expected = tasks.load('digits', seed=3, num_clients=7)
  np.testing.assert_array_equal(task.validation['x'], expected.validation['x'])
  assert task.train.client_ids == expected.train.client_ids


@pytest.mark.parametrize('what', ['clients', 'examples', 'validation_examples'])
def test_other_data_are_refused(what):
  with pytest.raises(tasks.DataError, match=f'{what} was 6 and is now {DATA[what]}'):
    loading.task_of({'settings': SETTINGS, 'data': {**DATA, what: 6}}, NOWHERE)


@pytest.mark.parametrize('missing', ['task', 'task_option', 'data_dir', 'seed'])
def test_of_what_a_program_said_of_its_task_all_must_be_there(missing):
  """settings={'task': 'digits'} of training.train, say."""
  settings = {name: value for name, value in SETTINGS.items() if name != missing}
  with pytest.raises(tasks.DataError, match=f'names no {missing}: give .*load_task='):
    loading.task_of({'settings': settings, 'data': DATA}, NOWHERE)


def test_the_task_of_a_run_that_held_something_out_is_what_it_trained_on():
  shares = {'heldout_clients': 0.3, 'heldout_examples': 0.2}
  digits = tasks.load('digits', seed=3, num_clients=7)
  parts = tasks.split_clients(digits.train, seed=3, **shares)
  ids = parts.train.client_ids
  examples = sum(map(parts.train.num_examples, ids))
  data = {**DATA, 'clients': len(ids), 'examples': examples, 'unseen_clients': len(parts.unseen)}
  task = loading.task_of({'settings': {**SETTINGS, **shares}, 'data': data}, NOWHERE)
  assert task.train.client_ids == ids
  for client_id in ids:
    np.testing.assert_array_equal(task.train.load(client_id)['x'], parts.train.load(client_id)['x'])
  with pytest.raises(tasks.DataError, match='the data have changed'):
    loading.task_of({'settings': SETTINGS, 'data': data}, NOWHERE)


_TASK = """
import tff_adaptive_tasks as tasks
from module_of_a_copy import CLIENTS

def load(data_dir, seed):
  return tasks.load('digits', seed=seed, num_clients=CLIENTS)
"""
_MODULE = 'module_of_a_copy'


def _hash(text):
  return hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def run_of_a_file(tmp_path, monkeypatch):
  """A user's file with its module, the copies in a run's folder, and the run's config."""
  monkeypatch.setattr(sys, 'dont_write_bytecode', True)  # It would be that of the former module.
  copies = tmp_path / 'run' / 'files' / 'task'
  copies.mkdir(parents=True)
  module = 'CLIENTS = 7\n'
  for folder in (tmp_path, copies):
    (folder / 'task.py').write_text(_TASK)
    (folder / f'{_MODULE}.py').write_text(module)
  entry = {
    'path': str(tmp_path / 'task.py'),
    'sha256': _hash(_TASK),
    'modules': {f'{_MODULE}.py': _hash(module)},
    'copy': 'files/task/task.py',
  }
  settings = {**SETTINGS, 'task': 'task.py:load', 'task_option': []}
  yield tmp_path, {'settings': settings, 'data': DATA, 'files': {'task': entry}}
  sys.modules.pop(_MODULE, None)


def _load_anew(folder, config):
  """Returns the task as a new process loads it."""
  sys.modules.pop(_MODULE, None)
  return loading.task_of(config, str(folder / 'run'))


def test_a_file_that_is_as_it_was_is_used_without_a_word(run_of_a_file):
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    assert len(_load_anew(*run_of_a_file).train.client_ids) == 7


def _change_file(folder):
  (folder / 'task.py').write_text('def load(data_dir, seed): raise RuntimeError\n')


def _change_module(folder):
  (folder / f'{_MODULE}.py').write_text('CLIENTS = 8\n')


def _move_away(folder):
  (folder / 'task.py').unlink()
  (folder / f'{_MODULE}.py').unlink()


@pytest.mark.parametrize(
  'change, words',
  [
    (_change_file, 'or a module that it imports, has changed since the run'),
    (_change_module, 'or a module that it imports, has changed since the run'),
    (_move_away, 'is gone'),
  ],
)
def test_the_runs_copy_stands_in_for_a_file_that_has_changed(run_of_a_file, change, words):
  folder, config = run_of_a_file
  change(folder)
  copy = folder / 'run' / 'files' / 'task' / 'task.py'
  message = re.escape(f"task.py', the file of the task, {words}: the copy '{copy}' is used")
  with pytest.warns(UserWarning, match=message):
    task = _load_anew(folder, config)
  assert len(task.train.client_ids) == 7


def test_without_a_whole_copy_a_changed_file_is_refused(run_of_a_file):
  folder, config = run_of_a_file
  _change_file(folder)
  copies = folder / 'run' / 'files' / 'task'
  (copies / f'{_MODULE}.py').write_text('CLIENTS = 9\n')
  with pytest.raises(tasks.DataError, match='imports a module that has changed since the run'):
    _load_anew(folder, config)
  (copies / 'task.py').write_text('')
  with pytest.raises(tasks.DataError, match=r'has changed since the run, and .* has no copy of it'):
    _load_anew(folder, config)
