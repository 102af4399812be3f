"""Facts about a user's own file: run once, as a module apart, refused in one line."""

import hashlib
import importlib
import os
import subprocess
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
  answer, source = user_code.load('mine.py:ANSWER')
  assert answer == 42
  assert source == (path, 'ANSWER', hashlib.sha256(text.encode()).hexdigest(), ())


def test_a_file_runs_once_and_again_when_it_has_changed_and_its_dataclasses_can_be_made(tmp_path):
  path = _write(tmp_path, 'A = object()\nB = A')
  first = user_code.load(f'{path}:A')[0]
  assert user_code.load(f'{path}:B')[0] is first
  _write(tmp_path, 'A = 3')
  assert user_code.load(f'{path}:A')[0] == 3
  text = 'from __future__ import annotations\nimport dataclasses\n'
  text += '@dataclasses.dataclass(frozen=True)\nclass A:\n  x: float = 1.0\n'
  assert user_code.load(f'{_write(tmp_path, text)}:A')[0]().x == 1.0


def test_a_function_finds_modules_beside_its_file_when_it_is_called(tmp_path):
  _write(tmp_path, 'import late_tff_b\nN = late_tff_b.N\n', 'late_tff_a.py')
  _write(tmp_path, 'def n():\n  import late_tff_c\n  return late_tff_c.N\nN = n()', 'late_tff_b.py')
  _write(tmp_path, 'N = 7\n', 'late_tff_c.py')
  _write(tmp_path, '1 / 0\n', 'late_tff_broken.py')
  text = 'def n():\n  import late_tff_a\n  return late_tff_a.N\n'
  text += 'def broken():\n  import late_tff_broken\n'
  text += "if __name__ == '__main__':\n  import late_tff_broken\n"
  path = _write(tmp_path, text)
  function, origin = user_code.load(f'{path}:n')
  assert function() == 7
  assert {'late_tff_a.py', 'late_tff_b.py', 'late_tff_c.py'} <= {name for name, _ in origin.modules}
  with pytest.raises(ZeroDivisionError):
    user_code.load(f'{path}:broken')[0]()
  assert str(tmp_path) not in sys.path
  with pytest.raises(ModuleNotFoundError):  # Other code does not find them.
    importlib.import_module('late_tff_broken')


def test_modules_of_one_name_that_two_files_import_later_are_refused(tmp_path):
  for place in ('a', 'b'):
    folder = tmp_path / place
    folder.mkdir()
    _write(
      folder, f'def x():\n  import deep_late_tff\n  return {place!r}', f'step_late_tff_{place}.py'
    )
    _write(folder, '', 'deep_late_tff.py')
    _write(folder, f'def f():\n  import step_late_tff_{place}\n', 'own.py')
  user_code.load(f'{tmp_path}/a/own.py:f')
  with pytest.raises(ValueError, match=r'deep_late_tff is .*rename one'):
    user_code.load(f'{tmp_path}/b/own.py:f')


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
  own_file = 'import sys\nsys.path.pop()\nB = 5'  # A file may change the path itself.
  for text in ('import colorsys\nfrom my_neighbour_of_user_code_test import B', own_file):
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
  path = _write(tmp_path, text)
  before = list(sys.path)
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


def test_the_words_of_a_long_error_of_tensorflow_are_its_cause():
  frames = ''.join(f'  File "/usr/lib/pool.py", line {i}, in f\n\n' for i in range(20))
  message = (
    'Graph execution error:\n\nDetected at node model/embedding defined at (most recent call last)'
    f':\n{frames}indices[0,3] = 50 is not in [0, 50)\n\t [[{{{{node model/embedding}}}}]]'
  )
  words = user_code.in_words(ValueError(message))
  assert words == 'ValueError: indices[0,3] = 50 is not in [0, 50)'


def test_a_file_that_is_not_there_and_a_folder_are_named(tmp_path):
  (tmp_path / 'folder.py').mkdir()
  os.mkfifo(tmp_path / 'pipe.py')
  (tmp_path / 'endless.py').symlink_to('/dev/zero')
  for name in ('none', 'folder', 'pipe', 'endless'):
    path = os.path.join(tmp_path, f'{name}.py')
    if name == 'none':
      words = 'No such file'
    else:
      words = 'it is no file'
    with pytest.raises(ValueError, match=f'{path}. cannot be read: {words}.*; check the path'):
      user_code.load(f'{path}:A')


def test_a_reference_has_a_name():
  for reference in ('mine.py', 'mine.py:', 'mine.py:a.b', 'fed_avg', ''):
    with pytest.raises(ValueError, match=r'write FILE\.py:NAME'):
      user_code.load(reference)
    assert user_code.is_reference(reference) == ('.py' in reference)


def _sha256(path):
  return hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_users_modules_that_a_file_imports_are_part_of_its_record(tmp_path):
  package = tmp_path / 'user_code_test_package'
  (package / 'sub').mkdir(parents=True)
  for path, text in (
    ('__init__.py', ''),
    ('first.py', 'from . import second\nfrom .sub.third import C'),
    ('second.py', 'B = 2'),
    ('sub/third.py', 'from .. import second\nC = 3'),  # A folder without __init__.py.
    ('unused.py', ''),
  ):
    (package / path).write_text(text)
  _write(tmp_path, 'import numpy, json\nD = 4', 'user_code_test_plain.py')
  _write(tmp_path, 'E = 5', 'user_code_test_late.py')
  text = (
    'import os, numpy.linalg\n'
    'from user_code_test_package.first import second\n'
    'import user_code_test_plain as plain\n'
    'import tff_adaptive\n'
    'def later():\n'
    '  import user_code_test_late\n'
  )
  source = user_code.load(f'{_write(tmp_path, text)}:later')[1]
  names = [
    'user_code_test_late.py',
    'user_code_test_package/__init__.py',
    'user_code_test_package/first.py',
    'user_code_test_package/second.py',
    'user_code_test_package/sub/third.py',
    'user_code_test_plain.py',
  ]
  assert source.record()['modules'] == {name: _sha256(tmp_path / name) for name in names}


LOADS = """
import sys
from tff_adaptive._utils import user_code
print(dict(user_code.load(sys.argv[1])[1].modules))
"""


def test_a_changed_module_changes_the_record_of_the_next_process(tmp_path):
  path = _write(tmp_path, 'import helper\nA = helper.B')
  digests = []
  for text in ('B = 1', 'B = 2', 'B = 2'):
    _write(tmp_path, text, 'helper.py')
    command = [sys.executable, '-c', LOADS, f'{path}:A']
    digests.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
  assert digests[0] != digests[1] == digests[2]
  assert _sha256(tmp_path / 'helper.py') in digests[1]


def test_a_module_that_was_changed_in_this_process_is_refused(tmp_path):
  _write(tmp_path, 'B = 1', 'user_code_test_changed.py')
  path = _write(tmp_path, 'import user_code_test_changed\nA = 1')
  user_code.load(f'{path}:A')
  _write(tmp_path, 'B = 2', 'user_code_test_changed.py')
  with pytest.raises(ValueError, match=r'has been changed since this process imported it') as error:
    user_code.load(f'{path}:A')
  assert '\n' not in str(error.value)


def test_another_module_of_the_same_name_is_refused(tmp_path):
  for name in 'ab':
    (tmp_path / name).mkdir()
    _write(tmp_path / name, f'B = {name!r}', 'user_code_test_twice.py')
    _write(tmp_path / name, 'from user_code_test_twice import B')
  assert user_code.load(f'{tmp_path}/a/mine.py:B')[0] == 'a'
  with pytest.raises(ValueError, match=r'user_code_test_twice is .*/a/.* not .*/b/.*; rename one'):
    user_code.load(f'{tmp_path}/b/mine.py:B')
