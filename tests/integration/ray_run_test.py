"""`train.py --ray=local` gives the rows of the same subrounds in one process; nothing is left."""

import csv
import glob
import os
import subprocess
import sys

import pytest

from scripts import train

pytest.importorskip('ray')

_SCRIPT = os.path.join(os.path.dirname(train.__file__), 'train.py')
_COLUMNS = {'seconds_waiting', 'bytes_to_workers', 'bytes_from_workers', 'subrounds_retried'}


def _rows(folder, *arguments):
  flags = ['--task=digits', '--algorithm=ada_best', '--rounds=3', '--clients_per_round=7']
  result = subprocess.run(
    [sys.executable, _SCRIPT, *flags, f'--output_dir={folder}', *arguments],
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stderr
  with open(os.path.join(folder, 'metrics.csv'), newline='', encoding='utf-8') as file:
    return list(csv.DictReader(file)), result.stderr


def _course(rows):
  of_where = ('seconds_', 'bytes_to_workers', 'bytes_from_workers', 'subrounds_')
  return [{k: v for k, v in row.items() if not k.startswith(of_where)} for row in rows]


def test_a_run_on_ray_workers_equals_one_in_one_process(tmp_path):
  before = set(glob.glob('/tmp/tff-ray-*'))
  on_ray, lines = _rows(tmp_path / 'ray', '--ray=local', '--ray_workers=2', '--subrounds=3')
  assert 'Starting 2 workers.' in lines
  assert 'ray log level' not in lines
  assert set(glob.glob('/tmp/tff-ray-*')) <= before
  assert set(on_ray[1]) >= _COLUMNS
  assert float(on_ray[1]['bytes_to_workers']) > 1000
  alone, _ = _rows(tmp_path / 'alone', '--subrounds=3')
  assert not set(alone[1]) & _COLUMNS
  assert _course(on_ray) == _course(alone)
