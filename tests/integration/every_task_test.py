"""Every task of the catalogue loads, has data as its model declares them, and learns its loss."""

import numpy as np
import pytest
import tensorflow as tf

import tff_adaptive_tasks as tasks
from tests.helpers import task_data
from tff_adaptive_tasks import catalog, least_squares, stackoverflow
from tff_adaptive_tasks.models import language

# The tasks that read them, of each file or of several.
_READ_BY = {
  'emnist_all.sqlite': 'emnist_cr emnist_ae',
  'shakespeare.sqlite': 'shakespeare shakespeare_transformer',
  'stackoverflow.sqlite datasets': 'stackoverflow_nwp stackoverflow_lr',
  'cifar100.sqlite': 'cifar100',
  'cifar10_lossless.npz': 'cifar10 cifar10_cnn',
  'letters.npz': 'emnist_letters',
  'cifar100.npz': 'cifar100_cnn cifar100_pfllib',
  'mnist_digits.npz': 'mnist_skewed mnist_2nn mnist_cnn',
  'fashion_mnist': 'fashion_mnist',
  'flamby': 'fed_heart fed_tcga_brca',
}
FILES = {}
for _files, _names in _READ_BY.items():
  FILES |= dict.fromkeys(_names.split(), _files.split())
STEPS = 4


@pytest.mark.slow
@pytest.mark.parametrize(
  'name', [pytest.param(n, marks=task_data.needs(*FILES.get(n, []))) for n in catalog.names()]
)
def test_the_task_learns(name):
  task = tasks.load(name, task_data.DATA_DIR)
  values = {**catalog.sizes(name), **catalog.rates(name, 'sgd')}
  model = task.build_model(0)
  assert task.metric in model.metric_names
  assert task.metric == catalog.metric(name)
  assert values['clients_per_round'] <= len(task.train)
  assert catalog.num_clients(name, {}) in (None, len(task.train))
  client = task.train.load(task.train.client_ids[-1])
  parts = [client, task.validation] + ([] if task.test is None else [task.test])
  for part in parts:
    for key, spec in model.input_spec.items():
      assert part[key].dtype == spec.dtype.as_numpy_dtype, key
      assert spec.shape.is_compatible_with(part[key].shape), key
  if model.couples_examples:  # Cox's loss of a few patients of whom none has died is 0.
    client = task.train.load_all()
    values['batch_size'] = None
  x = tf.constant(client['x'][: values['batch_size']])
  y = tf.constant(client['y'][: values['batch_size']])

  # A tenth of the default, so that the loss of one batch falls in every step or nearly.
  rate = values['client_learning_rate'] / 10
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  losses = []
  for _ in range(STEPS):
    with tf.GradientTape() as tape:
      tape.watch(weights)
      loss, _ = model.loss_and_metrics(weights, x, y)
    losses.append(float(loss))
    gradients = map(tf.convert_to_tensor, tape.gradient(loss, weights))
    weights = tuple(w - rate * g for w, g in zip(weights, gradients))
  assert np.isfinite(losses).all()
  assert losses[-1] < losses[0], losses


TINY_TOKENS = np.array([[3, 1, 2], [1, 0, 0], [2, 3, 0]], np.int32)
TINY_X = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)


@pytest.mark.parametrize(
  'build, x, y',
  [
    (lambda: least_squares.build_model(0), TINY_X, TINY_X[:, 0]),
    (lambda: stackoverflow.build_tag_model(4, 3, 0), np.uint8(9 * abs(TINY_X)), np.eye(3)),
    (
      lambda: language.build_model(
        [np.eye(4, dtype=np.float32)], lambda weights, h, _: h, 3, {}, 'tff'
      ),
      TINY_TOKENS,
      np.roll(TINY_TOKENS, -1, 1) * [1, 1, 0],
    ),
  ],
)
def test_tffs_algorithms_train_the_same_loss(build, x, y):
  model = build()
  y = tf.cast(y, build().input_spec['y'].dtype)
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  loss, _ = model.loss_and_metrics(weights, x, y)
  output = model.forward(weights, x, True, None)
  np.testing.assert_allclose(model.loss(output, y), loss, rtol=1e-6)
  weighted = model.loss(output, y, sample_weight=tf.constant([2.0, 0.0, 2.0]))
  clients_with_data = [0, 2]
  loss, means = model.loss_and_metrics(
    weights, x[clients_with_data], tf.gather(y, clients_with_data)
  )
  np.testing.assert_allclose(weighted, loss, rtol=1e-6)
  # A batch filled up by an example that does not count.
  filled = model.loss_and_metrics(weights, x, y, shares=tf.constant([0.5, 0.0, 0.5]))
  np.testing.assert_allclose(filled[0], loss, rtol=1e-6)
  np.testing.assert_allclose(filled[1], means, rtol=1e-6)
