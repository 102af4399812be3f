"""Weights to start from, of files; of runs see saved_run_test.py."""

import zipfile

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import small_problem
from tff_adaptive import models, training

keras = tf.keras


def build(name='hidden', units=4):
  hidden = keras.layers.Dense(units, name=name)
  return keras.Sequential([keras.Input([5]), hidden, keras.layers.Dense(3, name='scores')])


def from_keras(**arguments):
  return models.from_keras(lambda: build(**arguments), 'mse')


def test_a_keras_file_is_a_start_by_names(tmp_path):
  path, source = str(tmp_path / 'm.keras'), build()
  source.save(path)
  found = training.initial_weights_from(path, from_keras())
  for a, b in zip(found, source.get_weights()):
    np.testing.assert_array_equal(a, b)
  with pytest.raises(ValueError, match='missing other/kernel, other/bias; unknown hidden/kernel'):
    training.initial_weights_from(path, from_keras(name='other'))
  with pytest.raises(ValueError, match=r'hidden/kernel has shape \[5, 4\], in .*\[5, 6\]'):
    training.initial_weights_from(path, from_keras(units=6))


def test_named_arrays_are_found_in_any_order(tmp_path):
  path, model = str(tmp_path / 'w.npz'), from_keras()
  arrays = dict(zip(model.weight_names, model.initial_weights[0]))
  np.savez(path, **dict(reversed(arrays.items())))
  found = training.initial_weights_from(path, model)
  for a, b in zip(found, model.initial_weights[0]):
    np.testing.assert_array_equal(a, b)


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
    (lambda w: [w[0].astype(int), *w[1:]], 'weight_0 has values that are not finite numbers'),
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
  for name, message in (
    ('none.npz', 'there is no file'),
    ('a.npz', 'cannot be read'),
    ('a.keras', 'cannot be read'),
    ('a.h5', 'ends with neither .keras nor .npz'),
  ):
    if name != 'none.npz':
      (tmp_path / name).write_bytes(b'nothing of the kind')
    with pytest.raises(ValueError, match=message):
      training.initial_weights_from(str(tmp_path / name), model)


def _archive(path, **members):
  with zipfile.ZipFile(path, 'w') as archive:
    for name, content in members.items():
      archive.writestr(name.replace('_', '.'), content)


def test_whatever_a_damaged_file_makes_a_decoder_raise_is_one_error(tmp_path):
  model, path = small_problem.model(), tmp_path / 'empty.npz'
  path.write_bytes(b'')
  huge = tmp_path / 'huge.npz'  # 10^18 numbers, of which there are none.
  header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000000,), }"
  _archive(huge, a_npy=b'\x93NUMPY\x01\x00v\x00' + header.ljust(117) + b'\n')
  deep = tmp_path / 'deep.keras'
  _archive(deep, config_json='[' * 100_000, metadata_json='{}')
  for damaged in (path, huge, deep):
    with pytest.raises(ValueError, match=f'{damaged.name} cannot be read: ') as error:
      training.initial_weights_from(str(damaged), model)
    assert '\n' not in str(error.value)
