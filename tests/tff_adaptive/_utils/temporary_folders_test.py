"""What a killed process leaves in a temporary folder is removed by the next; what is used stays."""

import os
import signal
import subprocess
import sys
import time

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


def test_the_sockets_of_a_killed_command_are_removed_by_the_next(tmp_path):
  left = []
  for end in ('os.kill(os.getpid(), signal.SIGKILL)', ''):
    program = PROCESSES.format(end)
    ended = subprocess.run(
      [sys.executable, '-c', program],
      env={**os.environ, 'TMPDIR': str(tmp_path)},
      stdout=subprocess.PIPE,
      text=True,
    )
    (name,) = eval(ended.stdout)
    assert name.startswith('tff-adaptive-')
    deadline = time.monotonic() + 60
    # The processes that the killed one had started hold their folder until they notice.
    while not end and os.listdir(tmp_path) and time.monotonic() < deadline:
      temporary_folders.remove_abandoned('tff-adaptive-', str(tmp_path))
      time.sleep(0.1)
    left.append(os.listdir(tmp_path))
  assert [len(names) for names in left] == [1, 0]
