"""Tasks on TFF's ClientData."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks

EXAMPLES = {
  f'c{i}': collections.OrderedDict(
    pixels=np.full([4, 2], i, np.float32), label=np.array([i, 1, 2, 3]) % 4
  )
  for i in range(6)
}


def client_data(names=('pixels', 'label')):
  slices = {c: collections.OrderedDict(zip(names, e.values())) for c, e in EXAMPLES.items()}
  return tff.simulation.datasets.TestClientData(slices)


def mapped(function):
  return client_data().preprocess(lambda d: d.map(function))


def check(task):
  assert len(task.train.client_ids) == 5
  for client in task.train.client_ids:
    np.testing.assert_array_equal(task.train.load(client)['x'], EXAMPLES[client]['pixels'])
    np.testing.assert_array_equal(task.train.load(client)['y'], EXAMPLES[client]['label'])


def test_features_by_name_and_pairs():
  check(tasks.from_tff(client_data(), features='pixels', label='label'))
  check(tasks.from_tff(client_data(('x', 'y'))))
  check(tasks.from_tff(mapped(lambda e: (e['pixels'], e['label']))))
  texts = mapped(lambda e: (e['pixels'], tf.strings.as_string(e['label'])))
  assert tasks.from_tff(texts).preparation.classes == ('0', '1', '2', '3')


def test_validation_clients_of_ones_own():
  task = tasks.from_tff(client_data(('x', 'y')), validation=client_data(('x', 'y')))
  assert len(task.train.client_ids) == 6
  assert len(task.validation['y']) == 24


@pytest.mark.parametrize(
  'data, options, message',
  [
    (EXAMPLES, {}, 'expected a tff.simulation.datasets.ClientData, found dict'),
    (client_data(), {}, "mappings with 'x' and 'y'"),
    (client_data(), dict(features='pixels', label='x'), "mappings with 'pixels' and 'x'"),
    (mapped(lambda e: e['label']), {}, 'they must be pairs'),
    (client_data(('x', 'y')).preprocess(lambda d: d.take(0)), {}, 'has no examples'),
  ],
)
def test_other_forms_are_refused(data, options, message):
  with pytest.raises(tasks.DataError, match=message):
    tasks.from_tff(data, **options)
