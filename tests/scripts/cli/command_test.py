"""The contract of every command: exit codes, one line, nothing that steers a terminal."""

import os
import subprocess
import sys

import pytest

import scripts
from scripts.cli import command

_FOLDER = os.path.dirname(scripts.__file__)
_FILES = (
  'train.py',
  'sweep.py',
  'report.py',
  'partition_report.py',
  'train_centralized.py',
)


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


def test_other_errors_are_not_hidden():
  @command.entry('x.py')
  def main(arguments):
    raise KeyError('a bug')

  with pytest.raises(KeyError):
    main(['x.py'])


@pytest.mark.parametrize('name', ['data_dir', 'output', 'task'])
def test_in_paths_a_tilde_is_the_home(name, tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  flags = command.absl_flags.FlagValues()
  for defined in (name, 'title'):
    command.absl_flags.DEFINE_string(defined, None, '', flag_values=flags)
  assert command.parse(flags, '', ['x.py', f'--{name}=~/a.py:f', '--title=~/b']) == []
  assert (flags[name].value, flags.title) == (f'{tmp_path}/a.py:f', '~/b')
  assert command.parse(flags, '', ['x.py']) == []
  assert flags[name].value is None


def test_control_characters_and_undecodable_bytes_are_escaped(capsys):
  command.complain('x.py', 'a\x1b[31m\x07b' + os.fsdecode(b'\xff'))
  assert capsys.readouterr().err == 'x.py: a\\x1b[31m\\x07b\\udcff\n'
  command.show('ä\n\x9b')
  assert capsys.readouterr().out == 'ä\n\\x9b'


@pytest.mark.parametrize('name', _FILES)
def test_every_command_runs_as_a_file_from_anywhere(name, tmp_path):
  path = os.path.join(_FOLDER, name)
  flag = os.fsencode('--no\x1bsuch') + b'\xff'
  done = subprocess.run([sys.executable, path, flag], cwd=tmp_path, capture_output=True)
  assert done.returncode == 2
  assert done.stderr.startswith(os.fsencode(os.path.basename(name)) + b': ')
  assert done.stderr.count(b'\n') == 1
  assert done.stderr.rstrip(b'\n').decode().isprintable()
  assert os.listdir(tmp_path) == []
