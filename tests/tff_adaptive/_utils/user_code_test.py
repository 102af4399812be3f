"""Facts about a user's own file: run once, as a module apart, refused in one line."""

import hashlib
import os
import sys

import pytest

from tff_adaptive._utils import user_code


def _write(folder, text, name='mine.py'):
  path = folder / name
  path.write_text(text)
  return str(path)


def test_an_object_comes_with_its_absolute_path_and_the_digest_of_its_file(tmp_path, monkeypatch):
  text = 'ANSWER = 42\n'
  path = _write(tmp_path, text)
  monkeypatch.chdir(tmp_path)
  found, source = user_code.load('mine.py:ANSWER')
  assert found == 42
  assert source == (path, 'ANSWER', hashlib.sha256(text.encode()).hexdigest())


def test_a_file_runs_once_and_again_when_it_has_changed_and_its_dataclasses_can_be_made(tmp_path):
  path = _write(tmp_path, 'A = object()\nB = A')
  first = user_code.load(f'{path}:A')[0]
  assert user_code.load(f'{path}:B')[0] is first
  _write(tmp_path, 'A = 3')
  assert user_code.load(f'{path}:A')[0] == 3
  text = 'from __future__ import annotations\nimport dataclasses\n'
  text += '@dataclasses.dataclass(frozen=True)\nclass A:\n  x: float = 1.0\n'
  assert user_code.load(f'{_write(tmp_path, text)}:A')[0]().x == 1.0


def test_two_files_of_one_name_are_two_modules(tmp_path):
  folders = tmp_path / 'a', tmp_path / 'b'
  for number, folder in enumerate(folders):
    folder.mkdir()
    _write(folder, f'A = {number}', 'numpy.py')
  assert [user_code.load(f'{folder}/numpy.py:A')[0] for folder in folders] == [0, 1]
  import numpy

  assert hasattr(numpy, 'ndarray')


def test_a_file_imports_its_neighbours_and_leaves_no_path(tmp_path, monkeypatch):
  _write(tmp_path, 'B = 5', 'my_neighbour_of_user_code_test.py')
  _write(tmp_path, 'raise RuntimeError("shadows")', 'colorsys.py')
  before = list(sys.path)
  own = 'import sys\nsys.path.pop()\nB = 5'  # A file may change the path itself.
  for text in ('import colorsys\nfrom my_neighbour_of_user_code_test import B', own):
    assert user_code.load(f'{_write(tmp_path, text)}:B')[0] == 5
    assert sys.path == before
  monkeypatch.syspath_prepend(tmp_path)  # What a program has there itself stays.
  user_code.load(f'{_write(tmp_path, "B = 6")}:B')
  assert sys.path == [str(tmp_path), *before]


@pytest.mark.parametrize(
  'text, words',
  [
    ('A = 1\nB = 1 / 0\n', 'cannot be run: line 2: ZeroDivisionError: division by zero; fix the'),
    ('\0', 'cannot be run: '),  # Without a line.
    ('def f(:\n', 'cannot be run: line 1: SyntaxError: '),
    ('import sys\n\nsys.exit("a\\nb")', 'cannot be run: line 3: SystemExit: a b; fix the'),
    ('B = 1', 'defines no A: check the name after the colon.'),
    ('raise BaseException(3)', 'cannot be run: line 1: BaseException: 3; fix the'),
    ('def __getattr__(name): raise OSError', 'defines no A: check the name'),
  ],
)
def test_a_file_that_does_not_serve_is_refused_in_one_line(tmp_path, text, words):
  path, before = _write(tmp_path, text), list(sys.path)
  with pytest.raises(ValueError) as error:
    user_code.load(f'{path}:A')
  assert f'{path!r} {words}' in str(error.value)
  assert ('\n' in str(error.value), 'run: line' in str(error.value)) == (False, 'line' in words)
  assert sys.path == before
  loaded = [m for m in sys.modules.values() if getattr(m, '__file__', None) == path]
  assert len(loaded) == ('defines' in words)


def test_an_error_has_its_place_in_a_users_file_however_it_was_passed_on(tmp_path):
  text = """
def divide():
  return 1 / 0

def wrapped():
  try:
    divide()
  except ZeroDivisionError:
    raise RuntimeError('more')
"""
  path = _write(tmp_path, text)
  for name in ('divide', 'wrapped'):
    function = user_code.load(f'{path}:{name}')[0]
    with pytest.raises((ZeroDivisionError, RuntimeError)) as caught:
      function()
    assert user_code.place(caught.value) == (path, 3)
  with pytest.raises(ZeroDivisionError) as caught:
    1 / 0  # noqa: B018
  caught.value.__cause__ = other = ValueError()
  other.__cause__ = caught.value  # A circle.
  assert user_code.place(caught.value) is None
  assert user_code.in_words(ValueError('a\n  b')) == 'ValueError: a b'


def test_a_file_that_is_not_there_and_a_folder_are_named(tmp_path):
  (tmp_path / 'folder.py').mkdir()
  os.mkfifo(tmp_path / 'pipe.py')
  (tmp_path / 'endless.py').symlink_to('/dev/zero')
  for name in ('none', 'folder', 'pipe', 'endless'):
    path = os.path.join(tmp_path, f'{name}.py')
    words = 'No such file' if name == 'none' else 'it is no file'
    with pytest.raises(ValueError, match=f'{path}. cannot be read: {words}.*; check the path'):
      user_code.load(f'{path}:A')


def test_a_reference_has_a_name():
  for reference in ('mine.py', 'mine.py:', 'mine.py:a.b', 'fed_avg', ''):
    with pytest.raises(ValueError, match=r'write FILE\.py:NAME'):
      user_code.load(reference)
    assert user_code.is_reference(reference) == ('.py' in reference)
