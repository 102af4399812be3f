"""Ctrl-C where there is nothing to save. (Where there is: loop_test.py.)"""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import signal, time
from scripts.cli import signals

class Careless:
  def __del__(self):  # An exception here would be ignored.
    print('here', flush=True)
    time.sleep(150)

def before():
  print('before', flush=True)
  raise AttributeError('not imported to the end')

with signals.ending_at_once('reported', before=before):
  if NESTED:
    with signals.ending_at_once('inner'):
      pass
  Careless()
  print('goes on', flush=True)
"""


@pytest.mark.parametrize('nested', [False, True])
def test_an_interrupt_ends_the_process_even_where_an_exception_would_be_lost(nested):
  process = subprocess.Popen(
    [sys.executable, '-c', PROGRAM.replace('NESTED', str(nested))],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'here\n'
  process.send_signal(signal.SIGINT)
  out, err = process.communicate(timeout=120)
  assert (process.returncode, out, err) == (130, 'before\n', 'reported\n')
