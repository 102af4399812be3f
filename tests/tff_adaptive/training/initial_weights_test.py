"""Weights to start from, of files; of runs see run_test.py."""

import json
import os
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
  found = training.initial_weights_from(str(path), model)
  for a, b in zip(found, expected, strict=True):
    assert a.dtype == np.float32
    np.testing.assert_array_equal(a, b)


def check_refused(path, model, message):
  with pytest.raises(ValueError, match=message) as raised:
    training.initial_weights_from(str(path), model)
  assert '\n' not in str(raised.value)
  assert len(str(raised.value)) < 500


def test_a_keras_file_is_a_start_by_names(tmp_path, model):
  path, source = tmp_path / 'm.keras', build()
  source.save(path)
  check_found(path, model, source.get_weights())
  other = from_keras(name='other')
  check_refused(path, other, 'missing other/kernel, other/bias; unknown hidden/kernel')
  check_refused(path, from_keras(units=6), r'hidden/kernel has shape \[5, 4\], in .*\[5, 6\]')


def test_arrays_are_found_by_their_names_or_in_the_models_order(tmp_path, model):
  path = tmp_path / 'w.npz'
  arrays = dict(zip(model.weight_names, model.initial_weights[0]))
  np.savez(path, **dict(reversed(arrays.items())))
  check_found(path, model, arrays.values())
  np.savez(path, **{f'layer_{i}/kernel': np.zeros(1) for i in range(300)})
  check_refused(path, model, r'unknown .*, \.\.\. \(300 in all\)')
  np.savez(path, *[w.astype(np.float64) + 1 for w in WEIGHTS])
  check_found(path, small_problem.model(), [w + 1 for w in WEIGHTS])


def test_the_folder_of_an_export_is_its_file_of_weights(tmp_path):
  file = tmp_path / 'model.npz'
  np.savez(file, *WEIGHTS)
  (tmp_path / 'export.json').write_text('{}')
  check_found(tmp_path, small_problem.model(), WEIGHTS)
  assert initial_weights.sha256(str(tmp_path)) == initial_weights.sha256(str(file))


def _arrays(*arrays):
  return lambda path: np.savez(path, *arrays)


def _bytes(content):
  return lambda path: path.write_bytes(content)


@pytest.mark.parametrize(
  'name, write, message',
  [
    ('a.npz', _arrays(*WEIGHTS[:-1]), 'has 3 weights, the model has 4'),
    ('a.npz', _arrays(WEIGHTS[0] * np.nan, *WEIGHTS[1:]), 'weight_0 has values that are not fini'),
    ('a.npz', _arrays(WEIGHTS[0].astype(int), *WEIGHTS[1:]), 'weight_0 has dtype int64'),
    (
      'a.npz',
      _arrays(WEIGHTS[0] + 1e300, *WEIGHTS[1:]),
      'weight_0 .* not finite numbers of',
    ),
    ('a.npz', _arrays(WEIGHTS[0][:2], *WEIGHTS[1:]), r'weight_0 has shape \[2, '),
    ('none.npz', lambda path: None, 'there is no file'),
    ('a.npz', _bytes(b'nothing of the kind'), 'a.npz cannot be read: '),
    ('a.keras', _bytes(b'nothing of the kind'), 'a.keras cannot be read: '),
    ('a.h5', _bytes(b''), 'ends with neither .keras nor .npz'),
  ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path, name, write, message):
  write(tmp_path / name)
  check_refused(tmp_path / name, small_problem.model(), message)


def _header(shape, descr='<f4'):
  text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
  return b'\x93NUMPY\x01\x00v\x00' + text.ljust(117) + b'\n'


def _zip(path, members):
  with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
    for name, content in members:
      archive.writestr(name, content)


@pytest.mark.parametrize(
  'content, message',
  [
    (_header((17 << 20,)) + bytes(68 << 20), 'declares 71,303,296 bytes'),
    (_header((1,)) + bytes(8), r'has more bytes than \[1\] of float32 take'),
    (_header((1,), '|O') + bytes(8), 'Object arrays cannot be loaded'),
  ],
)
def test_a_file_of_arrays_that_declares_too_much_is_refused(tmp_path, content, message):
  _zip(tmp_path / 'a.npz', [('a.npy', content)])
  message = f'a.npz cannot be read: .*{message}'
  check_refused(tmp_path / 'a.npz', small_problem.model(), message)


@pytest.fixture(scope='module')
def parts(tmp_path_factory):
  """The entries of a sound .keras file."""
  path = str(tmp_path_factory.mktemp('keras') / 'm.keras')
  build().save(path)
  with zipfile.ZipFile(path) as archive:
    return {name: archive.read(name) for name in archive.namelist()}


def _part(name, content):
  return lambda parts, path: {name: content}


def _config(change):
  """Changes config.json, given the model's and that of its first dense layer."""

  def changed(parts, path):
    config = json.loads(parts['config.json'])
    layers = config['config']['layers']
    change(config, next(layer for layer in layers if layer['class_name'] == 'Dense'))
    return {'config.json': json.dumps(config)}

  return changed


def _set(**values):
  return _config(lambda config, dense: dense['config'].update(values))


def _weights(change):
  """Puts another kernel into the file of weights, given its group and its shape."""

  def changed(parts, path):
    path.write_bytes(parts['model.weights.h5'])
    with h5py.File(path, 'r+') as file:
      folder = file['_layer_checkpoint_dependencies/dense/vars']
      shape = folder['0'].shape
      del folder['0']
      change(folder, shape)
    return {'model.weights.h5': path.read_bytes()}

  return changed


def _dataset(**given):
  return _weights(lambda group, shape: group.create_dataset('0', **{'shape': shape, **given}))


def _virtual(group, shape):
  layout = h5py.VirtualLayout(shape=shape, dtype='f4')
  layout[...] = h5py.VirtualSource(os.__file__, 'x', shape=shape)
  group.create_virtual_dataset('0', layout)


def _linked(group, shape):
  group['0'] = h5py.ExternalLink('/dev/zero', '/x')


def _circle(group, shape):
  group['0'] = group.parent


OF_UTILS = {'module': 'keras.utils', 'class_name': 'function', 'config': 'get_file'}
LAYER = {'module': 'keras.layers', 'class_name': 'Dense', 'config': {'units': 3, 'name': 'a'}}
OF_USER = {'module': '_tff_adaptive_user_code_93b43d', 'class_name': 'Own'}


@pytest.mark.parametrize(
  'change, message',
  [
    (
      _dataset(shape=(10**7, 10**6), dtype='f4', chunks=(1000, 1000)),
      'arrays take 40,000,000,',
    ),
    # Of any file's bytes weights would be made.
    (_dataset(dtype='f4', external=[(os.__file__, 0, 80)]), "has '.*/0' in another file"),
    (_weights(_virtual), "has '.*/0' in another file"),
    (_weights(_linked), "refers to another place at '.*/0'"),
    (_weights(_circle), ''),
    (_dataset(shape=(), data='text'), 'has dtype object'),
    (_set(units=10**12), r'its layers take 36,000,000,'),
    (_config(lambda config, dense: config.update(module='os', class_name='system')), "names 'os'"),
    (_set(activation=OF_UTILS), "it names 'keras.utils'"),
    (_config(lambda config, dense: dense.update(module='keras.src.utils.data_utils')), 'it names'),
    (_set(vocabulary='/etc/hostname'), "reads the file '/etc/hostname'"),
    (_config(lambda config, dense: config.update(LAYER)), 'it holds a Dense, no model'),
    (_config(lambda config, dense: dense.update(OF_USER)), "'Own' of the file of your own .*.npz"),
    (_part('assets/../../a.txt', b''), 'it holds .*a.txt'),
    (_part('model.weights.npz', b''), 'it holds'),
    (_part('config.json', b' ' * (33 << 20)), 'its config.json takes 34,603,008 bytes'),
    (_part('config.json', b'[' * 100_000), ''),
  ],
)
def test_a_keras_file_of_other_or_endless_parts_is_refused(parts, model, tmp_path, change, message):
  """Arrays or code that are not its own, layers without end."""
  path = tmp_path / 'm.keras'
  _zip(path, {**parts, **change(parts, tmp_path / 'changed.h5')}.items())
  check_refused(path, model, f'm.keras cannot be read: (?!.*93b43d).*{message}')


@pytest.mark.filterwarnings('ignore:BatchNormalization')
def test_moving_statistics_and_frozen_layers_of_a_file_are_not_lost(tmp_path):
  def network():
    layers = [keras.layers.BatchNormalization(), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input([5]), *layers])

  path, source = tmp_path / 'm.keras', network()
  source.layers[0].moving_mean.assign(np.arange(5.0))
  source.save(path)
  other = models.from_keras(network, 'mse')
  check_refused(path, other, r'm.keras has arrays that are not trained.*\(2; the .* 2\)')
  hand = small_problem.model()
  hand._initial_weights = (tuple(w.numpy() for w in source.trainable_variables), ())
  check_refused(path, hand, r'not trained.* \(2; the model has 0\)')
  loading = models.from_keras(lambda: keras.models.load_model(path), 'mse')
  check_found(path, loading, source.trainable_variables)


def test_a_file_with_a_lambda_says_what_to_give(tmp_path, model):
  layers = [keras.layers.Lambda(lambda x: 2 * x), keras.layers.Dense(3)]
  keras.Sequential([keras.Input([5]), *layers]).save(tmp_path / 'm.keras')
  message = r"it has a Lambda layer, .*the run's folder or an .npz"
  check_refused(tmp_path / 'm.keras', model, message)
