"""TFF's worker process ends with the program that started it, however that ends."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.helpers import fresh

ROOT = pathlib.Path(__file__).parents[3]
PROGRAM = """
import os, signal, sys, time
import numpy as np
import psutil
import tensorflow_federated as tff

@tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
def total(x):
  return tff.federated_sum(x)

def say_workers():
  workers = [c for c in psutil.Process().children() if c.name() == 'worker_binary']
  print(*(w.pid for w in workers if w.status() != psutil.STATUS_ZOMBIE), flush=True)

ending = sys.argv[1]
if ending == 'exit':
  total([1, 2])  # In the context that TFF sets by itself: its worker is there before ours.
  say_workers()
from tff_adaptive import engine
engine.remember_workers()
if ending == 'exit':
  engine.reap_workers()
  say_workers()
else:
  engine.set_native_context()
assert total([1, 2, 3]) == 6
say_workers()
if ending == 'exit':
  sys.exit(5)
os.kill(os.getpid(), getattr(signal, ending))
time.sleep(600)
"""
# SIGTERM leaves Python no time for anything, as SIGKILL and a crash do.
ENDINGS = {'exit': 5, 'SIGTERM': -signal.SIGTERM}


def is_running(pid):
  try:
    process = psutil.Process(pid)
    return process.name() == 'worker_binary' and process.status() != psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return False


def start(ending, folder):
  with open(folder / f'{ending}.err', 'w') as errors:
    return subprocess.Popen(
      [*fresh.python(), '-c', PROGRAM, ending],
      env=dict(os.environ, PYTHONPATH=str(ROOT), TF_CPP_MIN_LOG_LEVEL='3'),
      stdout=subprocess.PIPE,
      stderr=errors,
      text=True,
    )


def outputs_of(programs):
  """What they wrote, once nobody holds the other ends of the pipes: no worker either."""
  try:
    return {name: program.communicate() for name, program in programs.items()}
  finally:
    for program in programs.values():
      program.kill()


@pytest.mark.slow
def test_no_worker_outlives_its_program(tmp_path):
  programs = {ending: start(ending, tmp_path) for ending in ENDINGS}
  for ending, (output, _) in outputs_of(programs).items():
    errors = (tmp_path / f'{ending}.err').read_text()
    assert programs[ending].returncode == ENDINGS[ending], errors
    workers = [line.split() for line in output.splitlines()]
    assert [len(line) for line in workers] == ([1, 0, 1] if ending == 'exit' else [1]), errors
    assert not any(is_running(int(pid)) for line in workers for pid in line), ending
    assert 'Exception ignored' not in errors, errors


FORKING = """
import os, signal, subprocess, sys, time
from tff_adaptive import engine

engine.remember_workers()
worker = subprocess.Popen([sys.argv[1], '60'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
child = os.fork()
if not child:
  os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
  time.sleep(60)
  os._exit(0)
print(worker.pid, child, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_worker_does_not_outlive_its_program_where_a_forked_child_does(tmp_path):
  binary = shutil.copy(shutil.which('sleep'), tmp_path / 'worker_binary')
  result = subprocess.run(
    [sys.executable, '-c', FORKING, binary],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    text=True,
    check=False,
  )
  worker, child = map(int, result.stdout.split())
  try:
    deadline = time.monotonic() + 20
    while is_running(worker) and time.monotonic() < deadline:
      time.sleep(0.05)
    assert not is_running(worker)
    assert psutil.pid_exists(child)
  finally:
    os.kill(child, signal.SIGKILL)
