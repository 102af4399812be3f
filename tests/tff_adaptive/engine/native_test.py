"""TFF's worker process ends with the program that started it, however that ends."""

import itertools
import os
import pathlib
import signal
import subprocess
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
# What ends so is reported as by a shell.
ENDINGS = {'exit': 5, 'SIGTERM': 128 + signal.SIGTERM}


def is_running(pid):
  try:
    process = psutil.Process(pid)
    return process.name() == 'worker_binary' and process.status() != psutil.STATUS_ZOMBIE
  except psutil.NoSuchProcess:
    return False


@pytest.mark.slow
def test_no_worker_outlives_its_program(tmp_path):
  for ending, code in ENDINGS.items():
    with open(tmp_path / ending, 'w+') as errors:
      program = subprocess.run(  # It returns when nobody holds the pipe: no worker either.
        [*fresh.python(), '-c', PROGRAM, ending],
        env=dict(os.environ, PYTHONPATH=str(ROOT), TF_CPP_MIN_LOG_LEVEL='3'),
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
      )
    written = (tmp_path / ending).read_text()
    assert program.returncode == code, written
    workers = [line.split() for line in program.stdout.splitlines()]
    assert [len(line) for line in workers] == ([1, 0, 1] if ending == 'exit' else [1]), written
    end = time.monotonic() + 60  # A process closes its pipes a moment before it has ended.
    pids = [*map(int, itertools.chain.from_iterable(workers))]
    while any(map(is_running, pids)):
      assert time.monotonic() < end, ending
      time.sleep(0.01)
    assert 'Exception ignored' not in written
