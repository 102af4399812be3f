"""Exported models predict what the model does."""

import errno
import os

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import killed, small_problem
from tff_adaptive import models
from tff_adaptive.models import weights as weights_lib

keras = tf.keras
by_hand = small_problem.model
X = np.random.default_rng(0).normal(size=(6, 5)).astype(np.float32)


def of_keras():
  def build():
    layers = [keras.layers.Dense(4, 'tanh'), keras.layers.Dropout(0.5), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input([5]), *layers])

  return models.from_keras(build, keras.losses.SparseCategoricalCrossentropy(from_logits=True))


@pytest.mark.parametrize('build', [by_hand, of_keras])
@pytest.mark.parametrize('file_format', models.FORMATS)
@pytest.mark.sample(2)
def test_what_is_loaded_predicts_alike(tmp_path, build, file_format):
  model = build()
  weights = [w + 0.1 for w in model.initial_weights[0]]
  expected = model.forward(weights, X, False, None)
  path = models.save(model, weights, str(tmp_path / 'model'), file_format)
  if file_format == 'npz':
    assert tuple(np.load(path)) == models.weight_names(model)
    predictions = model.forward(models.read_weights_for(path, model), X, False, None)
  elif file_format == 'tflite':
    runner = tf.lite.Interpreter(path).get_signature_runner()
    predictions = runner(x=X)['predictions']
  elif file_format == 'keras':
    predictions = keras.models.load_model(path).predict(X, verbose=0)
  else:
    predictions = tf.saved_model.load(path).signatures['serving_default'](x=X)['predictions']
  np.testing.assert_allclose(predictions, expected, rtol=1e-6, atol=1e-6)
  assert os.listdir(tmp_path) == [os.path.basename(path)]


def test_an_exported_model_takes_its_inputs_as_they_are():
  same = by_hand()
  same.forward = lambda weights, x, training, seed: x
  layer = weights_lib._Forward(same, same.initial_weights[0])
  assert layer(tf.constant([1 / 3], tf.float64)).dtype == tf.float64


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path, monkeypatch):
  model = by_hand()
  gone = tmp_path / 'gone'
  gone.mkdir()
  monkeypatch.chdir(gone)
  gone.rmdir()  # It is written beside its path, and not here.
  path = str(tmp_path / 'model')
  models.save(model, model.initial_weights[0], path, 'npz')
  for weights, file_format, message in (
    (model.initial_weights[0], 'npz', 'exists already'),
    (model.initial_weights[0], 'onnx', 'must be one of keras, saved_model, npz, tflite'),
    (model.initial_weights[0][1:], 'keras', 'has 3 weights, the model has 4'),
  ):
    with pytest.raises(ValueError, match=message):
      models.save(model, weights, path, file_format)
  assert os.listdir(tmp_path) == ['model.npz']


@pytest.mark.parametrize('build', [by_hand, of_keras])
@pytest.mark.parametrize('file_format', ['keras', 'npz'])
def test_a_full_disk_is_one_error_whichever_writer_finds_it(
  tmp_path, build, file_format, monkeypatch
):
  """TensorFlow raises errors of its own, and NumPy's writer leaves an archive open."""

  def full(*unused_arguments, **unused_options):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

  def of_tensorflow(*unused_arguments, **unused_options):
    raise tf.errors.ResourceExhaustedError(None, None, 'a; No space left on device')

  monkeypatch.setattr(np.lib.format, 'write_array', full)
  monkeypatch.setattr(keras.Model, 'save', of_tensorflow if build is by_hand else full)
  model = build()
  with pytest.raises(OSError, match='the model cannot be written: No space left') as error:
    models.save(model, model.initial_weights[0], str(tmp_path / 'model'), file_format)
  assert error.value.errno == errno.ENOSPC
  assert str(tmp_path / 'model') in str(error.value)
  assert not os.listdir(tmp_path)


def test_what_a_killed_call_left_is_removed_by_the_next(tmp_path):
  model = models.from_keras(
    lambda: keras.Sequential([keras.Input([5]), keras.layers.Dense(3)]),
    keras.losses.MeanSquaredError(),
  )
  path = tmp_path / 'model.keras'
  left = tmp_path / 'temporary'
  left.mkdir()
  model.to_keras(model.initial_weights[0]).save(path)
  with killed.temporary_folders_in(left):
    with killed.before_folders_are_removed():
      weights_lib._read_keras(str(path), model)
    assert len(os.listdir(left)) == 1
    weights_lib._read_keras(str(path), model)
  assert os.listdir(left) == []
