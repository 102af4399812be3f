"""Damages data files at random, the same for the same seed, and reads them as a task does.

  python -m tests.faults.damaged_data --tries=6000 --seed=0

A damaged file must be refused by `tasks.DataError` in one printable line that names it, or read:
an .npz file with exactly the arrays it had (it has checksums), a SQLite file with values of the
right kind and range (it has none, nor have tables of a user's own). Anything else is a failure,
listed with its number, which `--only=NUMBER` tries again: another exception, a try of more than 30
seconds, more than 1 GB of memory. The exit code is 1 where there are failures.
"""

import argparse
import collections
import os
import resource
import signal
import sqlite3
import sys
import tempfile
import traceback
import types

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

import numpy as np
import tensorflow as tf

from tests.faults import damaged_own_files
from tests.helpers import image_files, task_data
from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import image_arrays, tff_sqlite

_SECONDS, _BYTES = 30, 10**9
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


KINDS = {
  'npz': lambda folder: npz(folder, False),
  'npz_compressed': lambda folder: npz(folder, True),
  'npy_header': header,
  'sqlite': sqlite,
  'csv': lambda folder: damaged_own_files.table(folder, 'csv'),
  'parquet': lambda folder: damaged_own_files.table(folder, 'parquet'),
  'weights_npz': lambda folder: damaged_own_files.weights(folder, 'npz'),
  'weights_keras': lambda folder: damaged_own_files.weights(folder, 'keras'),
}


def attack(
  kind: str, tries: int, seed: int = 0, only: int | None = None, seconds: int | None = None
) -> collections.Counter:
  """Damages one kind of file `tries` times.

  Args:
    kind: A name in `KINDS`.
    tries: Damaged files.
    seed: Seed of all damages; number i is the same whatever the number of tries.
    only: The number of the one try to make, if not all.
    seconds: What a try may take, once `limits` was called; None where others watch (pytest does).

  Returns:
    How often each came out: 'read', 'refused', and failures by what they were.
  """
  found: collections.Counter = collections.Counter()
  with tempfile.TemporaryDirectory() as folder:
    path, read = KINDS[kind](folder)
    with open(path, 'rb') as f:
      good = f.read()
    for i in range(tries) if only is None else [only]:
      damaged = mutate(good, np.random.default_rng([seed, i]))
      with open(path, 'wb') as f:
        f.write(damaged)
      outcome = _outcome(read, os.path.basename(path), seconds)
      found[outcome] += 1
      if outcome not in ('read', 'refused'):
        sys.stderr.write(f'{kind}, number {i}: {outcome}\n')
        if only is not None:
          traceback.print_exc()
  return found


def _outcome(read: types.FunctionType, name: str, seconds: int | None) -> str:
  if seconds is not None:
    signal.setitimer(signal.ITIMER_REAL, seconds)
  try:
    read()
  except errors.DataError as e:
    message = str(e)
    return 'refused' if name in message and message.isprintable() else f'unnamed: {message!r}'
  except BaseException as e:  # Whatever else it is, is a failure; a tool reports all of them.
    if isinstance(e, KeyboardInterrupt):
      raise
    return f'{type(e).__name__}: {str(e)[:100]}'
  finally:
    if seconds is not None:
      signal.setitimer(signal.ITIMER_REAL, 0)
  return 'read'


class TooLong(BaseException):
  """A try takes too long; no code that is tried catches it."""


def _stop(number: int, frame: types.FrameType | None) -> None:
  del number, frame
  raise TooLong(f'more than {_SECONDS} seconds')


def limits() -> None:
  """Bounds the time of a try and the memory of the process."""
  signal.signal(signal.SIGALRM, _stop)
  with open('/proc/self/statm') as f:
    used = int(f.read().split()[0]) * resource.getpagesize()
  resource.setrlimit(resource.RLIMIT_AS, (used + _BYTES, resource.RLIM_INFINITY))


def main() -> int:
  """Runs the command; returns the exit code."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--tries', type=int, default=6000, help='damaged files, over all kinds')
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--kind', choices=KINDS, action='append', help='default: all')
  parser.add_argument('--only', type=int, help='make one try again and show where it failed')
  given = parser.parse_args()
  limits()
  failures = 0
  kinds = given.kind or list(KINDS)
  for kind in kinds:
    found = attack(kind, given.tries // len(kinds), given.seed, given.only, _SECONDS)
    sys.stdout.write(f'{kind}: {dict(found)}\n')
    failures += sum(n for outcome, n in found.items() if outcome not in ('read', 'refused'))
  return 1 if failures else 0


if __name__ == '__main__':
  sys.exit(main())
