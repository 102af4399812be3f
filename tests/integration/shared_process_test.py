"""Runs that are forked give the bits of runs of scripts/train.py alone."""

import os
import subprocess

import numpy as np
import pytest

from scripts import sweep, train
from tests.helpers import fresh
from tff_adaptive import runs
from tff_adaptive.runs import metrics

pytest.importorskip('optuna')

_ALONE = os.path.join(os.path.dirname(train.__file__), 'train.py')
_FIXED = ('--rounds=4', '--rounds_per_evaluation=2', '--clients_per_round=3')


def _rows(folder):
  rows = metrics.read(os.path.join(folder, 'metrics.csv')).rows()
  return [{k: v for k, v in row.items() if not k.startswith('seconds_')} for row in rows]


def test_the_second_run_of_a_sweep_is_that_of_train(tmp_path, capfd):
  """The first differs in all that could be left over: algorithm, client states, seed, sizes."""
  grid = ['--grid=algorithm=ada_best,fed_yogi', '--grid=mu=0.5', '--grid=tau=0.01']
  folder = tmp_path / 'sweep'
  assert sweep.main(['sweep.py', f'--output_dir={folder}', *grid, '--', *_FIXED]) == 0
  assert 'best' in capfd.readouterr().out
  second = folder / 'algorithm=fed_yogi,tau=0.01'
  first = folder / 'algorithm=ada_best,mu=0.5'
  assert (second / 'config.json').stat().st_mtime > (first / 'summary.json').stat().st_mtime
  alone = tmp_path / 'alone'
  flags = ['--algorithm=fed_yogi', '--tau=0.01', *_FIXED, f'--output_dir={alone}']
  subprocess.run([*fresh.python(), _ALONE, *flags], check=True, capture_output=True)
  assert _rows(second) == _rows(alone)
  ours, expected = (runs.load_run(str(path)).weights for path in (second, alone))
  assert len(ours) == len(expected) > 1
  for one, other in zip(ours, expected):
    assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
