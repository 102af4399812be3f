"""A hospital's table with few positives: what its run, report and partition report say."""

import contextlib
import io
import json

import numpy as np
import pandas as pd
import pytest

from scripts import partition_report, report, train
from tests.helpers import fakes

_TASK = """
import os
import tff_adaptive_tasks as tasks

def load(data_dir, seed):
  path = os.path.join(os.path.dirname(__file__), 'visits.csv')
  return tasks.from_csv(path, client='hospital', label='ill', seed=seed)
"""
_FLAGS = [
  '--algorithm=fed_yogi',
  '--rounds=4',
  '--clients_per_round=4',
  '--rounds_per_evaluation=2',
  '--batch_size=50',
  '--client_learning_rate=0.3',
  '--server_learning_rate=0.05',
]


@pytest.fixture(scope='module')
def task(tmp_path_factory):
  """A table with 5.5 % positives, and inputs that say nothing about them."""
  folder = tmp_path_factory.mktemp('hospital')
  rng = np.random.default_rng(0)
  n = 2000
  table = {
    'hospital': np.repeat([f'h{i}' for i in range(10)], n // 10),
    'dose': rng.normal(0, 0.01, n),
    'weight': rng.normal(0, 0.01, n),
    'ill': np.where(np.arange(n) % 200 < 11, 'yes', 'no'),
  }
  pd.DataFrame(table).to_csv(folder / 'visits.csv', index=False)
  (folder / 'visits.py').write_text(_TASK)
  return f'--task={folder}/visits.py:load'


@pytest.fixture(scope='module')
def run(task, tmp_path_factory):
  """A run's folder, and what it printed."""
  folder = tmp_path_factory.mktemp('runs') / 'visits'
  return folder, *_trained(task, folder)


def _trained(task, folder, *flags):
  out = io.StringIO()
  error = io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error), fakes.no_figures():
    code = train.main(['train.py', task, *_FLAGS, *flags, f'--output_dir={folder}'])
  assert code == 0, error.getvalue()
  return out.getvalue(), error.getvalue()


def test_the_run_says_that_its_accuracy_is_that_of_always_no(run):
  _, out, error = run
  begin = "Baseline: always 'no', the most frequent class (94.5 % of the training examples), has"
  assert f'{begin} validation accuracy 0.9450. --metric=auc_pr says more' in error
  assert (
    "The validation accuracy, 0.9450, equals that of always predicting 'no', the most frequent"
    ' class (94.5 % of the training examples): 0.9450.'
  ) in out
  (row,) = [line for line in out.splitlines() if line.startswith('validation_accuracy')]
  assert row.split()[-1] == '0.9450'


def test_the_summary_and_the_comparison_have_the_baseline(run, capsys):
  folder, *_ = run
  baseline = json.loads((folder / 'summary.json').read_text())['baseline']
  assert baseline['prediction'] == "'no'"
  assert baseline['metrics']['accuracy'] == pytest.approx(0.945)
  assert baseline['metrics']['balanced_accuracy'] == 0.5
  assert report.main(['report.py', str(folder)]) == 0
  (line,) = [line for line in capsys.readouterr().out.splitlines() if "always 'no'" in line]
  assert line.count('0.9450') == 2


def test_the_partition_report_has_the_majority_class(task, capsys):
  assert partition_report.main(['partition_report.py', task]) == 0
  words = 'no: 94.5% of the training examples; always predicting it has accuracy 0.9450'
  assert words in capsys.readouterr().out


@pytest.mark.exhaustive
def test_another_metric_judges_the_run(task, tmp_path):
  folder = tmp_path / 'run'
  out, error = _trained(task, folder, '--metric=precision', '--target=0.9')
  # Nothing is predicted as ill, so that precision is not defined; this is no divergence.
  assert 'always predicting' in out
  (row,) = [line for line in out.splitlines() if line.startswith('validation_precision')]
  assert (row.split()[1], row.split()[-1]) == ('nan', 'nan')
  assert 'has validation precision undefined (NaN), accuracy 0.9450.' in error
  config = json.loads((folder / 'config.json').read_text())
  assert (config['metric'], config['settings']['metric']) == ('precision', 'precision')
  summary = json.loads((folder / 'summary.json').read_text())
  assert np.isnan(summary['last']['validation_precision'])
  assert summary['to_target']['validation_precision'] is None


def test_an_unknown_metric_is_refused_in_one_line(task, tmp_path, capsys):
  code = train.main(['train.py', task, *_FLAGS, '--metric=f7', f'--output_dir={tmp_path}/run'])
  assert code == 2
  assert "--metric: 'f7' is no metric here; for two classes there are:" in capsys.readouterr().err
  assert not (tmp_path / 'run').exists()


@pytest.mark.exhaustive
def test_each_client_alone_is_a_baseline_by_client(task, tmp_path, capsys):
  folder = tmp_path / 'run'
  _trained(
    task,
    folder,
    '--rounds_per_client_evaluation=4',
    '--heldout_examples=0.3',
    '--local_baseline_epochs=2',
  )
  table = pd.read_csv(folder / 'client_evaluations' / 'round_000004.csv')
  heldout = table[table.group == 'heldout']
  assert heldout.local_accuracy.notna().all()
  assert table[table.group == 'train'].local_accuracy.isna().all()
  first = pd.read_csv(folder / 'client_evaluations' / 'round_000000.csv')
  # The models that clients train alone are those of the first evaluation.
  assert (first[first.group == 'heldout'].local_loss.values == heldout.local_loss.values).all()
  arguments = ['report.py', str(folder), '--form=clients', '--clients=heldout', '--metric=loss']
  assert report.main(arguments) == 0
  gain = int((heldout.loss < heldout.local_loss).sum())
  words = f': {gain} of 8 clients have a better loss than alone (local_loss).'
  assert words in capsys.readouterr().out
