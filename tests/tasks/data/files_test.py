"""The border for files: one line with the file's name, whatever was raised."""

import os

import pytest

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import files


@pytest.mark.parametrize(
  'error, words',
  [
    (OSError('two\n lines\x1b[31m'), r'two lines\x1b[31m'),
    (RecursionError(), 'RecursionError'),
    (KeyError('name'), "'name'"),
    (ValueError('x' * 5000), 'x' * 300),
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
