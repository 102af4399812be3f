"""The contract of every command: exit codes, one line, nothing that steers a terminal."""

import ast
import errno
import os
import pathlib
import subprocess
import sys
import warnings

import pytest

import scripts
import tff_adaptive_tasks as tasks
from scripts import _entry
from scripts.cli import command, flags as flags_lib, resolve
from tff_adaptive.runs.errors import SaveError, saving

_FOLDER = os.path.dirname(scripts.__file__)
_OTHERS = [
  f'import sys; sys.version_info = {version}; sys.path[0] = ".."; from scripts import _entry;'
  ' _entry.begin()'
  for version in ((3, 9), (3, 14))
]


def _from_full_disk():
  try:
    with saving('x'):
      raise OSError(errno.ENOSPC, 'No space left on device')
  except SaveError as error:
    return error


def test_tensorflow_is_quiet_before_anything_can_import_it(monkeypatch):
  """A user's own file may, while flags are checked."""
  monkeypatch.delenv('TF_CPP_MIN_LOG_LEVEL', raising=False)

  @command.entry('x.py')
  def main(arguments):
    del arguments
    return int(os.environ['TF_CPP_MIN_LOG_LEVEL'])

  assert main([]) == 3


@pytest.mark.parametrize(
  ('error', 'code'),
  [
    (ValueError('two\nlines'), 2),
    (FileNotFoundError(2, 'No such file', 'x'), 2),
    (command.FailureError('two\nlines'), 1),
    (OSError(errno.ENOSPC, 'No space left on device', 'x'), 1),  # A part may have been written.
    (_from_full_disk(), 1),
    (KeyboardInterrupt(), 130),
  ],
)
def test_errors_are_exit_codes_and_one_line(capsys, error, code):
  @command.entry('x.py')
  def main(arguments):
    raise error

  assert main(['x.py']) == code
  said = capsys.readouterr().err
  assert said.startswith('x.py: ')
  assert said.count('\n') == 1


def test_a_warning_of_this_project_is_one_line(tmp_path, capsys, monkeypatch):
  path = tmp_path / 'visits.csv'
  rows = [f'{10_000 + i},h{i % 4},{i % 7},{"no" if i % 3 else "yes"}\n' for i in range(40)]
  path.write_text('patient_id,hospital,age,ill\n' + ''.join(rows))
  of_others = []

  def show(message, category, filename, *others):
    of_others.append((str(message), filename))

  @command.entry('x.py')
  def main(arguments):
    tasks.from_csv(str(path), client='hospital', label='ill')
    warnings.warn_explicit('by another', UserWarning, '/elsewhere/other.py', 7)
    return 0

  monkeypatch.setattr(warnings, 'showwarning', show)
  with warnings.catch_warnings():
    warnings.simplefilter('always')
    assert main(['x.py']) == 0
  assert warnings.showwarning is show
  assert capsys.readouterr().err == (
    f"Warning: {path}: no inputs are the columns that identify rows, 'patient_id': name them by"
    ' features= if they are to be\n'
  )
  assert of_others == [('by another', '/elsewhere/other.py')]


def test_other_errors_are_not_hidden():
  @command.entry('x.py')
  def main(arguments):
    raise KeyError('a bug')

  with pytest.raises(KeyError):
    main(['x.py'])


def test_a_tilde_is_the_home(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  assert flags_lib.parse(['x.py', '--task=~/a.py:f']) == {'task': f'{tmp_path}/a.py:f'}
  assert resolve.resolve(output_dir='~/run').output.output_dir == f'{tmp_path}/run'


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['--rounds', 'ten'], "--rounds must be a whole number, found 'ten'; see --help."),
    (['--mu=x'], "--mu must be a number, found 'x'; see --help."),
    ([f'--{"q" * 1000}=1'], 'unknown flag with a very long name; see --help.'),
    (
      ['--lr=1'],
      'unknown flag --lr: did you mean --client_learning_rate or --server_learning_rate?',
    ),
    (['--learning-rate', '1'], 'unknown flag --learning-rate: did you mean --client_learning_rate'),
    (['--epochs=1'], 'unknown flag --epochs: did you mean --client_epochs? See --help=epochs.'),
    (['--batch=1'], 'unknown flag --batch: did you mean --batch_size?'),
    (
      ['--optimizer=adam'],
      'unknown flag --optimizer: did you mean --server_optimizer or --client_',
    ),
    (['--dataset=x'], 'unknown flag --dataset: did you mean --task?'),
    (['--clients=9'], 'unknown flag --clients: did you mean --clients_per_round?'),
    (['--client_learing_rate=1'], 'unknown flag --client_learing_rate: did you mean --client_lea'),
    (['--zzqqzz=1'], 'unknown flag --zzqqzz; see --help.'),
    (['digits'], "unexpected argument 'digits'; flags are written --name=value."),
    (['--flagfile=no'], '--flagfile=no: No such file or directory; name a file.'),
  ],
)
def test_what_absl_does_not_parse_is_refused_in_one_line(arguments, message):
  with pytest.raises(ValueError) as error:
    flags_lib.parse(['train.py', *arguments])
  assert str(error.value).startswith(message)


def test_control_characters_and_undecodable_bytes_are_escaped(capsys):
  command.complain('x.py', 'a\x1b[31m\x07b' + os.fsdecode(b'\xff'))
  assert capsys.readouterr().err == 'x.py: a\\x1b[31m\\x07b\\udcff\n'
  command.show('ä\n\x9b')
  assert capsys.readouterr().out == 'ä\n\\x9b'


def test_where_files_are_to_be_written_is_checked_and_made_ready(tmp_path):
  with pytest.raises(ValueError, match=f'--output={tmp_path}/new/ is a folder: name the files in'):
    command.check_output('output', f'{tmp_path}/new/')
  assert os.listdir(tmp_path) == []
  command.check_output('output', f'{tmp_path}/new/x')
  assert os.listdir(tmp_path) == ['new']


@pytest.mark.parametrize('module', _entry.NAMES)
def test_an_installed_command_names_itself(module, monkeypatch, capsys):
  monkeypatch.setattr(_entry, 'started_as', None)
  monkeypatch.setattr(_entry, 'begin', lambda: None)
  name = _entry.NAMES[module]
  monkeypatch.setattr(sys, 'argv', [f'/usr/bin/{name}', '--help'])
  assert getattr(_entry, module)() == 0
  output = capsys.readouterr().out
  assert f'usage: {name} ' in output
  assert [m for m in _entry.NAMES if f'scripts/{m}.py' in output] == []  # Of a checkout.
  monkeypatch.setattr(sys, 'argv', [f'/usr/bin/{name}', '--nothing=1'])
  assert getattr(_entry, module)() == 2
  assert capsys.readouterr().err.startswith(f'{name}: ')


@pytest.mark.sample(4)
@pytest.mark.parametrize('name', _entry.NAMES)
def test_every_command_runs_as_a_file_from_anywhere(name, tmp_path):
  flag = os.fsencode('--no\x1bsuch') + b'\xff'
  command_line = [sys.executable, os.path.join(_FOLDER, f'{name}.py'), flag]
  done = subprocess.run(command_line, cwd=tmp_path, capture_output=True)
  assert done.returncode == 2
  assert done.stderr.startswith(f'{name}.py: '.encode())
  assert done.stderr.count(b'\n') == 1
  assert done.stderr.rstrip(b'\n').decode().isprintable()
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize('arguments', [['-S', 'train.py'], *(['-c', code] for code in _OTHERS)])
def test_outside_of_the_environment_a_command_says_how_to_make_it(arguments):
  done = subprocess.run([sys.executable, *arguments], cwd=_FOLDER, env={}, capture_output=True)
  assert done.returncode == 2
  assert b'run make env' in done.stderr
  assert done.stderr.count(b'\n') == 1


def test_commands_are_understood_by_other_pythons_so_far():
  for path in pathlib.Path(_FOLDER).glob('*.py'):
    ast.parse(path.read_text('utf-8'), feature_version=(3, 9))
