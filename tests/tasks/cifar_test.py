"""CIFAR: the paper's settings, embedded files."""

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tests.helpers import image_files, task_data


def test_centralised_cifar_is_split(tmp_path):
  labels = image_files.write_classes(tmp_path / 'cifar10.npz', 10, shape=(32, 32, 3))
  task = tasks.load('cifar10', str(tmp_path), num_clients=12)
  assert [task.train.num_examples(c) for c in task.train.client_ids] == [10] * 12
  np.testing.assert_array_equal(np.sort(task.train.load_all()['y']), np.sort(labels))
  assert task_data.labels_report(task)['classes_per_client'] < 4
  assert len(task.validation['y']) == 30
  assert task.build_model.keywords == {'num_classes': 10}
  task = tasks.load('cifar10_cnn', str(tmp_path), num_clients=12)
  assert len(task.train) == 11
  assert len(task.train.load_all()['y']) + len(task.validation['y']) == 120
  assert len(task.test['y']) == 30


def test_tffs_cifar_100_is_read_and_what_is_out_of_range_is_named(tmp_path):
  def proto(k, **changes):
    return task_data.example(**{'image': [k] * 3072, 'label': k, **changes})

  good = {'0': [proto(5), proto(99)], '1': [proto(0)]}
  bad = {'0': [proto(5, label=100)]}
  task_data.write(tmp_path / 'cifar100.sqlite', {'train': good, 'test': good})
  task = tasks.load('cifar100', str(tmp_path))
  assert task.train.load('1')['y'] == [0]
  assert (task.validation['x'][:, 3, 2, 1] == [5, 99, 0]).all()
  for feature, row in (('label', bad), ('image', {'0': [proto(7, image=[256] * 3072)]})):
    path = tmp_path / feature / 'cifar100.sqlite'
    path.parent.mkdir()
    task_data.write(path, {'train': good, 'test': row})
    with pytest.raises(tasks.DataError, match=f"{feature} of client '0' in 'test', row 0"):
      tasks.load('cifar100', str(path.parent))
