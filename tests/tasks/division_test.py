"""`partition` among a task's options: the same examples, other clients."""

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tests.helpers import task_data
from tff_adaptive_tasks import catalog, partition

OF_OWN = """
import numpy as np
import tff_adaptive_tasks as tasks

def load(data_dir, seed, size: int = 60):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(size, 3)).astype('f')
  return tasks.from_arrays(x, (x[:, 0] > 0).astype(int), np.arange(size) % 6)

def with_option(data_dir, seed, partition: str = 'mine'):
  import dataclasses
  return dataclasses.replace(load(data_dir, seed), source=partition)
"""


def rows(arrays):
  return sorted(x.tobytes() + y.tobytes() for x, y in zip(arrays['x'], arrays['y']))


def test_the_same_examples_train_at_other_clients():
  default = tasks.load('digits', seed=1)
  task = tasks.load('digits', seed=1, partition='pathological', num_clients=20)
  assert len(task.train) == 20
  assert rows(task.train.load_all()) == rows(default.train.load_all())
  assert rows(task.validation) == rows(default.validation)
  assert task_data.labels_report(task)['classes_per_client'] == 2
  assert 'PathologicalPartitioner(num_partitions=20' in task.source


def test_options_are_those_of_the_partitioner_and_the_seed_is_the_tasks():
  def labels(seed, **options):
    options = {'partition': 'dirichlet', 'num_clients': 7, **options}
    return [y.tolist() for y in all_labels(tasks.load('digits', seed=seed, **options))]

  def all_labels(task):
    return [task.train.load(client)['y'] for client in task.train.client_ids]

  assert labels(1) == labels(1, num_clients=7.0)
  assert labels(1) != labels(2)
  assert min(map(len, labels(1, alpha=0.2, min_partition_size=100))) >= 100
  default = tasks.load('digits', seed=1).train.load_all()
  parts = partition.DirichletPartitioner(7, seed=1)(default['y'])
  assert labels(1) == [default['y'][part].tolist() for part in parts]


def test_noise_goes_with_each_partition():
  plain = tasks.load('digits', partition='iid', num_clients=4)
  noisy = tasks.load('digits', partition='iid', num_clients=4, feature_noise=0.1)
  deviations = []
  for client in plain.train.client_ids:
    difference = noisy.train.load(client)['x'] - plain.train.load(client)['x']
    deviations.append(difference.std())
  np.testing.assert_allclose(np.square(deviations), [0.025, 0.05, 0.075, 0.1], rtol=0.05)


def test_a_user_s_own_task_is_divided_unless_it_has_such_an_option(tmp_path):
  path = tmp_path / 'own.py'
  path.write_text(OF_OWN)
  task = tasks.load(f'{path}:load', partition='linear', num_clients=3, size=80)
  sizes = [task.train.num_examples(client) for client in task.train.client_ids]
  assert len(sizes) == 3
  assert sizes == sorted(sizes)
  assert tasks.load(f'{path}:with_option', partition='theirs').source == 'theirs'


@pytest.mark.parametrize(
  'options, words',
  [
    ({'partition': 'dirichlett'}, "unknown partition 'dirichlett'. Did you mean dirichlet"),
    ({'partition': 'iid'}, 'needs a number of clients: give the option num_clients'),
    (
      {'partition': 'iid', 'num_clients': 5, 'alpha': 0.3},
      'partition=iid has no option alpha; it has: num_clients, unbalance, seed, feature_noise',
    ),
    ({'partition': 'iid', 'num_clients': 2.5}, 'num_clients of the .* is 2.5; it must be a who'),
    ({'partition': 'iid', 'num_clients': 5, 'num_partitions': 5}, 'are the same to the task'),
    ({'partition': 'iid', 'num_clients': 5, 'feature_noise': 'x'}, "is 'x'; it must be a number"),
    ({'partition': 'iid', 'num_clients': 5, 'letters': 3}, "'digits' has no option letters"),
    ({'partition': 'iid', 'num_clients': 10**6}, 'num_clients is 1000000'),
  ],
)
def test_what_does_not_fit_is_refused(options, words):
  with pytest.raises(tasks.DataError, match=words):
    tasks.load('digits', **options)


def test_targets_that_are_no_classes_cannot_be_divided_by():
  with pytest.raises(tasks.DataError, match='dtype float32; give one whole number or text'):
    tasks.load('least_squares', partition='dirichlet', num_clients=3)
  assert len(tasks.load('least_squares', partition='iid', num_clients=3).train) == 3


def test_the_number_of_clients_is_not_the_catalogues():
  assert catalog.num_clients('digits', {}) == 60
  assert catalog.num_clients('digits', {'partition': 'pfllib'}) is None
