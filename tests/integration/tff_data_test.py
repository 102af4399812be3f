"""The tasks on TFF's files have TFF's clients and what TFF's baselines make of their examples."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow_federated.python.simulation.baselines.shakespeare import (
  char_prediction_preprocessing,
)
from tensorflow_federated.python.simulation.baselines.stackoverflow import (
  word_prediction_preprocessing,
)

import tff_adaptive_tasks as tasks
from tests.helpers import task_data

SOURCES = tff.simulation.datasets
SPEC = tff.simulation.baselines.ClientSpec(num_epochs=1, batch_size=1000, shuffle_buffer_size=1)


def features(x, y):
  return lambda: lambda dataset: dataset.map(lambda e: (e[x], e[y])).batch(1000)


def words():
  vocabulary = list(SOURCES.stackoverflow.load_word_counts(task_data.DATA_DIR, 10_000))
  return word_prediction_preprocessing.create_preprocess_fn(SPEC, vocabulary)


def characters():
  return char_prediction_preprocessing.create_preprocess_fn(SPEC)


@dataclasses.dataclass(frozen=True)
class Source:
  """A task and TFF's data set."""

  task: str
  module: str
  prepare: Callable  # Returns what TFF makes of a client's examples.
  options: dict = dataclasses.field(default_factory=dict)
  tff_options: dict = dataclasses.field(default_factory=dict)


CASES = [
  Source(task='cifar100', module='cifar100', prepare=features('image', 'label')),
  Source(
    task='emnist_cr',
    options={'only_digits': True},
    module='emnist',
    prepare=features('pixels', 'label'),
  ),
  Source(
    task='emnist_cr',
    module='emnist',
    tff_options={'only_digits': False},
    prepare=features('pixels', 'label'),
  ),
  Source(task='shakespeare', module='shakespeare', prepare=characters),
  Source(task='stackoverflow_nwp', module='stackoverflow', prepare=words),
]


@task_data.needs('cifar100.sqlite', 'emnist_all.sqlite', 'shakespeare.sqlite', 'datasets')
@pytest.mark.parametrize('source', CASES)
def test_clients_and_examples_are_tffs(monkeypatch, source):
  # TFF insists on fetching an archive; its readers are right for the local files all the same.
  monkeypatch.setattr(
    tf.keras.utils, 'get_file', lambda name, cache_dir=None, **_: f'{cache_dir}/datasets/{name}'
  )
  task = tasks.load(source.task, task_data.DATA_DIR, **source.options)
  of_tff = getattr(SOURCES, source.module)
  train, *_, test = of_tff.load_data(cache_dir=task_data.DATA_DIR, **source.tff_options)
  assert list(task.train.client_ids) == sorted(train.client_ids)
  prepare = source.prepare()

  def examples(data, client):
    pairs = list(prepare(data.create_tf_dataset_for_client(client)).as_numpy_iterator())
    return [np.concatenate(batches) for batches in zip(*pairs)]

  spec = task.build_model(0).input_spec
  for client in task.train.client_ids[:: len(task.train) // 4]:
    loaded = task.train.load(client)
    assert task.train.num_examples(client) == len(loaded['y'])
    for key, expected in zip('xy', examples(train, client)):
      assert loaded[key].dtype == spec[key].dtype.as_numpy_dtype
      np.testing.assert_array_equal(loaded[key].reshape(expected.shape), expected)
  if source.task != 'stackoverflow_nwp':  # Of its test clients some are drawn.
    ids = sorted(test.client_ids)
    first, _ = examples(test, ids[0])
    last, _ = examples(test, ids[-1])
    x = task.validation['x'].reshape(-1, *first.shape[1:])
    np.testing.assert_array_equal(x[: len(first)], first)
    np.testing.assert_array_equal(x[-len(last) :], last)
