"""Damages data files at random, the same for the same seed, and reads them as a task does.

  python -m tests.faults.damaged_data --tries=6000 --seed=0

A damaged file must be refused by `tasks.DataError` in one printable line that names it, or read:
an .npz file with exactly the arrays it had (it has checksums), a SQLite file with values of the
right kind and range (it has none, nor have tables of a user's own). Anything else is a failure,
listed with its number. The exit code is 1 where there are failures.
"""

import argparse
import collections
import os
import sqlite3
import sys
import tempfile
import types

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import numpy as np
import pandas as pd
import tensorflow as tf

import tff_adaptive_tasks as tasks
from tests.helpers import image_files, small_problem, task_data
from tff_adaptive import models, training
from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import image_arrays, tff_sqlite

_FEATURES = {
  'pixels': tf.io.FixedLenFeature([4], tf.float32),
  'label': tf.io.FixedLenFeature([], tf.int64),
}


def mutate(content: bytes, rng: np.random.Generator) -> bytes:
  """Some faults: bits flipped, bytes overwritten, cut, spliced in, or moved."""
  out = bytearray(content)
  for _ in range(rng.integers(1, 6)):
    kind, at = rng.integers(6), int(rng.integers(len(out) + 1))
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


def npz(folder: str, compressed: bool) -> tuple[str, types.FunctionType]:
  """Writes a file of images; returns its path and the function that reads and checks it."""
  path = os.path.join(folder, 'mnist.npz')
  rng = np.random.default_rng(1)
  arrays = {}
  for split, n in (('train', 12), ('test', 6)):
    arrays[f'x_{split}'] = rng.integers(0, 256, [n, 8, 8]).astype(np.uint8)
    arrays[f'y_{split}'] = rng.integers(0, 10, n)
  (np.savez_compressed if compressed else np.savez)(path, **arrays)

  def read():
    splits = image_arrays.load(folder, ['mnist.npz'], 'mnist', (8, 8, 1), 10)
    for split, name in zip(splits, ('train', 'test')):
      np.testing.assert_array_equal(split.x[..., 0], arrays[f'x_{name}'])
      np.testing.assert_array_equal(split.y, arrays[f'y_{name}'])

  return path, read


def sqlite(folder: str) -> tuple[str, types.FunctionType]:
  """As `npz`, a file in TFF's format."""
  path, rng = os.path.join(folder, 'emnist.sqlite'), np.random.default_rng(1)
  clients = {
    f'writer_{c}': [
      task_data.example(pixels=rng.random(4).tolist(), label=int(rng.integers(10)))
      for _ in range(5)
    ]
    for c in range(30)
  }
  task_data.write(path, {'train': clients, 'test': clients})
  with sqlite3.connect(path) as con:
    con.execute('CREATE INDEX by_client ON examples (client_id, split_name)')
  con.close()

  def prepare(features):
    return features['pixels'], features['label'].astype(np.int32)

  def read():
    for split in ('train', 'test'):
      data = tff_sqlite.SqlClientData(path, split, _FEATURES, prepare, {'label': (0, 9)})
      features, owner = data.all_features()
      assert np.isfinite(features['pixels']).all()
      assert len(owner) == sum(map(data.num_examples, data.client_ids))
      for client in data.client_ids[::7]:
        loaded = data.load(client)
        assert len(loaded['x']) == len(loaded['y']) == data.num_examples(client)
        assert set(loaded['y']) <= set(range(10))

  return path, read


def header(folder: str) -> tuple[str, types.FunctionType]:
  """As `npz`, an .npy header that is damaged before the archive gets its checksums."""
  path = os.path.join(folder, 'mnist.npz')
  arrays = {'x_train': np.zeros([4, 8, 8], np.uint8), 'y_train': np.arange(4)}
  good = {k: image_files.npy_bytes(v) for k, v in arrays.items()}
  good |= {k.replace('train', 'test'): v for k, v in good.items()}
  with open(path, 'wb') as f:
    f.write(good['y_train'][:128])

  def read():
    with open(path, 'rb') as f:
      damaged = f.read()
    image_files.archive(path, {**good, 'y_train': damaged + good['y_train'][128:]})
    train, _, _ = image_arrays.load(folder, ['mnist.npz'], 'mnist', (8, 8, 1), 10)
    assert train.y.shape == (4,)
    assert set(train.y) <= set(range(10))

  return path, read


def table(folder: str, ending: str) -> tuple[str, types.FunctionType]:
  """Writes a table; returns its path and the function that makes a task of it and checks that.

  Neither format has checksums here: a digit that became another is read.
  """
  path, load = os.path.join(folder, f'own.{ending}'), getattr(tasks, f'from_{ending}')
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
    found = task.train.load_all()
    assert found['x'].dtype == np.float32
    assert np.isfinite(found['x']).all()
    assert set(found['y']) <= set(range(len(task.preparation.classes)))
    assert len(found['y']) + len(task.validation['y']) <= 80

  return path, read


def weights(folder: str, ending: str) -> tuple[str, types.FunctionType]:
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
      found = training.initial_weights_from(path, model)
    except ValueError as error:
      raise errors.DataError(str(error)) from error
    for a, b in zip(found, model.initial_weights[0]):
      np.testing.assert_array_equal(a, b)

  return path, read


KINDS = {
  'npz': lambda folder: npz(folder, False),
  'npz_compressed': lambda folder: npz(folder, True),
  'npy_header': header,
  'sqlite': sqlite,
  'csv': lambda folder: table(folder, 'csv'),
  'parquet': lambda folder: table(folder, 'parquet'),
  'weights_npz': lambda folder: weights(folder, 'npz'),
  'weights_keras': lambda folder: weights(folder, 'keras'),
}


def attack(kind: str, tries: int, seed: int = 0) -> collections.Counter:
  """Damages one kind of file `tries` times; number i is the same whatever their number.

  Returns:
    How often each came out: 'read', 'refused', and failures by what they were.
  """
  found: collections.Counter = collections.Counter()
  with tempfile.TemporaryDirectory() as folder:
    path, read = KINDS[kind](folder)
    with open(path, 'rb') as f:
      good = f.read()
    for i in range(tries):
      damaged = mutate(good, np.random.default_rng([seed, i]))
      with open(path, 'wb') as f:
        f.write(damaged)
      outcome = _outcome(read, os.path.basename(path))
      found[outcome] += 1
      if outcome not in ('read', 'refused'):
        sys.stderr.write(f'{kind}, number {i}: {outcome}\n')
  return found


def _outcome(read: types.FunctionType, name: str) -> str:
  try:
    read()
  except errors.DataError as e:
    message = str(e)
    return 'refused' if name in message and message.isprintable() else f'unnamed: {message!r}'
  except Exception as e:  # Whatever else it is, is a failure; a tool reports all of them.
    return f'{type(e).__name__}: {str(e)[:100]}'
  return 'read'


def main() -> int:
  """Runs the command; returns the exit code."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--tries', type=int, default=6000, help='damaged files, over all kinds')
  parser.add_argument('--seed', type=int, default=0)
  given = parser.parse_args()
  failures = 0
  for kind in KINDS:
    found = attack(kind, given.tries // len(KINDS), given.seed)
    sys.stdout.write(f'{kind}: {dict(found)}\n')
    failures += sum(n for outcome, n in found.items() if outcome not in ('read', 'refused'))
  return 1 if failures else 0


if __name__ == '__main__':
  sys.exit(main())
