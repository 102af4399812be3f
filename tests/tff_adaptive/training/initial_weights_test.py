"""Weights to start from, of files; of runs see run_test.py."""

import hashlib
import pathlib
import shutil
import zipfile

import h5py
import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import small_problem
from tff_adaptive import models, training
from tff_adaptive.training import initial_weights

keras = tf.keras
WEIGHTS = small_problem.model().initial_weights[0]


def build(name='hidden', units=4):
  hidden = keras.layers.Dense(units, name=name)
  return keras.Sequential([keras.Input([5]), hidden, keras.layers.Dense(3, name='scores')])


def from_keras(**arguments):
  return models.from_keras(lambda: build(**arguments), 'mse')


@pytest.fixture(scope='module')
def model():
  return from_keras()


def check_found(path, model, expected):
  initial = training.initial_weights_from(str(path), model)
  for a, b in zip(initial, expected, strict=True):
    assert a.dtype == np.float32
    np.testing.assert_array_equal(a, b)


def check_refused(path, model, message):
  with pytest.raises(ValueError, match=message) as raised:
    training.initial_weights_from(str(path), model)
  assert '\n' not in str(raised.value)
  assert len(str(raised.value)) < 500


def test_a_keras_file_is_a_start_for_a_model_of_its_layers(tmp_path, model):
  path = tmp_path / 'm.keras'
  source = build()
  source.save(path)
  check_found(path, model, source.get_weights())
  trained = build()
  trained.compile('adam', 'mse')
  trained.fit(np.ones([2, 5]), np.ones([2, 3]), verbose=0)
  trained.save(path)  # The optimizer's arrays are no weights.
  check_found(path, from_keras(name='other'), trained.get_weights())
  check_refused(path, from_keras(units=6), r'cannot be read: .*\(5, 6\)')
  check_refused(
    path, small_problem.model(), r'this task has not: give an .npz file, made by np.sav'
  )


def network(keras_version):
  """A model with layers in layers, made by a version of Keras; its weights come from a seed."""
  layers = keras_version.layers
  x = keras_version.Input([4, 3])
  inner = keras_version.Sequential([layers.Dense(5), layers.Dropout(0.5), layers.Dense(4)])
  h = inner(layers.Dense(3)(x))
  h = layers.MultiHeadAttention(2, 2)(h, h)
  h = layers.Bidirectional(layers.GRU(2))(h)
  model = keras_version.Model(x, layers.Dense(3)(h))
  rng = np.random.default_rng(0)
  model.set_weights([rng.normal(size=w.shape).astype(np.float32) for w in model.weights])
  return model


def _write_of_tensorflow_2_14(path):
  """Copies what TensorFlow 2.14.1 wrote of `network(tf.keras)`, compiled with Adam."""
  shutil.copy(pathlib.Path(__file__).parents[2] / 'data' / 'keras_2_14.keras', path)


def _write_of_keras_2(path):
  source = network(keras)
  source.compile('adam', 'mse')
  source.save(path)


def _write_of_keras_3(path):
  source = network(pytest.importorskip('keras', minversion='3'))
  source.compile('adam', 'mse')
  source.save(path)


@pytest.mark.parametrize('write', [_write_of_tensorflow_2_14, _write_of_keras_2, _write_of_keras_3])
@pytest.mark.sample(1)
def test_every_version_of_keras_writes_files_that_are_read(tmp_path, write):
  path = tmp_path / 'm.keras'
  write(path)

  def build_zeros():
    of_zeros = network(keras)
    of_zeros.set_weights([np.zeros(w.shape) for w in of_zeros.weights])
    return of_zeros

  check_found(path, models.from_keras(build_zeros, 'mse'), network(keras).get_weights())


def test_layers_of_other_names_are_refused(tmp_path):
  path = tmp_path / 'm.keras'
  build().save(path)
  other = models.from_keras(
    lambda: keras.Sequential(
      [keras.Input([5, 1]), keras.layers.Conv1D(4, 1), keras.layers.Dense(3)]
    ),
    'mse',
  )
  check_refused(path, other, 'cannot be read: it has no array layers/conv1d/vars/0, .*np.savez')


def test_arrays_are_found_by_their_names_or_in_the_models_order(tmp_path, model):
  path = tmp_path / 'w.npz'
  arrays = dict(zip(model.weight_names, model.initial_weights[0]))
  np.savez(path, **dict(reversed(arrays.items())))
  check_found(path, model, arrays.values())
  np.savez(path, **{f'layer_{i}/kernel': np.zeros(1) for i in range(300)})
  check_refused(path, model, r'4 are missing .*, 300 unknown \(')
  np.savez(path, *[w.astype(np.float64) + 1 for w in WEIGHTS])
  check_found(path, small_problem.model(), [w + 1 for w in WEIGHTS])


def test_the_folder_of_an_export_is_its_file_of_weights(tmp_path):
  file = tmp_path / 'model.npz'
  np.savez(file, *WEIGHTS)
  (tmp_path / 'export.json').write_text('{}')
  check_found(tmp_path, small_problem.model(), WEIGHTS)
  assert initial_weights.sha256(str(tmp_path)) == hashlib.sha256(file.read_bytes()).hexdigest()


def _arrays(*arrays):
  return lambda path: np.savez(path, *arrays)


def _bytes(content):
  return lambda path: path.write_bytes(content)


def _zip(path, members):
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
    for name, content in members:
      archive.writestr(name, content)


def _declared(shape, descr, size):
  """Writes an archive with an array of a header and so many bytes."""
  text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
  header = b'\x93NUMPY\x01\x00v\x00' + text.ljust(117) + b'\n'
  return lambda path: _zip(path, [('a.npy', header + bytes(size))])


@pytest.mark.parametrize(
  'name, write, message',
  [
    ('a.npz', _arrays(*WEIGHTS[:-1]), 'has 3 weights, the model has 4'),
    ('a.npz', _arrays(WEIGHTS[0] * np.nan, *WEIGHTS[1:]), 'weight_0 has values that are not fini'),
    ('a.npz', _arrays(WEIGHTS[0].astype(int), *WEIGHTS[1:]), 'weight_0 has dtype int64'),
    (
      'a.npz',
      _arrays(WEIGHTS[0].astype(float) + 1e300, *WEIGHTS[1:]),
      'weight_0 .* not finite numbers of',
    ),
    ('a.npz', _arrays(WEIGHTS[0][:2], *WEIGHTS[1:]), r'weight_0 has shape \[2, '),
    ('none.npz', lambda path: None, 'there is no file'),
    ('a.npz', _bytes(b'nothing of the kind'), 'a.npz cannot be read: '),
    ('a.keras', _bytes(b'nothing of the kind'), 'a.keras cannot be read: '),
    ('a.h5', _bytes(b''), 'ends with neither .keras nor .npz'),
    ('a.npz', _declared((1,), '<f4', 8), r'read: .*has more bytes than \[1\] of float32 take'),
    ('a.npz', _declared((1,), '|O', 8), 'a.npz cannot be read: .*Object arrays cannot be loaded'),
  ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, name, write, message):
  write(tmp_path / name)
  check_refused(tmp_path / name, small_problem.model(), message)


@pytest.fixture(scope='module')
def parts(tmp_path_factory):
  """The entries of a sound .keras file."""
  path = str(tmp_path_factory.mktemp('keras') / 'm.keras')
  build().save(path)
  with zipfile.ZipFile(path) as archive:
    return {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize(
  'text, message', [('text', 'not convert'), (None, 'its layers have 3 arrays, the model has 4')]
)
def test_a_keras_file_of_other_arrays_is_refused(parts, model, tmp_path, text, message):
  path = tmp_path / 'm.keras'
  weights = tmp_path / 'changed.h5'
  weights.write_bytes(parts['model.weights.h5'])
  with h5py.File(weights, 'r+') as file:
    group = file['layers/dense/vars']
    del group['0']
    if text is not None:
      group.create_dataset('0', data=text)
  _zip(path, {**parts, 'model.weights.h5': weights.read_bytes()}.items())
  check_refused(path, model, f'm.keras cannot be read: .*{message}')


def test_what_a_keras_file_says_of_its_model_is_not_read(parts, model, tmp_path):
  _zip(tmp_path / 'm.keras', {**parts, 'config.json': b'{"module": "os"}'}.items())
  training.initial_weights_from(str(tmp_path / 'm.keras'), model)


@pytest.mark.filterwarnings('ignore:BatchNormalization')
def test_moving_statistics_and_frozen_layers_of_a_file_are_not_lost(tmp_path):
  def network():
    layers = [keras.layers.BatchNormalization(), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input([5]), *layers])

  path = tmp_path / 'm.keras'
  source = network()
  source.layers[0].moving_mean.assign(np.arange(5.0))
  source.save(path)
  other = models.from_keras(network, 'mse')
  check_refused(path, other, r'm.keras has arrays that are not trained.*\(2; the .* 2\)')
  loading = models.from_keras(lambda: keras.models.load_model(path), 'mse')
  check_found(path, loading, source.trainable_variables)
