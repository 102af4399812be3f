"""EMNIST: the paper's models, equal to TFF's, and TFF's data."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_federated.python.simulation.baselines.emnist import emnist_models

import tff_adaptive_tasks as tasks
from tests.helpers import task_data
from tff_adaptive import models
from tff_adaptive_tasks import emnist, mnist

X = np.random.default_rng(0).uniform(size=[7, 28, 28, 1]).astype(np.float32)
Y = np.random.default_rng(1).integers(0, 10, 7).astype(np.int32)
_THEIR_SEED = 1  # Without a seed, TFF calls `random.randint(1, 1e9)`, which CPython 3.12 refuses.


def assert_like_keras(model, keras_model, x, y, keras_loss, to_predictions):
  """Same weights, with biases that are not 0: same predictions and loss (dropout off)."""
  weights = [w + 0.1 * (w.ndim == 1) for w in model.initial_weights[0]]
  keras_model.set_weights(weights)
  weights = tuple(map(tf.constant, weights))
  predictions = model.forward(weights, tf.constant(x), False, None)
  expected = keras_model(x)
  np.testing.assert_allclose(to_predictions(predictions), expected, rtol=1e-4, atol=1e-5)
  loss, _ = model.loss_and_metrics(weights, x, y, training=False)
  np.testing.assert_allclose(loss, keras_loss(y, expected), rtol=1e-5)


@pytest.mark.parametrize(
  'model, create, parameters',
  [
    (emnist.build_cnn(3), emnist_models.create_conv_dropout_model, 1_206_590),
    (emnist.build_2nn(3), emnist_models.create_two_hidden_layer_model, 209_662),
    (mnist.build_cnn(3), emnist_models.create_original_fedavg_cnn_model, 1_663_370),
    (mnist.build_2nn(3), emnist_models.create_two_hidden_layer_model, 199_210),
  ],
)
def test_the_models_of_characters_are_tffs(model, create, parameters):
  assert model.num_parameters == parameters
  loss = tf.keras.losses.SparseCategoricalCrossentropy()
  only_digits = model.initial_weights[0][-1].shape == (10,)
  theirs = create(only_digits=only_digits, debug_seed=_THEIR_SEED)
  assert_like_keras(model, theirs, X, Y, loss, tf.nn.softmax)


def test_dropout_comes_from_the_seed():
  model = emnist.build_cnn(0, 10)
  weights = tuple(map(tf.constant, model.initial_weights[0]))

  def run(seed, training=True):
    return model.forward(weights, X, training, seed).numpy()

  a = run(tf.constant([1, 2]))
  b = run(tf.constant([1, 2]))
  c = run(tf.constant([1, 3]))
  np.testing.assert_array_equal(a, b)
  assert not np.allclose(a, c)
  np.testing.assert_array_equal(run(None), run(tf.constant([1, 2]), training=False))


def test_the_autoencoder_is_tffs_and_its_loss_is_summed_as_the_authors():
  model = emnist.build_autoencoder(3)
  assert model.num_parameters == 2_837_314
  x = X.reshape(-1, 784)
  theirs = emnist_models.create_autoencoder_model(debug_seed=_THEIR_SEED)
  mean = tf.keras.losses.MeanSquaredError()
  assert_like_keras(model, theirs, x, x, lambda y, p: len(y) * mean(y, p), lambda p: p)
  metrics = models.build_evaluation(model)(theirs.get_weights(), {'x': x, 'y': x})
  errors = theirs(x) - x
  assert metrics['mse'] == pytest.approx(np.mean(errors**2), rel=1e-5)
  assert metrics['mae'] == pytest.approx(np.mean(abs(errors)), rel=1e-5)


def write_emnist(folder, **changes):
  """A file of two writers in all four splits; `changes` are of the last test example's features."""

  def proto(number, ink=0.25, **changed):
    return task_data.example(**{'pixels': [1 - ink] * 784, 'label': number, **changed})

  clients = {'w1': [proto(3), proto(9, ink=0.5)], 'w0': [proto(0)]}
  splits = dict.fromkeys(
    ('digits_only_train', 'digits_only_test', 'all_train', 'all_test'), clients
  )
  splits['all_train'] = {'w2': [proto(61)] * 4}
  splits['digits_only_test'] = {'w1': [proto(3), proto(1, **changes)]}
  task_data.write(folder / 'emnist_all.sqlite', splits)
  return str(folder)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A folder with the file of `write_emnist`."""
  return write_emnist(tmp_path_factory.mktemp('data'))


def test_embedded_writers_are_the_clients(folder):
  task = tasks.load('emnist_cr', folder, only_digits=True)
  assert list(task.train.client_ids) == ['w0', 'w1']
  loaded = task.train.load('w1')
  np.testing.assert_array_equal(loaded['y'], [3, 9])
  np.testing.assert_allclose(loaded['x'][:, 0, 0, 0], [0.75, 0.5])
  assert loaded['x'].shape == (2, 28, 28, 1)
  np.testing.assert_array_equal(task.validation['y'], [3, 1])
  assert task.preparation.classes == tuple('0123456789')
  np.testing.assert_array_equal(task.preparation(loaded['x'].reshape(2, 784)), loaded['x'])


def test_letters_count_unless_they_are_left_out(folder):
  every = tasks.load('emnist_cr', folder)
  assert (every.train.client_ids, every.build_model.keywords) == (['w2'], {'num_classes': 62})


def test_the_autoencoders_targets_are_its_inputs_ink_on_white(folder):
  ink = tasks.load('emnist_ae', folder, only_digits=True).train.load('w1')
  np.testing.assert_allclose(ink['x'][:, 5], [0.25, 0.5])
  np.testing.assert_array_equal(ink['x'], ink['y'])
  np.testing.assert_allclose(emnist._INK(1 - ink['x'].reshape(2, 28, 28)), ink['x'])


def test_the_model_may_be_the_perceptron(folder):
  task = tasks.load('emnist_cr', folder, only_digits=True, model='2nn')
  assert task.build_model(0).num_parameters == 199_210


def test_a_label_that_is_no_digit_is_refused(tmp_path):
  with pytest.raises(tasks.DataError, match=r"label of client 'w1' .* is 10; .* from 0 to 9"):
    tasks.load('emnist_cr', write_emnist(tmp_path, label=10), only_digits=True)
