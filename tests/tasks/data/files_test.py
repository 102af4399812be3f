"""The border for files: one line with the file's name, whatever was raised; .npz files."""

import os
import pickle

import numpy as np
import pytest

from tests.helpers import image_files
from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import files


@pytest.mark.parametrize(
  'error, words',
  [
    (OSError('two\n lines\x1b[31m'), r'two lines\x1b[31m'),
    (RecursionError(), 'RecursionError'),
    (KeyError('name'), "'name'"),
    (ValueError('x' * 5000), 'x' * 200 + ' ... ' + 'x' * 100),
  ],
)
def test_whatever_is_raised_is_one_line(error, words):
  with pytest.raises(errors.DataError) as raised, files.border('a.csv', 'fetch it again'):
    raise error
  assert str(raised.value) == f'a.csv cannot be read ({words}); fetch it again'


def test_what_is_refused_already_and_what_ends_the_program_pass():
  for error in (errors.DataError('known'), KeyboardInterrupt()):
    with pytest.raises(type(error)) as raised, files.border('a.csv'):
      raise error
    assert raised.value is error


def test_only_files_are_opened(tmp_path):
  os.mkfifo(tmp_path / 'pipe')
  for name, words in (('none', 'there is no file'), ('pipe', 'there is no file'), ('', 'a folder')):
    with pytest.raises(errors.DataError, match=words):
      files.existing(str(tmp_path / name))


GOOD = image_files.npy_bytes(np.arange(6, dtype=np.int32).reshape(2, 3))


def test_a_missing_array_is_named(tmp_path):
  path = image_files.archive(tmp_path / 'd.npz', {'a': GOOD, '\x1b[31mb': GOOD})
  with pytest.raises(errors.DataError, match=r'd.npz .*it lacks x; it has a, \\x1b\[31mb'):
    files.read_npz(path, ['x', 'a', 'y'])


def header(shape, descr='|u1'):
  return f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"


@pytest.mark.parametrize(
  'member',
  [
    image_files.npy(header('(10_000_000_000_000,)'), b'\0' * 9),
    image_files.npy(header('(2, 3)'), b'\0' * 5),
    image_files.npy(header('(2,)', '|O'), pickle.dumps(np.array([None, None], object))),
    GOOD[:-1],
    GOOD + b'0',
  ],
)
def test_a_header_that_lies_is_refused(tmp_path, member):
  path = image_files.archive(tmp_path / 'd.npz', {'a': member})
  with pytest.raises(errors.DataError, match=r'd.npz: a cannot be read \(.*fetch it') as e:
    files.read_npz(path, ['a'])
  assert '\n' not in str(e.value)
