"""Damages data files at random, by seed, and reads them as a task does.

`tasks.DataError` must refuse the file in one printable line that names it, or it is read: an .npz
file, which has checksums, with exactly its arrays; others with values of the right kind and range.
With `FAULT_TRIES=1000 FAULT_SEED=0` in the environment 1,000 files of each kind are damaged.
"""

import collections
import os
import pathlib
import sqlite3
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tff_adaptive_tasks as tasks
from tests.helpers import image_files, small_problem, task_data
from tff_adaptive import models, training
from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import image_arrays, tff_sqlite

TRIES = int(os.environ.get('FAULT_TRIES', '60'))
SEED = int(os.environ.get('FAULT_SEED', '1'))
_FEATURES = {
  'pixels': tf.io.FixedLenFeature([4], tf.float32),
  'label': tf.io.FixedLenFeature([], tf.int64),
}
SMALL = image_arrays.MNIST._replace(shape=(8, 8, 1))


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
  """Some faults: bits flipped, bytes overwritten, cut, spliced in, or moved."""
  out = bytearray(content)
  for _ in range(rng.integers(1, 6)):
    kind = rng.integers(6)
    at = int(rng.integers(len(out) + 1))
    length = int(rng.integers(1, 2 ** rng.integers(1, 8)))
    if kind == 0 and at < len(out):
      out[at] ^= 1 << int(rng.integers(8))
    elif kind == 1:
      out[at : at + length] = rng.bytes(length)
    elif kind == 2:
      out[at : at + length] = bytes([rng.choice([0, 1, 0x7F, 0xFF])]) * length
    elif kind == 3:
      del out[at : at + length]
    elif kind == 4:
      source = int(rng.integers(len(out) + 1))
      out[at:at] = out[source : source + length]
    elif rng.random() < 0.2:
      del out[at:]
  return bytes(out)


def npz(folder: str, save: Callable) -> tuple[str, Callable]:
  """Writes a file of images; returns its path and the function that reads and checks it."""
  path = os.path.join(folder, 'mnist.npz')
  rng = np.random.default_rng(1)
  x = rng.integers(0, 256, [18, 8, 8]).astype(np.uint8)
  y = rng.integers(0, 10, 18)
  save(path, x_train=x[:12], y_train=y[:12], x_test=x[12:], y_test=y[12:])

  def read():
    train, test, _ = image_arrays.load(SMALL, folder)
    np.testing.assert_array_equal(np.concatenate([train.x, test.x])[..., 0], x)
    np.testing.assert_array_equal(np.concatenate([train.y, test.y]), y)

  return path, read


def sqlite(folder: str) -> tuple[str, Callable]:
  """As `npz`, a file in TFF's format."""
  path = os.path.join(folder, 'emnist.sqlite')
  rng = np.random.default_rng(1)
  protos = [
    task_data.example(pixels=rng.random(4).tolist(), label=int(label))
    for label in rng.integers(10, size=150)
  ]
  clients = {f'writer_{c}': protos[5 * c : 5 * c + 5] for c in range(30)}
  task_data.write(path, {'train': clients, 'test': clients})
  with sqlite3.connect(path) as con:
    con.execute('CREATE INDEX by_client ON examples (client_id, split_name)')
  con.close()

  def read():
    for split in ('train', 'test'):
      data = tff_sqlite.SqlClientData(
        path, split, _FEATURES, lambda f: (f['pixels'], f['label']), {'label': (0, 9)}
      )
      features, owner = data.all_features()
      assert np.isfinite(features['pixels']).all()
      assert len(owner) == sum(map(data.num_examples, data.client_ids))
      for client in data.client_ids[::7]:
        loaded = data.load(client)
        assert len(loaded['x']) == len(loaded['y']) == data.num_examples(client)
        assert set(loaded['y']) <= set(range(10))

  return path, read


def header(folder: str) -> tuple[str, Callable]:
  """As `npz`, an .npy header that is damaged before the archive gets its checksums."""
  path = os.path.join(folder, 'mnist.npz')
  x = image_files.npy_bytes(np.zeros([4, 8, 8], np.uint8))
  y = image_files.npy_bytes(np.arange(4))
  with open(path, 'wb') as f:
    f.write(y[:128])

  def read():
    with open(path, 'rb') as f:
      damaged = f.read() + y[128:]
    image_files.archive(path, {'x_train': x, 'y_train': damaged, 'x_test': x, 'y_test': y})
    train, _, _ = image_arrays.load(SMALL, folder)
    assert train.y.shape == (4,)
    assert set(train.y) <= set(range(10))

  return path, read


def table(folder: str, ending: str) -> tuple[str, Callable]:
  """Writes a table; returns its path and the function that makes a task of it and checks that.

  Neither format has checksums here: a digit that became another is read.
  """
  path = os.path.join(folder, f'own.{ending}')
  load = getattr(tasks, f'from_{ending}')
  rng = np.random.default_rng(1)
  rows = pd.DataFrame(
    {
      'who': [f'client {i % 6}' for i in range(40)],
      'age': rng.integers(20, 90, 40),
      'dose': rng.normal(size=40),
      'kind': rng.choice(['f', 'm'], 40),
      'outcome': rng.choice(['good', 'poor'], 40),
    }
  )
  if ending == 'csv':
    rows.to_csv(path, index=False)
  else:
    rows.to_parquet(path)

  def read():
    task = load(path, 'who', 'outcome')
    client = task.train.load_all()
    assert client['x'].dtype == np.float32
    assert np.isfinite(client['x']).all()
    assert set(client['y']) <= set(range(len(task.preparation.classes)))
    assert len(client['y']) + len(task.validation['y']) <= 80

  return path, read


def weights(folder: str, ending: str) -> tuple[str, Callable]:
  """As `table`, of weights to start from: both formats have checksums."""
  path = os.path.join(folder, f'start.{ending}')
  if ending == 'keras':
    layers = [tf.keras.Input([4]), tf.keras.layers.Dense(3), tf.keras.layers.Dense(2)]
    model = models.from_keras(lambda: tf.keras.Sequential(layers), 'mse')
    model.to_keras(model.initial_weights[0]).save(path)
  else:
    model = small_problem.model()
    np.savez(path, *model.initial_weights[0])

  def read():
    try:
      weights = training.initial_weights_from(path, model)
    except ValueError as error:
      raise errors.DataError(str(error)) from error
    for a, b in zip(weights, model.initial_weights[0]):
      np.testing.assert_array_equal(a, b)

  return path, read


KINDS = {
  'npz': lambda folder: npz(folder, np.savez),
  'npz_compressed': lambda folder: npz(folder, np.savez_compressed),
  'npy_header': header,
  'sqlite': sqlite,
  'csv': lambda folder: table(folder, 'csv'),
  'parquet': lambda folder: table(folder, 'parquet'),
  'weights_npz': lambda folder: weights(folder, 'npz'),
  'weights_keras': lambda folder: weights(folder, 'keras'),
}


def _outcome(read: Callable, name: str) -> str:
  try:
    read()
  except errors.DataError as e:
    message = str(e)
    if name in message and message.isprintable():
      return 'refused'
    return f'unnamed: {message!r}'
  except Exception as e:  # Whatever else it is, is a failure; all of them are shown.
    return f'{type(e).__name__}: {str(e)[:100]}'
  return 'read'


@pytest.mark.parametrize('kind', KINDS)
def test_damaged_files_are_refused_by_name(kind, tmp_path):
  path, read = KINDS[kind](str(tmp_path))
  file = pathlib.Path(path)
  good = file.read_bytes()
  outcomes = collections.Counter()
  for i in range(TRIES):
    file.write_bytes(mutate(good, np.random.default_rng([SEED, i])))
    outcomes[_outcome(read, file.name)] += 1
  assert set(outcomes) <= {'read', 'refused'}
  assert outcomes['refused'] > TRIES / 6
