"""Using the library changes nothing around it, and TensorFlow says nothing because of it."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import oracle
from tests.helpers import fresh, small_problem, tensorflow_log
from tff_adaptive import models, training
from tff_adaptive.client import Batching, ClientTraining

ROOT = pathlib.Path(__file__).parents[2]
PROGRAM = """
import atexit, gc, logging, os, signal, subprocess, sys, threading, warnings

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

def belongings():
  modules = [subprocess, *(m for n, m in list(sys.modules.items())
                           if n.startswith(('tensorflow_federated', 'tensorflow.python.data')))]
  named = {}
  for module in modules:
    for name, value in list(vars(module).items()):
      if callable(value):
        named[module.__name__, name] = value
      if isinstance(value, type):
        attributes = [(n, v) for n, v in vars(value).items() if callable(v)]
        named.update({(module.__name__, name, n): v for n, v in attributes})
  return dict(
    named,
    signals=[signal.getsignal(number) for number in signal.valid_signals()],
    wakeup=signal.set_wakeup_fd(-1),
    exits=atexit._ncallbacks(),
    descriptors={n: os.readlink(f'/proc/self/fd/{n}') for n in range(256)
                 if os.path.exists(f'/proc/self/fd/{n}')},
    threads=[thread.name for thread in threading.enumerate()],
    environment=dict(os.environ),
    children=open(f'/proc/self/task/{os.getpid()}/children').read(),
    hooks=(sys.excepthook, sys.unraisablehook, threading.excepthook, list(sys.meta_path)),
    path=list(sys.path),
    collector=(gc.isenabled(), gc.get_freeze_count()),
    warnings=list(warnings.filters),
    logging=(logging.root.level, list(logging.root.handlers)),
    threading=(tf.config.threading.get_intra_op_parallelism_threads(),
               tf.config.threading.get_inter_op_parallelism_threads()),
  )

tf.function(lambda: tf.random.stateless_uniform([9], [1, 2]))()  # TensorFlow's own threads.
gc.unfreeze()
gc.collect()  # From CPython 3.12 on a collection freezes the objects that are immortal.
before = belongings()
import tff_adaptive
from tests.helpers import processes
from tff_adaptive import engine

# One of each kind: its clients have no state, or have one.
for process in (processes.own('fed_yogi'), processes.own('scaffold', num_clients=2)):
  data = processes.whole((0, 3), (1, 2))
  with engine.graph_context():
    state = process.initialize()
    if hasattr(process, 'initial_client_state'):
      process.next(state, [process.initial_client_state] * 2, data)
    else:
      process.next(state, data)
after = belongings()
print({name: (before[name], after[name]) for name in before if before[name] != after[name]})
"""


def test_a_round_on_the_graph_engine_leaves_the_program_as_it_was():
  done = subprocess.run(
    [*fresh.python(), '-c', PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout == '{}\n'


@pytest.mark.exhaustive
def test_many_evaluations_in_one_program_give_no_warning_of_retracing():
  """Each builds a function of TensorFlow's, which warns at the fifth that is called as one."""
  model = small_problem.model()
  weights = oracle.unpack(small_problem.theta_0())
  x, y = small_problem.clients()[0]
  options = ClientTraining(batching=Batching(None))
  with tensorflow_log.lines() as logged:
    for _ in range(6):
      models.build_evaluation(model)(weights, {'x': x, 'y': y})
      models.build_client_evaluation(model)([weights], [{'x': x, 'y': y}])
      personalize = training.build_personalization(model, options, lambda round_number: 0.1)
      personalize(weights, {'x': x, 'y': y}, 0, 1)
  assert logged == []


_SEVERAL_FITS = """
import tff_adaptive

for algorithm in ('fed_avg', 'fed_yogi', 'scaffold'):
  tff_adaptive.fit('digits', algorithm, rounds=2, clients_per_round=3, quiet=True)
"""


def _first_block(page):
  """The first Python example of a page."""
  text = (ROOT / page).read_text(encoding='utf-8')
  return re.search(r'```python\n(.*?)```', text, re.DOTALL)[1]


_PROGRAMS = (_first_block('README.md'), _first_block('docs/guide/tff_program.md'), _SEVERAL_FITS)


# TensorFlow 2.21 writes these while it is imported, whatever TF_CPP_MIN_LOG_LEVEL is.
_NOTES = re.compile(
  r'WARNING: All log messages before absl|I0000 .* oneDNN custom operations are on'
)


@pytest.mark.exhaustive
@pytest.mark.parametrize('program', _PROGRAMS, ids=['fit', 'tff_program', 'several_fits'])
def test_a_program_in_the_environment_prints_what_it_prints_and_nothing_else(program, tmp_path):
  """A program that imports TensorFlow itself has the notes that nobody can switch off."""
  site = ROOT / 'tff_adaptive' / 'environment' / 'site'
  start = f'import site; site.addsitedir({str(site)!r})\n'  # As `make env` copies its files.
  environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
  environment.pop('TF_CPP_MIN_LOG_LEVEL', None)
  done = subprocess.run(
    [sys.executable, '-c', start + program],
    cwd=tmp_path,
    env=environment,
    capture_output=True,
    text=True,
    check=False,
  )
  lines = done.stderr.splitlines()
  if 'import tensorflow' in program:
    lines = [line for line in lines if not _NOTES.match(line)]
  assert (done.returncode, lines) == (0, [])
  assert len(done.stdout.splitlines()) == program.count('print(')
