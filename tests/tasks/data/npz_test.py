"""Damaged and hostile .npz files end in one line that names the file and the array."""

import tracemalloc

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
  'member, named',
  [
    (image_files.npy(header('(10_000_000_000_000,)'), b'\0' * 9), '10,000,000,000,000 bytes'),
    (image_files.npy(header('(2, 3)'), b'\0' * 5), 'where there are 5'),
    (image_files.npy(header('(-2, -3)'), b'\0' * 6), 'header says'),
    (image_files.npy(header('(2,)', '|O'), b'\0' * 16), 'Python objects, which are never loaded'),
    (image_files.npy(header('(2,)'), b'\0\0', version=3), 'version'),
    (image_files.npy("{'descr': '|u1', ("), 'array a: |a cannot be read'),
    (b'\x93NUMPY', 'a cannot be read'),
    (GOOD[:-1], 'where there are 23'),
  ],
)
def test_a_header_that_lies_is_refused_before_anything_is_allocated(tmp_path, member, named):
  path = image_files.archive(tmp_path / 'd.npz', {'a': member})
  tracemalloc.start()
  with pytest.raises(errors.DataError, match=r'd.npz: a cannot be read \(.*fetch it') as e:
    npz.read(path, ['a'])
  peak = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  assert named.split('|')[-1] in str(e.value)
  assert '\n' not in str(e.value)
  assert peak < 5e6


def test_more_than_the_memory_is_refused(tmp_path, monkeypatch):
  path = image_files.archive(tmp_path / 'd.npz', {'a': GOOD, 'b': GOOD})
  monkeypatch.setattr('tff_adaptive._utils.memory.available_memory', lambda: 200)
  with pytest.raises(errors.DataError, match='holds a, b, which take 304 bytes where 200 bytes'):
    npz.read(path, ['a', 'b'])
  np.testing.assert_equal(npz.read(path, ['a']), {'a': [[0, 1, 2], [3, 4, 5]]})
