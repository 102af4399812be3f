"""What a killed process leaves in a temporary folder is removed by the next; what is used stays."""

import ast
import os
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from tff_adaptive._utils import atomic_files, temporary_folders

FOLDER = """
import os, sys, time
from tff_adaptive._utils import temporary_folders
with temporary_folders.folder('.export.', sys.argv[1]) as folder:
  open(os.path.join(folder, 'model'), 'w').close()
  print('here', flush=True)
  time.sleep(600)
"""
FILE = """
import sys, time
from tff_adaptive._utils import atomic_files
with atomic_files.atomic_path(sys.argv[1] + '/a.png'):
  print('here', flush=True)
  time.sleep(600)
"""
PROCESSES = """
import multiprocessing, multiprocessing.forkserver, os, signal
from tff_adaptive._utils import temporary_folders
temporary_folders.use_for_processes()
multiprocessing.forkserver.ensure_running()
print(sorted(os.listdir(os.environ['TMPDIR'])), flush=True)
{}
"""
KILLED = 'os.kill(os.getpid(), signal.SIGKILL)'


def _started(program, folder):
  process = subprocess.Popen(
    [sys.executable, '-c', program, str(folder)], stdout=subprocess.PIPE, text=True
  )
  assert process.stdout.readline() == 'here\n'
  return process


def _kill(process):
  process.send_signal(signal.SIGKILL)
  process.communicate()


def test_a_folder_stays_while_its_process_lives_and_not_longer(tmp_path):
  process = _started(FOLDER, tmp_path)
  try:
    (used,) = os.listdir(tmp_path)
    for name in ('.export.short', '.exporter', 'other'):
      (tmp_path / name).mkdir()
    with temporary_folders.folder('.export.', str(tmp_path)) as mine:
      assert os.listdir(tmp_path / used) == ['model']
      temporary_folders.remove_abandoned('.export.', str(tmp_path))
      assert os.path.isdir(mine)
    assert not os.path.exists(mine)
  finally:
    _kill(process)
  assert (tmp_path / used).exists()
  temporary_folders.remove_abandoned('.export.', str(tmp_path))
  assert {*os.listdir(tmp_path)} == {'.export.short', '.exporter', 'other'}


def test_a_file_stays_while_its_process_lives_and_not_longer(tmp_path):
  path = str(tmp_path / 'a.png')
  process = _started(FILE, tmp_path)
  try:
    atomic_files.write_text(path, 'mine')
    assert len(os.listdir(tmp_path)) == 2
  finally:
    _kill(process)
  assert len(os.listdir(tmp_path)) == 2
  atomic_files.write_text(path, 'again')
  assert os.listdir(tmp_path) == ['a.png']


@pytest.fixture
def short_folder():
  """A folder in which the path of a socket is not too long; `tmp_path` is, in some workers."""
  with tempfile.TemporaryDirectory(dir='/tmp') as folder:
    yield folder


def _folders_after(program, folder):
  """Runs the program with this temporary folder. Returns what was in it during the program."""
  environment = {**os.environ, 'TMPDIR': folder}
  command = [sys.executable, '-c', program]
  ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
  return ast.literal_eval(ended.stdout)


def test_the_sockets_of_a_killed_command_are_removed_by_the_next(short_folder):
  (abandoned,) = _folders_after(PROCESSES.format(KILLED), short_folder)
  assert abandoned.startswith('tff-adaptive-')
  assert os.listdir(short_folder) == [abandoned]
  # The processes that the killed one had started hold its folder until they notice.
  deadline = time.monotonic() + 60
  while os.listdir(short_folder) and time.monotonic() < deadline:
    _folders_after(PROCESSES.format(''), short_folder)
  assert os.listdir(short_folder) == []


def test_sockets_are_in_tmp_if_their_paths_would_be_too_long(short_folder):
  long_folder = os.path.join(short_folder, 'a' * 90)
  os.mkdir(long_folder)
  assert _folders_after(PROCESSES.format(''), long_folder) == []
