"""Damaged and hostile .npz files end in one line that names the file and the array."""

import pickle
import resource

import numpy as np
import pytest

from tests.helpers import image_files
from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import npz

GOOD = image_files.npy_bytes(np.arange(6, dtype=np.int32).reshape(2, 3))


def test_a_missing_array_is_named(tmp_path):
  path = image_files.archive(tmp_path / 'd.npz', {'a': GOOD, '\x1b[31mb': GOOD})
  with pytest.raises(errors.DataError, match=r'd.npz .*it lacks x, y; it has a, \\x1b\[31mb'):
    npz.read(path, ['x', 'a', 'y'])


def header(shape, descr='|u1'):
  return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
  'member',
  [
    image_files.npy(header('(10_000_000_000_000,)'), b'\0' * 9),
    image_files.npy(header('(2, 3)'), b'\0' * 5),
    image_files.npy(header('(-2, -3)'), b'\0' * 6),
    image_files.npy(header('(2,)', '|O'), pickle.dumps(np.array([None, None], object))),
    image_files.npy(header('(2,)'), b'\0\0', version=9),
    image_files.npy("{'descr': '|u1', ("),
    b'\x93NUMPY',
    GOOD[:-1],
    GOOD + b'0',
  ],
)
def test_a_header_that_lies_is_refused_and_fills_no_memory(tmp_path, member):
  path = image_files.archive(tmp_path / 'd.npz', {'a': member})
  before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  with pytest.raises(errors.DataError, match=r'd.npz: a cannot be read \(.*fetch it') as e:
    npz.read(path, ['a'])
  assert '\n' not in str(e.value)
  assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 5e4  # kB.


def test_more_than_the_memory_is_refused(tmp_path, monkeypatch):
  path = image_files.archive(tmp_path / 'd.npz', {'a': GOOD, 'b': GOOD})
  monkeypatch.setattr('tff_adaptive._utils.memory.available_memory', lambda: 200)
  with pytest.raises(errors.DataError, match='holds a, b, which take 304 bytes where 200 bytes'):
    npz.read(path, ['a', 'b'])
  np.testing.assert_equal(npz.read(path, ['a']), {'a': [[0, 1, 2], [3, 4, 5]]})
