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
from tff_adaptive._utils import archives

keras = tf.keras


def build(name='hidden', units=4):
  hidden = keras.layers.Dense(units, name=name)
  return keras.Sequential([keras.Input([5]), hidden, keras.layers.Dense(3, name='scores')])


def from_keras(**arguments):
  return models.from_keras(lambda: build(**arguments), 'mse')


@pytest.fixture(scope='module')
def model():
  return from_keras()


def test_a_keras_file_is_a_start_by_names(tmp_path, model):
  path, source = str(tmp_path / 'm.keras'), build()
  source.save(path)
  found = training.initial_weights_from(path, model)
  for a, b in zip(found, source.get_weights()):
    np.testing.assert_array_equal(a, b)
  with pytest.raises(ValueError, match='missing other/kernel, other/bias; unknown hidden/kernel'):
    training.initial_weights_from(path, from_keras(name='other'))
  with pytest.raises(ValueError, match=r'hidden/kernel has shape \[5, 4\], in .*\[5, 6\]'):
    training.initial_weights_from(path, from_keras(units=6))


def test_named_arrays_are_found_in_any_order(tmp_path, model):
  path = str(tmp_path / 'w.npz')
  arrays = dict(zip(model.weight_names, model.initial_weights[0]))
  np.savez(path, **dict(reversed(arrays.items())))
  found = training.initial_weights_from(path, model)
  for a, b in zip(found, model.initial_weights[0]):
    np.testing.assert_array_equal(a, b)
  np.savez(path, **{f'layer_{i}/kernel': np.zeros(1) for i in range(300)})
  with pytest.raises(ValueError, match=r'unknown .*, \.\.\. \(300 in all\)') as raised:
    training.initial_weights_from(path, model)
  assert len(str(raised.value)) < 400


def test_arrays_without_names_come_in_the_models_order(tmp_path):
  path, model = str(tmp_path / 'w.npz'), small_problem.model()
  np.savez(path, *[w.astype(np.float64) + 1 for w in model.initial_weights[0]])
  found = training.initial_weights_from(path, model)
  for a, b in zip(found, model.initial_weights[0]):
    assert a.dtype == np.float32
    np.testing.assert_array_equal(a, b + 1)


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda w: w[:-1], 'has 3 weights, the model has 4'),
    (lambda w: [w[0] * np.nan, *w[1:]], 'weight_0 has values that are not finite'),
    (lambda w: [w[0].astype(int), *w[1:]], 'weight_0 has dtype int64'),
    (
      lambda w: [w[0] + 1e300, *w[1:]],
      'weight_0 has values that are not finite numbers of float32',
    ),
    (lambda w: [w[0][:2], *w[1:]], r'weight_0 has shape \[2, '),
  ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, change, message):
  path, model = str(tmp_path / 'w.npz'), small_problem.model()
  np.savez(path, *change(model.initial_weights[0]))
  with pytest.raises(ValueError, match=message):
    training.initial_weights_from(path, model)


def test_other_files_are_refused(tmp_path):
  model = small_problem.model()
  for name, content, message in (
    ('none.npz', None, 'there is no file'),
    ('a.npz', b'nothing of the kind', 'a.npz cannot be read: '),
    ('empty.npz', b'', 'empty.npz cannot be read: '),
    ('a.keras', b'nothing of the kind', 'a.keras cannot be read: '),
    ('a.h5', b'', 'ends with neither .keras nor .npz'),
  ):
    if content is not None:
      (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
      training.initial_weights_from(str(tmp_path / name), model)
    assert '\n' not in str(error.value)


def _header(shape, descr='<f4'):
  text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
  return b'\x93NUMPY\x01\x00v\x00' + text.ljust(117) + b'\n'


def _npz(path, members, compression=zipfile.ZIP_DEFLATED):
  with zipfile.ZipFile(path, 'w', compression) as archive:
    for name, content in members:
      archive.writestr(name, content)


@pytest.mark.parametrize(
  'members, message',
  [
    ([('a.npy', _header((17 << 20,)) + bytes(68 << 20))], 'declares 71,303,296 bytes'),
    ([('a.npy', _header((1,)) + bytes(4))] * 2, "two entries 'a.npy'"),
    ([('a.npy', _header((10**18,)))], r'header says \[10+\]'),
    ([('a.npy', _header((-1, 5)))], r'header says \[-1, 5\]'),
    ([('a.npy', _header((2,)) + bytes(4))], r'header says \[2\] of float32, 8 bytes'),
    ([('a.npy', _header((1,), '|O') + bytes(8))], 'made of Python objects'),
  ],
)
@pytest.mark.filterwarnings('ignore:Duplicate name')
def test_a_file_of_arrays_that_declares_too_much_is_refused_before_it_is_unpacked(
  tmp_path, members, message, monkeypatch
):
  path = str(tmp_path / 'a.npz')
  _npz(path, members)
  monkeypatch.setattr(archives, 'read_array', lambda archive, entry: pytest.fail('unpacked'))
  with pytest.raises(ValueError, match=f'a.npz cannot be read: .*{message}'):
    training.initial_weights_from(path, small_problem.model())


@pytest.fixture(scope='module')
def parts(tmp_path_factory):
  """The entries of a sound .keras file."""
  path = str(tmp_path_factory.mktemp('keras') / 'm.keras')
  build().save(path)
  with zipfile.ZipFile(path) as archive:
    return {name: archive.read(name) for name in archive.namelist()}


def _config(parts, change):
  config = json.loads(parts['config.json'])
  change(
    config, next(layer for layer in config['config']['layers'] if layer['class_name'] == 'Dense')
  )
  return {'config.json': json.dumps(config)}


def _weights(parts, tmp_path, change):
  path = tmp_path / 'changed.h5'
  path.write_bytes(parts['model.weights.h5'])
  with h5py.File(path, 'r+') as file:
    folder = file['_layer_checkpoint_dependencies/dense/vars']
    shape = folder['0'].shape
    if change is not None:
      del folder['0']
      change(folder, shape)
  return {'model.weights.h5': path.read_bytes()}


def _huge(folder, shape):
  folder.create_dataset('0', shape=(10**7, 10**6), dtype='f4', chunks=(1000, 1000))


def _elsewhere(folder, shape):
  size = int(np.prod(shape)) * 4
  folder.create_dataset('0', shape=shape, dtype='f4', external=[(os.__file__, 0, size)])


def _virtual(folder, shape):
  layout = h5py.VirtualLayout(shape=shape, dtype='f4')
  layout[...] = h5py.VirtualSource(os.__file__, 'x', shape=shape)
  folder.create_virtual_dataset('0', layout)


def _linked(folder, shape):
  folder['0'] = h5py.ExternalLink('/dev/zero', '/x')


def _circle(folder, shape):
  folder['0'] = folder.parent


@pytest.mark.parametrize(
  'change, message',
  [
    (_huge, 'its arrays take 40,000,000,000,'),
    (_elsewhere, "has '.*/0' in another file"),  # Of any file's bytes weights would be made.
    (_virtual, "has '.*/0' in another file"),
    (_linked, "refers to another place at '0'"),
    (_circle, 'its groups hold each other'),
    (lambda folder, shape: folder.create_dataset('0', data='text'), 'has dtype object'),
  ],
)
def test_a_keras_file_whose_arrays_are_not_its_own_is_refused(
  parts, model, tmp_path, change, message
):
  path = str(tmp_path / 'm.keras')
  _npz(path, {**parts, **_weights(parts, tmp_path, change)}.items())
  with pytest.raises(ValueError, match=f'm.keras cannot be read: .*{message}'):
    training.initial_weights_from(path, model)


def _set(**values):
  return lambda config, dense: dense['config'].update(values)


@pytest.mark.parametrize(
  'change, message',
  [
    (_set(units=10**12), r'its layers take 36,000,000,'),
    (lambda config, dense: config.update(module='os', class_name='system'), "it names 'os'"),
    (
      _set(activation={'module': 'keras.utils', 'class_name': 'function', 'config': 'get_file'}),
      "it names 'keras.utils'",
    ),
    (lambda config, dense: dense.update(module='keras.src.utils.data_utils'), 'it names'),
    (_set(vocabulary='/etc/hostname'), "reads the file '/etc/hostname'"),
    (
      lambda config, dense: config.update(
        module='keras.layers', class_name='Dense', **{'config': {'units': 3, 'name': 'a'}}
      ),
      'it holds a Dense, no model',
    ),
  ],
)
def test_a_keras_file_that_names_other_code_or_layers_without_end_is_refused(
  parts, model, tmp_path, change, message
):
  path = str(tmp_path / 'm.keras')
  _npz(path, {**parts, **_config(parts, change)}.items())
  with pytest.raises(ValueError, match=f'm.keras cannot be read: .*{message}'):
    training.initial_weights_from(path, model)


def test_a_keras_file_with_other_or_endless_parts_is_refused(parts, model, tmp_path):
  path = str(tmp_path / 'm.keras')
  for name, content, message in (
    ('assets/../../a.txt', b'', 'it holds .*a.txt'),
    ('model.weights.npz', b'', 'it holds'),
    ('config.json', b' ' * (33 << 20), 'its config.json takes 34,603,008 bytes'),
    ('config.json', b'[' * 100_000, 'm.keras cannot be read: '),
  ):
    _npz(path, {**parts, name: content}.items())
    with pytest.raises(ValueError, match=message):
      training.initial_weights_from(path, model)


@pytest.mark.filterwarnings('ignore:BatchNormalization')
def test_moving_statistics_and_frozen_layers_of_a_file_are_not_lost(tmp_path):
  def network():
    layers = [keras.layers.BatchNormalization(), keras.layers.Dense(3)]
    return keras.Sequential([keras.Input([5]), *layers])

  path, source = str(tmp_path / 'm.keras'), network()
  source.layers[0].moving_mean.assign(np.arange(5.0))
  source.save(path)
  with pytest.raises(ValueError, match=r'm.keras has arrays that are not trained.*\(2; the .* 2\)'):
    training.initial_weights_from(path, models.from_keras(network, 'mse'))
  hand = small_problem.model()
  hand._initial_weights = (tuple(w.numpy() for w in source.trainable_variables), ())
  with pytest.raises(ValueError, match=r'not trained.* \(2; the model has 0\)'):
    training.initial_weights_from(path, hand)
  loading = models.from_keras(lambda: keras.models.load_model(path), 'mse')
  for a, b in zip(training.initial_weights_from(path, loading), source.trainable_variables):
    np.testing.assert_array_equal(a, b)


def test_a_file_with_a_lambda_or_code_of_a_users_file_says_what_to_give(tmp_path, parts, model):
  path = str(tmp_path / 'm.keras')
  doubled = keras.layers.Lambda(lambda x: 2 * x)
  keras.Sequential([keras.Input([5]), doubled, keras.layers.Dense(3)]).save(path)
  with pytest.raises(ValueError, match=r"it has a Lambda layer, .*the run's folder or an .npz"):
    training.initial_weights_from(path, model)

  def change(config, dense):
    dense.update(module='_tff_adaptive_user_code_93b43d', class_name='Own')

  _npz(path, {**parts, **_config(parts, change)}.items())
  with pytest.raises(ValueError, match=r"'Own' of the file of your own .*an .npz") as raised:
    training.initial_weights_from(path, model)
  assert '93b43d' not in str(raised.value)
