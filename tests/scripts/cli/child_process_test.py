"""A child process ends with its parent, however that ends."""

import subprocess
import sys
import time

import psutil

PARENT = """
import subprocess, sys, time
from scripts.cli import child_process
child = subprocess.Popen(['sleep', '1200'], preexec_fn=child_process.end_with_parent)
print(child.pid, flush=True)
time.sleep(1200)
"""


def _runs(process):
  """Whether a process has not ended; where nobody takes note of orphans, zombies stay."""
  try:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return False


def test_a_child_ends_when_its_parent_is_killed():
  parent = subprocess.Popen([sys.executable, '-c', PARENT], stdout=subprocess.PIPE, text=True)
  child = psutil.Process(int(parent.stdout.readline()))
  try:
    parent.kill()
    parent.wait()
    end = time.monotonic() + 600
    while _runs(child) and time.monotonic() < end:
      time.sleep(0.01)
    assert not _runs(child)
  finally:
    parent.stdout.close()
    if _runs(child):
      child.kill()
