"""Tasks, clients in memory, the catalogue, and what importing them costs."""

import collections
import subprocess
import sys

import numpy as np
import pytest

import tasks
from tasks import catalog
from tasks import task as task_lib


def test_clients_in_memory_load_what_they_were_given():
  data = tasks.InMemoryClientData(
    {"o'b": (np.ones([3, 2]), np.zeros(3)), 'a': (np.zeros([1, 2]), np.ones(1))}
  )
  assert list(data.client_ids) == ['a', "o'b"]
  assert data.num_examples("o'b") == 3
  assert data.num_examples('a') == 1
  assert len(data) == 2
  loaded = data.load("o'b")
  assert isinstance(loaded, collections.OrderedDict)
  assert list(loaded) == ['x', 'y']
  np.testing.assert_array_equal(data.load_all()['y'], [1, 0, 0, 0])


@pytest.mark.parametrize(
  'arrays, named',
  [
    ({'bob': (np.zeros([0, 2]), np.zeros(0))}, "'bob' has no examples"),
    ({'bob': (np.zeros([2, 2]), np.zeros(3))}, "'bob'.*must be the same"),
    ({}, 'no clients'),
  ],
)
def test_a_client_that_cannot_be_used_is_named(arrays, named):
  with pytest.raises(tasks.DataError, match=named):
    tasks.InMemoryClientData(arrays)


def test_an_unknown_client_is_an_error():
  data = tasks.InMemoryClientData({'a': (np.zeros([1]), np.zeros(1))})
  for call in (data.load, data.num_examples):
    with pytest.raises(tasks.DataError, match="unknown client 'b'"):
      call('b')


def test_clients_from_a_partition_are_numbered_so_that_they_sort():
  x = np.arange(12)
  data = task_lib.InMemoryClientData.from_partition(x, -x, np.arange(12).reshape(12, 1))
  assert list(data.client_ids) == [f'{i:02d}' for i in range(12)]
  assert data.load('07')['y'] == -7


def test_unknown_task_and_option_are_errors():
  with pytest.raises(tasks.DataError, match="unknown task 'digit'"):
    tasks.load('digit')
  with pytest.raises(tasks.DataError, match='no option clients; it has: alpha, num_clients'):
    tasks.load('digits', clients=3)


@pytest.mark.parametrize(
  'task, option, value, message',
  [
    ('emnist_cr', 'only_digits', 'no', "'no'; it must be true or false"),
    ('cifar10_cnn', 'jpeg', 1, '1; it must be true or false'),
    ('digits', 'num_clients', 'ten', "'ten'; it must be a whole number"),
    ('digits', 'num_clients', 2.5, r'2\.5; it must be a whole number'),
    ('digits', 'alpha', 'iid', "'iid'; it must be a number"),
    ('emnist_letters', 'alpha', 'iid', "'iid'; it must be a number or none"),
    ('digits', 'alpha', True, 'True; it must be a number'),
    ('shakespeare', 'padding', 3, '3; it must be a word'),
    ('stackoverflow_lr', 'padding', 'tff', 'has no option padding'),
    ('stackoverflow_nwp', 'num_tags', 3, 'has no option num_tags'),
    ('cifar100_cnn', 'jpeg', True, 'has no option jpeg'),
  ],
)
def test_an_option_of_another_kind_is_an_error(task, option, value, message):
  with pytest.raises(tasks.DataError, match=message):
    tasks.load(task, 'nowhere', **{option: value})


def test_options_may_be_written_as_other_numbers_and_none():
  assert len(tasks.load('digits', num_clients=1e1, alpha=1).train) == 10
  assert len(tasks.load('digits_skewed', alpha='none').train) == 100


def test_imports_bring_no_tensorflow():
  code = (
    'import sys, tasks; from tasks import catalog, partition; tasks.names();'
    "assert not {'tensorflow', 'tensorflow_federated'} & set(sys.modules), 'imported'"
  )
  subprocess.run([sys.executable, '-c', code], check=True)


def test_the_catalogue_has_the_papers_rates():
  yogi = catalog.defaults('emnist_cr', 'fed_yogi')
  assert yogi['client_learning_rate'] == pytest.approx(10**-1.5)
  assert yogi['server_learning_rate'] == pytest.approx(10**-2.5)
  assert yogi['tau'] == 1e-4
  assert (yogi['clients_per_round'], yogi['batch_size'], yogi['rounds']) == (10, 20, 1500)
  assert catalog.defaults('stackoverflow_lr', 'fed_adagrad')['server_learning_rate'] == 10
  assert catalog.defaults('cifar100', 'fed_avg')['server_learning_rate'] == pytest.approx(10**0.5)
  assert catalog.defaults('shakespeare', 'fed_avgm')['server_learning_rate'] == pytest.approx(
    10**-0.5
  )
  best = catalog.defaults('emnist_letters', 'ada_best')
  assert (best['mu'], best['beta'], best['weight_decay']) == (0.02, 0.96, 1e-4)
  assert (best['client_learning_rate'], best['batch_size'], best['client_epochs']) == (0.1, 45, 5)
  assert catalog.defaults('cifar100_cnn', 'fed_dyn')['weight_decay'] == 1e-3
  assert 'tau' not in catalog.defaults('emnist_cr', 'fed_avg')


def test_every_task_has_values_for_every_algorithm():
  from tff_adaptive import names

  assert set(catalog.ALGORITHMS) == set(names.ALGORITHMS)
  for task in catalog.names():
    for algorithm in catalog.ALGORITHMS:
      values = catalog.defaults(task, algorithm)
      assert 0 < values['client_learning_rate'] <= 100
      assert values['rounds'] >= 1
      assert ('tau' in values) == (algorithm in catalog.ADAPTIVE)
      assert values.get('client_schedule', 'constant') in names.SCHEDULES
    assert len(catalog.describe(task)) < 90
