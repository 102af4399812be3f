"""What config.json says of a task, loaded again; for runs of own files see export_test.py."""

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import loading

SETTINGS = {'task': 'digits', 'task_option': ['num_clients=7'], 'data_dir': None, 'seed': 3}
DATA = {'source': 'any', 'clients': 7, 'examples': 1438, 'validation_examples': 359}


def test_the_task_has_its_options_and_seed():
  task = loading.task_of({'settings': SETTINGS, 'data': DATA})
  expected = tasks.load('digits', seed=3, num_clients=7)
  np.testing.assert_array_equal(task.validation['x'], expected.validation['x'])
  assert task.train.client_ids == expected.train.client_ids


@pytest.mark.parametrize('what', ['clients', 'examples', 'validation_examples'])
def test_other_data_are_refused(what):
  with pytest.raises(tasks.DataError, match=f'{what} was 6 and is now {DATA[what]}'):
    loading.task_of({'settings': SETTINGS, 'data': {**DATA, what: 6}})


@pytest.mark.parametrize('missing', ['task', 'task_option', 'data_dir', 'seed'])
def test_of_what_a_program_said_of_its_task_all_must_be_there(missing):
  """settings={'task': 'digits'} of training.train, say."""
  settings = {name: value for name, value in SETTINGS.items() if name != missing}
  with pytest.raises(tasks.DataError, match=f'names no {missing}: give .*load_task='):
    loading.task_of({'settings': settings, 'data': DATA})


def test_the_task_of_a_run_that_held_something_out_is_what_it_trained_on():
  shares = {'heldout_clients': 0.3, 'heldout_examples': 0.2}
  digits = tasks.load('digits', seed=3, num_clients=7)
  parts = tasks.split_clients(digits.train, seed=3, **shares)
  ids = parts.train.client_ids
  examples = sum(map(parts.train.num_examples, ids))
  data = {**DATA, 'clients': len(ids), 'examples': examples, 'unseen_clients': len(parts.unseen)}
  task = loading.task_of({'settings': {**SETTINGS, **shares}, 'data': data})
  assert task.train.client_ids == ids
  for client_id in ids:
    np.testing.assert_array_equal(task.train.load(client_id)['x'], parts.train.load(client_id)['x'])
  with pytest.raises(tasks.DataError, match='the data have changed'):
    loading.task_of({'settings': SETTINGS, 'data': data})
