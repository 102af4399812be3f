"""How commands start and end: Ctrl-C while one is still being imported, its name, its exit code."""

import os
import signal
import subprocess
import sys

import pytest

import tff_adaptive
from scripts import _entry

# A command that prints a line, and has begun as one that runs as a file.
PRINTING = """
from scripts import _entry
_entry.begin()
from scripts.cli import command

@command.entry('x.py', prints_result=lambda: {})
def main(arguments):
  print('done')
  return {}

import sys
sys.exit(main())
"""


def _printing(is_result: bool, code: int, stdout) -> subprocess.CompletedProcess:
  return subprocess.run(
    [sys.executable, '-c', PRINTING.format(is_result, code)],
    env={**os.environ, 'PYTHONUNBUFFERED': ''},
    stdout=stdout,
    stderr=subprocess.PIPE,
  )


def test_the_exit_code_of_a_command_is_that_of_its_process():
  ended = _printing(True, 3, subprocess.PIPE)
  assert (ended.returncode, ended.stdout, ended.stderr) == (3, b'done\n', b'')


@pytest.mark.parametrize('is_result', [False, True])
def test_a_result_that_cannot_be_written_is_no_success(is_result):
  with open('/dev/full', 'w') as full:
    ended = _printing(is_result, 0, full)
  line = b'x.py: the result cannot be written: No space left on device.\n'
  assert (ended.returncode, ended.stderr) == ((1, line) if is_result else (0, b''))


# Looks as if the environment lacked TFF; the program that follows is a command.
WITHOUT_TFF = """
import importlib.util, runpy, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda n, p=None: None if n == 'tensorflow_federated' else real(n, p)
sys.argv = sys.argv[1:]
sys.path[0] = sys.argv[0].rpartition('/')[0]
runpy.run_path(sys.argv[0], run_name='__main__')
"""


@pytest.mark.parametrize('module', _entry.NAMES)
def test_commands_say_their_version_and_what_their_environment_lacks(module):
  script = os.path.join(os.path.dirname(_entry.__file__), f'{module}.py')

  def run(*arguments):
    program = [sys.executable, '-c', WITHOUT_TFF, script, *arguments]
    return subprocess.run(program, capture_output=True, text=True)

  version = run('--version')
  assert (version.returncode, version.stdout) == (0, f'tff-adaptive {tff_adaptive.__version__}\n')
  requirements = run('--requirements')
  assert requirements.returncode == 0
  assert 'tensorflow-federated==0.87.0 \\\n    --hash=sha256:' in requirements.stdout
  other = run('--help')
  assert (other.returncode, other.stdout) == (2, '')
  assert other.stderr.startswith(f'{module}.py: {sys.executable} has no tensorflow_federated: ')
  assert other.stderr.count('\n') == 1


# Python runs it before the program: it waits where the command begins to import what is slow, where
# an exception would be lost, and where what Ctrl-C calls fails.
SITE = """
import sys, time

class Careless:
  def __del__(self):
    print('here', flush=True)
    time.sleep(600)

def wait(event, arguments):
  if event == 'import' and arguments[0] == 'tensorflow':
    sys.modules['tff_adaptive.engine.native'] = sys  # Not imported to the end.
    Careless()

sys.addaudithook(wait)
"""


def test_ctrl_c_while_a_command_imports_tensorflow_ends_in_one_line(tmp_path):
  (tmp_path / 'sitecustomize.py').write_text(SITE)
  script = os.path.join(os.path.dirname(_entry.__file__), 'train.py')
  process = subprocess.Popen(
    [sys.executable, script, f'--output_dir={tmp_path / "run"}'],
    env={**os.environ, 'PYTHONPATH': str(tmp_path)},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'here\n'
  process.send_signal(signal.SIGINT)
  out, err = process.communicate(timeout=600)
  assert (process.returncode, out) == (130, '')
  assert err.splitlines() == [
    'Loading TensorFlow ...',
    'train.py: interrupted; rounds that were done are saved.',
  ]
  assert not (tmp_path / 'run').exists()
