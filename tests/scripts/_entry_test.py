"""Ctrl-C ends a command in one line while it is still being imported."""

import signal
import subprocess
import sys

PROGRAM = """
import sys, time
sys.argv = ['/some/where/train.py']
from scripts import _entry
_entry.end_on_interrupt()
print('here', flush=True)
time.sleep(60)  # As an import would.
"""


def test_ctrl_c_during_the_imports_ends_in_one_line():
  process = subprocess.Popen(
    [sys.executable, '-c', PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
  )
  assert process.stdout.readline() == 'here\n'
  process.send_signal(signal.SIGINT)
  assert process.communicate(timeout=60) == ('', 'train.py: interrupted.\n')
  assert process.returncode == 130
