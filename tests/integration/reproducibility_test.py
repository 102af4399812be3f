"""Which ways of training give the same bits; docs/design/reproducibility.md has the whole table."""

import os
import subprocess

import numpy as np
import pytest

from scripts import sweep, train
from tests.helpers import bits, fakes, fresh
from tff_adaptive import engine, runs

_CODE = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
from tests.helpers import bits
from tff_adaptive import engine
assert engine.GraphContext().parallel_clients == 1
print(*(bits.digest(name, engine.GraphContext()) for name in sys.argv[1:]))
"""


def test_clients_at_the_same_time_one_processor_and_two_threads_give_the_same_bits():
  names = ['fed_avg', 'ada_best']
  at_once = [bits.digest(name, engine.GraphContext(parallel_clients=3)) for name in names]
  root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
  environment = {**os.environ, 'PYTHONPATH': root, 'TF_NUM_INTRAOP_THREADS': '2'}
  command = [*fresh.python(), '-c', _CODE, *names]
  done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
  assert done.stdout.split() == at_once


@pytest.mark.exhaustive
def test_the_second_run_of_a_sweep_is_that_of_train(tmp_path, capfd):
  """The first differs in all that could be left over: algorithm, client states, seed, sizes."""
  pytest.importorskip('optuna')
  fixed = ('--rounds=4', '--rounds_per_evaluation=2', '--clients_per_round=3')
  grid = ['--grid=algorithm=ada_best,fed_yogi', '--grid=mu=0.5', '--grid=tau=0.01']
  folder = tmp_path / 'sweep'
  alone = tmp_path / 'alone'
  assert sweep.main(['sweep.py', f'--output_dir={folder}', *grid, '--', *fixed]) == 0
  assert 'best' in capfd.readouterr().out
  second = folder / 'algorithm=fed_yogi,tau=0.01'
  first = folder / 'algorithm=ada_best,mu=0.5'
  assert (second / 'config.json').stat().st_mtime > (first / 'summary.json').stat().st_mtime
  flags = ['--algorithm=fed_yogi', '--tau=0.01', *fixed, f'--output_dir={alone}']
  with fakes.no_figures():
    assert train.main(['train.py', *flags]) == 0
  assert fakes.rows(second) == fakes.rows(alone)
  ours = runs.load_run(str(second)).weights
  expected = runs.load_run(str(alone)).weights
  assert len(ours) == len(expected) > 1
  for one, other in zip(ours, expected):
    assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
