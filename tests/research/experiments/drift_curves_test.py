"""research/experiments/drift_curves.py: which runs and which column a panel has."""

import pandas as pd
import pytest

from research.experiments import drift_curves
from tests.helpers import run_folders
from tff_adaptive.runs import run as run_lib


@pytest.fixture
def runs(tmp_path):
  places = [('mnist_skewed', '0.3'), ('digits_skewed', 'inf'), ('digits_skewed', '0.03')]
  for number, (task, alpha) in enumerate(places):
    options = ['validation=test', f'alpha={alpha}']
    settings = {'task': task, 'task_option': options, 'server_optimizer': 'sgd'}
    run_folders.make(tmp_path / str(number), [0.5, 0.9], **settings)
  return tmp_path


def test_a_panel_has_the_runs_of_a_task_and_an_alpha_in_order(runs):
  panels = drift_curves.panels(run_lib.find_runs([str(runs)]))
  places = [('digits_skewed', '0.03'), ('digits_skewed', 'inf'), ('mnist_skewed', '0.3')]
  assert [*panels] == places
  assert [run.folder[-1] for (run,) in panels.values()] == ['2', '1', '0']


def test_the_mean_of_the_client_models_goes_before_the_global_model(runs):
  whole = run_lib.find_runs([str(runs)])[0]
  whole.rows[-1]['inference_accuracy'] = 0.7
  ((run,),) = drift_curves.panels([whole]).values()
  assert [row['inference_accuracy'] for row in run.rows] == [0.5, 0.7]


def test_a_run_with_updates_that_were_not_finite_has_diverged(runs):
  run = run_lib.find_runs([str(runs)])[0]
  assert not drift_curves.has_diverged(run)
  run.rows[-1]['non_finite_clients'] = 1.0
  assert drift_curves.has_diverged(run)


def test_the_picture_is_written_and_runs_that_diverged_are_named(runs, tmp_path, capsys):
  path = runs / '1' / 'metrics.csv'
  table = pd.read_csv(path)
  table.assign(non_finite_clients=1.0).to_csv(path, index=False)
  flags = [f'--runs={runs}', f'--results={tmp_path}/curves']
  assert drift_curves.main(['drift_curves.py', *flags]) == 0
  assert (tmp_path / 'curves.png').stat().st_size > 5000
  assert capsys.readouterr().out == f'diverged: {runs}/1\n'
