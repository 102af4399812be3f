"""A stored model predicts as the one that was stored, without its code."""

import gc
import json
import os
import subprocess
import typing
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import fresh, killed, small_problem
from tff_adaptive import models
from tff_adaptive.models import stored

layers = tf.keras.layers
RNG = np.random.default_rng(0)
FLOATS = RNG.normal(size=(6, 5)).astype(np.float32)
NUMBERS = RNG.integers(0, 7, (6, 4)).astype(np.int32)
LOGITS = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
PROBABILITIES = tf.keras.losses.SparseCategoricalCrossentropy()


def of_normalization():
  normalization = layers.Normalization()
  normalization.adapt(3 * FLOATS + 1)
  return tf.keras.Sequential([tf.keras.Input([5]), normalization, layers.Dense(3)])


def of_frozen_layer():
  hidden = layers.Dense(4, 'relu', trainable=False)
  last = layers.Dense(3, 'softmax')
  return tf.keras.Sequential([tf.keras.Input([5]), hidden, layers.Dropout(0.5), last])


def of_lstm():
  embedding = layers.Embedding(7, 3)
  inputs = tf.keras.Input([4], dtype=tf.int32)
  return tf.keras.Sequential([inputs, embedding, layers.LSTM(5), layers.Dense(7)])


def of_own_layer():
  class Doubled(layers.Layer):
    """A layer that Keras finds in no module, as those of another machine's file."""

    def call(self, x):
      return 2.0 * x

  return tf.keras.Sequential([tf.keras.Input([5]), Doubled(), layers.Dense(3)])


def from_keras(build, loss):
  return models.from_keras(build, loss, seed=1)


class Stored(typing.NamedTuple):
  build: Callable
  x: np.ndarray
  output: str
  has_keras: bool = True  # Whether Keras can load it.


CASES = {
  'by hand': Stored(build=small_problem.model, x=FLOATS, output='logits', has_keras=False),
  'adapted normalization': Stored(
    build=lambda: from_keras(of_normalization, LOGITS), x=FLOATS, output='logits'
  ),
  'frozen layer': Stored(
    build=lambda: from_keras(of_frozen_layer, PROBABILITIES), x=FLOATS, output='probabilities'
  ),
  'lstm': Stored(build=lambda: from_keras(of_lstm, LOGITS), x=NUMBERS, output='logits'),
  'own layer': Stored(
    build=lambda: from_keras(of_own_layer, LOGITS), x=FLOATS, output='logits', has_keras=False
  ),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize('name', CASES)
def test_a_stored_model_predicts_alike(name, tmp_path):
  build, x, kind, has_keras = CASES[name]
  model = build()
  models.store_model(model, str(tmp_path), {'task': 'mine'})
  weights = [RNG.normal(size=w.shape).astype(w.dtype) for w in model.initial_weights[0]]
  expected = model.forward(tuple(weights), x, False, None)
  loaded = models.load_stored_model(str(tmp_path))
  np.testing.assert_allclose(loaded.forward(weights, x), expected, rtol=1e-6, atol=1e-6)
  assert loaded.weight_names == models.weight_names(model)
  assert loaded.description == {'task': 'mine'}
  assert stored.output_kind(loaded._graph, loaded._output.partition(':')[0]) == kind
  if has_keras:
    keras = loaded.to_keras(weights)
    np.testing.assert_allclose(keras(x), expected, rtol=1e-5, atol=1e-5)
    with np.testing.assert_raises(ValueError):
      loaded.to_keras(weights[1:])
  else:
    with pytest.raises(ValueError, match=r'not a Keras model|Keras cannot (save|load) it'):
      loaded.to_keras(weights)


@pytest.mark.parametrize('name', ['lstm', 'own layer'])
@pytest.mark.exhaustive
def test_another_process_exports_it_as_saved_model_and_for_devices(name, tmp_path):
  x = CASES[name].x
  model = CASES[name].build()
  models.store_model(model, str(tmp_path), {})
  weights = [RNG.normal(size=w.shape).astype(w.dtype) for w in model.initial_weights[0]]
  np.savez(tmp_path / 'weights.npz', *weights)
  np.save(tmp_path / 'x.npy', x)
  code = (
    'import sys, numpy as np\n'
    'from tff_adaptive import models\n'
    'folder = sys.argv[1]\n'
    'weights = list(np.load(folder + "/weights.npz").values())\n'
    'model = models.load_stored_model(folder)\n'
    'np.save(folder + "/predictions.npy", model.forward(weights, np.load(folder + "/x.npy")))\n'
    'models.save(model, weights, folder + "/served", "saved_model")\n'
    'models.save(model, weights, folder + "/lite", "tflite")\n'
  )
  subprocess.run([*fresh.python(), '-c', code, str(tmp_path)], check=True)
  expected = model.forward(tuple(weights), x, False, None)
  there = np.load(tmp_path / 'predictions.npy')
  np.testing.assert_allclose(there, expected, rtol=1e-5, atol=1e-5)
  served = tf.saved_model.load(str(tmp_path / 'served')).signatures['serving_default']
  np.testing.assert_allclose(served(x=x)['predictions'], expected, rtol=1e-5, atol=1e-5)
  lite = tmp_path / 'lite.tflite'
  if name == 'lstm':  # It needs operations of TensorFlow, which this interpreter has not.
    assert lite.stat().st_size > 1000
    return
  runner = tf.lite.Interpreter(str(lite)).get_signature_runner()
  np.testing.assert_allclose(runner(x=x)['predictions'], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
def test_it_predicts_after_the_process_has_forgotten_the_model_that_was_stored(tmp_path):
  """Layers such as LSTM trace functions, whose names the stored graph must not share with them."""
  model = from_keras(of_lstm, LOGITS)
  models.store_model(model, str(tmp_path), {})
  weights = [RNG.normal(size=w.shape).astype(w.dtype) for w in model.initial_weights[0]]
  expected = model.forward(tuple(weights), NUMBERS, False, None)
  loaded = models.load_stored_model(str(tmp_path))
  loaded.forward(weights, NUMBERS)  # While the model is there, this need not fail.
  del model
  gc.collect()
  np.testing.assert_allclose(loaded.forward(weights, NUMBERS), expected, rtol=1e-6, atol=1e-6)


def test_the_keras_file_has_no_weights_and_takes_no_room_for_them(tmp_path):
  model = from_keras(
    lambda: tf.keras.Sequential([tf.keras.Input([500]), layers.Dense(500)]),
    tf.keras.losses.MeanSquaredError(),
  )
  models.store_model(model, str(tmp_path), {})
  assert model.num_parameters * 4 > 1e6
  assert os.path.getsize(tmp_path / 'model.keras') < 1e5
  assert os.path.getsize(tmp_path / 'forward.pb') < 1e5


def test_what_a_killed_call_left_is_removed_by_the_next(tmp_path):
  model = from_keras(
    lambda: tf.keras.Sequential([tf.keras.Input([5]), layers.Dense(3)]),
    tf.keras.losses.MeanSquaredError(),
  )
  folder = tmp_path / 'stored'
  left = tmp_path / 'temporary'
  folder.mkdir()
  left.mkdir()
  path = str(folder / 'model.keras')
  with killed.temporary_folders_in(left):
    with killed.before_folders_are_removed():
      assert stored._write_keras(model, path) == ''
    assert len(os.listdir(left)) == 1
    stored._write_keras(model, path)
  assert os.listdir(left) == []
  assert os.listdir(folder) == ['model.keras']


def test_pythons_conditions_on_tensors_are_stored(tmp_path):
  model = small_problem.model()
  forward = model.forward

  def conditional(weights, x, training, seed):
    predictions = forward(weights, x, training, seed)
    if tf.reduce_sum(x) > 0:
      predictions = -predictions
    return predictions

  model.forward = conditional
  models.store_model(model, str(tmp_path), {})
  weights = model.initial_weights[0]
  for x in (np.abs(FLOATS), -np.abs(FLOATS)):
    expected = conditional(weights, x, False, None)
    predicted = models.load_stored_model(str(tmp_path)).forward(weights, x)
    np.testing.assert_allclose(predicted, expected, rtol=1e-6, atol=1e-6)


def test_a_model_that_depends_on_a_variable_is_refused(tmp_path):
  variable = tf.Variable(2.0)
  model = small_problem.model()
  forward = model.forward
  model.forward = lambda weights, x, training, seed: variable * forward(weights, x, training, seed)
  with pytest.raises(ValueError, match='use a variable or a table'):
    models.store_model(model, str(tmp_path), {})


def test_a_damaged_or_foreign_folder_is_refused_in_one_line(tmp_path):
  with pytest.raises(FileNotFoundError):
    models.load_stored_model(str(tmp_path))
  models.store_model(small_problem.model(), str(tmp_path), {})
  (tmp_path / 'forward.pb').write_bytes(b'damaged')
  with pytest.raises(ValueError, match=r'the stored model .* cannot be read: ') as error:
    models.load_stored_model(str(tmp_path))
  assert '\n' not in str(error.value)
  (tmp_path / 'model.json').write_text(json.dumps({'format': 2}))
  with pytest.raises(ValueError, match='its format is 2, this version reads 1'):
    models.load_stored_model(str(tmp_path))
