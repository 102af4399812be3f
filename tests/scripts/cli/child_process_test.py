"""A child process ends with its parent, however that ends."""

import subprocess
import sys

import psutil

PARENT = """
import subprocess, sys, time
from scripts.cli import child_process
child = subprocess.Popen(['sleep', '600'], preexec_fn=child_process.end_with_parent)
print(child.pid, flush=True)
time.sleep(600)
"""


def test_a_child_ends_when_its_parent_is_killed():
  parent = subprocess.Popen([sys.executable, '-c', PARENT], stdout=subprocess.PIPE, text=True)
  child = psutil.Process(int(parent.stdout.readline()))
  try:
    parent.kill()
    parent.wait()
    child.wait(20)
  finally:
    parent.stdout.close()
    if child.is_running():
      child.kill()
