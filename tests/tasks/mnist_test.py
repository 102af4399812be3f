"""MNIST over clients: both splits, by the seed."""

import numpy as np

import tff_adaptive_tasks as tasks
from tests.helpers import image_files, task_data


def labels_of(task):
  """The set of labels of each client, in order."""
  return [set(task.train.load(c)['y']) for c in task.train.client_ids]


def test_embedded_mnist_is_split_by_the_seed(tmp_path):
  labels = image_files.write_classes(tmp_path / 'mnist.npz', 10)

  def load(**options):
    return tasks.load('mnist_2nn', str(tmp_path), num_clients=10, **options)

  for split in ('iid', 'shards'):
    task = load(split=split, seed=1)
    assert labels_of(task) != labels_of(load(split=split))
    examples = task.train.load_all()
    np.testing.assert_array_equal(np.sort(examples['y']), np.sort(labels))
    assert (examples['x'].min(), examples['x'].max()) == (0, np.float32(199 / 255))
    assert task.validation['x'].min() == np.float32(200 / 255)  # The test split.
  assert task.build_model(0).num_parameters == 199_210
  # Twenty shards of six images: each is half a class.
  assert all(len(labels) <= 2 for labels in labels_of(task))
  assert task_data.labels_report(load())['classes_per_client'] > 5
