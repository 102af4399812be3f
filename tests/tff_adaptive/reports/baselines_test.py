"""Constant predictions in reports, metrics that are not defined, and clients that gain."""

import json
import math
import os

import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import baselines, client_distribution, scores, tables

COLUMN = 'validation_accuracy'


def make(folder, values=(0.1, 0.6), prediction="'no'", accuracy=0.945, **settings):
  """A run with a baseline in its summary."""
  run = run_folders.make(folder, values, **settings)
  entry = {'prediction': prediction, 'metrics': {'accuracy': accuracy, 'f1': math.nan}}
  with open(os.path.join(run.folder, 'summary.json'), 'w') as file:
    json.dump({'is_complete': True, 'rounds': 1, 'baseline': entry}, file)
  return run


def test_the_comparison_has_a_row_for_the_constant_prediction(tmp_path):
  runs = [make(tmp_path / 'a', seed=0), make(tmp_path / 'b', seed=1)]
  rows = tables.comparison_table({'FedAvg': runs}, COLUMN).rows
  assert [row[0] for row in rows] == ['FedAvg', "always 'no'"]
  assert rows[1][1:] == ['', '', '0.9450', '0.9450', '']


@pytest.mark.parametrize(
  'column, other',
  [
    (COLUMN, {'accuracy': 0.9}),  # Another baseline: other data.
    (COLUMN, {'prediction': "'yes'"}),
    ('validation_f1', {}),  # Not defined.
    ('validation_auc_pr', {}),  # Not known.
    ('train_accuracy', {}),  # Of other examples.
  ],
)
def test_without_one_value_for_all_runs_there_is_no_row(tmp_path, column, other):
  runs = [make(tmp_path / 'a', seed=0), make(tmp_path / 'b', seed=1, **other)]
  assert baselines.of_runs(runs, column) is None
  assert baselines.of_runs([run_folders.make(tmp_path / 'c', [0.1, 0.2])], column) is None


def precision_run(folder, value, loss):
  run = run_folders.make(folder, [0.1, value], 'validation_precision')
  run.rows[-1]['validation_loss'] = loss
  return run


def test_nan_beside_a_finite_loss_is_not_defined_and_no_divergence(tmp_path):
  run = precision_run(tmp_path / 'a', math.nan, 0.3)
  assert not scores.has_diverged(run, 'validation_precision')
  score = scores.score([run], 'validation_precision')
  assert scores.text(score, 'validation_precision') == 'not defined'
  assert scores.rank([run], 'validation_precision')[2] == -math.inf
  diverged = precision_run(tmp_path / 'b', math.nan, math.nan)
  assert scores.has_diverged(diverged, 'validation_precision')
  score = scores.score([diverged], 'validation_precision')
  assert scores.text(score, 'validation_precision') == 'diverged'
  infinite = precision_run(tmp_path / 'c', math.inf, 0.3)
  assert scores.has_diverged(infinite, 'validation_precision')


def of_clients(folder, metric, pairs):
  """A run with values of its clients: of the shared model, and of each alone."""
  run = run_folders.make(folder, [0.1, 0.2])
  os.makedirs(os.path.join(run.folder, client_distribution.FOLDER))
  lines = [f'group,client,examples,{metric},local_{metric}\n']
  for i, (shared, alone) in enumerate(pairs):
    lines.append(f'heldout,{i},5,{shared!r},{alone!r}\n')
  path = os.path.join(run.folder, client_distribution.FOLDER, 'round_000001.csv')
  with open(path, 'w') as file:
    file.write(''.join(lines))
  return run


@pytest.mark.parametrize('metric, gains', [('f1', 2), ('loss', 1)])
def test_the_note_says_who_gains_and_for_whom_nothing_is_defined(tmp_path, metric, gains):
  pairs = [(0.5, 0.4), (0.9, 0.1), (0.2, 0.3), (0.2, 0.2), (math.nan, 0.5), (0.7, math.nan)]
  run = of_clients(tmp_path / 'a', metric, pairs)
  (table,) = client_distribution.build({'FedAvg': [run]}, metric, 'heldout').tables
  assert 'FedAvg: not defined for 1 clients, which are left out.' in table.note
  words = f'FedAvg: {gains} of 4 clients have a better {metric} than alone (local_{metric}).'
  assert words in table.note
  (table,) = client_distribution.build({'FedAvg': [run]}, f'local_{metric}', 'heldout').tables
  assert 'than alone' not in table.note
