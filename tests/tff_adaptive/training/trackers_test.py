"""Trackers hold what the run recorded: MLflow's local file, and what wandb is given."""

import csv
import os
from unittest import mock

import pytest

from tests.helpers import fakes
from tff_adaptive import runs, training


def _train(callback, folder, rounds, poison_round=None):
  """Trains and returns the rows of metrics.csv."""
  parameters = {'algorithm': 'fed_avg', 'tau': None, 'batch_size': 7}
  audience = [callback('abc', 'run a', parameters)]
  process = fakes.StatefulProcess(poison_round=poison_round)
  fakes.train(folder, rounds, process, rounds_per_evaluation=2, callbacks=audience)
  return list(csv.DictReader((folder / 'metrics.csv').read_text().splitlines()))


@pytest.fixture(name='client')
def _client(tmp_path, monkeypatch):
  mlflow = pytest.importorskip('mlflow', exc_type=ImportError)
  monkeypatch.setenv('MLFLOW_DISABLE_TELEMETRY', 'true')
  monkeypatch.setenv('MLFLOW_EXPERIMENT_NAME', 'mine')
  monkeypatch.delenv('MLFLOW_TRACKING_URI', raising=False)
  monkeypatch.chdir(tmp_path)  # By default MLflow logs to a file there.
  client = mlflow.MlflowClient()
  monkeypatch.setattr(mlflow, 'MlflowClient', lambda: client)
  monkeypatch.delenv('MLFLOW_DISABLE_TELEMETRY')  # The callback sets it.
  return client


def _only_run(client):
  (run,) = client.search_runs([client.get_experiment_by_name('mine').experiment_id])
  return run


@pytest.mark.exhaustive
def test_a_resumed_run_goes_on_in_mlflow_with_every_row_once(tmp_path, client):
  _train(training.MlflowCallback, tmp_path / 'run', 3)
  assert (tmp_path / 'mlflow.db').stat().st_size > 0
  run = _only_run(client)
  assert (run.info.status, run.info.run_name) == ('FINISHED', 'run a')
  assert run.data.params == {'algorithm': 'fed_avg', 'batch_size': '7'}
  assert os.environ['MLFLOW_DISABLE_TELEMETRY'] == 'true'
  rows = _train(training.MlflowCallback, tmp_path / 'run', 5)
  for column in ('train_loss', 'validation_loss'):
    logged = client.get_metric_history(_only_run(client).info.run_id, column)
    expected = [(int(row['round']), float(row[column])) for row in rows if row[column]]
    assert [(m.step, m.value) for m in logged] == expected
  with pytest.raises(runs.NonFiniteWeightsError):
    _train(training.MlflowCallback, tmp_path / 'run', 7, poison_round=6)
  assert _only_run(client).info.status == 'FAILED'


@pytest.mark.exhaustive
def test_a_tracker_that_cannot_be_opened_ends_the_run_and_one_that_fails_later_does_not(
  tmp_path, client, monkeypatch
):
  def fail(run_id, metrics=(), params=(), log_batch=client.log_batch):
    if any(metric.step == 2 for metric in metrics):
      raise RuntimeError('the server\nis away')
    log_batch(run_id, metrics=metrics, params=params)

  monkeypatch.setattr(client, 'log_batch', fail)
  with pytest.warns(UserWarning, match='MLflow takes no more rows .*the server is away') as warned:
    assert len(_train(training.MlflowCallback, tmp_path / 'run', 4)) == 5
  assert len(warned) == 1
  logged = client.get_metric_history(_only_run(client).info.run_id, 'train_loss')
  assert [m.step for m in logged] == [1]
  monkeypatch.setattr('mlflow.MlflowClient', None)
  with pytest.raises(ValueError, match='MLflow cannot be logged to: TypeError'):
    _train(training.MlflowCallback, tmp_path / 'other', 4)


def test_a_folder_of_an_older_mlflow_is_refused_with_what_to_do(tmp_path, monkeypatch):
  pytest.importorskip('mlflow', exc_type=ImportError)
  monkeypatch.delenv('MLFLOW_TRACKING_URI', raising=False)
  monkeypatch.delenv('MLFLOW_ALLOW_FILE_STORE', raising=False)
  monkeypatch.chdir(tmp_path)
  experiment = tmp_path / 'mlruns' / '0'
  experiment.mkdir(parents=True)
  (experiment / 'meta.yaml').write_text('name: Default')
  message = 'MLflow cannot be logged to: .*sqlite:///mlflow.db.* set `MLFLOW_ALLOW_FILE_STORE=true`'
  with pytest.raises(ValueError, match=message):
    _train(training.MlflowCallback, tmp_path / 'run', 1)


def test_wandb_is_given_the_runs_rows_and_parameters_in_calls_that_it_understands(
  tmp_path, monkeypatch
):
  # Not wandb itself: its service is a process that writes on after `finish` has returned.
  wandb = pytest.importorskip('wandb', exc_type=ImportError)
  begun = mock.create_autospec(wandb.init)
  run = mock.create_autospec(wandb.sdk.wandb_run.Run, instance=True)
  begun.return_value = run
  monkeypatch.setattr(wandb, 'init', begun)
  monkeypatch.setenv('WANDB_PROJECT', 'mine')
  monkeypatch.delenv('WANDB_MODE', raising=False)
  rows = _train(training.WandbCallback, tmp_path / 'run', 3)
  (call,) = begun.call_args_list
  expected = {'id': 'abc', 'name': 'run a', 'project': 'mine', 'resume': 'allow'}
  assert {name: call.kwargs[name] for name in expected} == expected
  assert call.kwargs['config'] == {'algorithm': 'fed_avg', 'batch_size': 7}
  silence = call.kwargs['settings']
  assert (silence.console, silence.quiet, silence.silent) == ('off', True, True)
  logged = [(call.kwargs['step'], call.args[0]) for call in run.log.call_args_list]
  expected = []
  for row in rows:
    step = int(row.pop('round'))
    expected.append((step, {column: float(cell) for column, cell in row.items() if cell}))
  assert logged == expected
  assert len(rows) == 4
  run.finish.assert_called_once_with(exit_code=0)
  with pytest.raises(runs.NonFiniteWeightsError):
    _train(training.WandbCallback, tmp_path / 'other', 7, poison_round=6)
  assert run.finish.call_args.kwargs == {'exit_code': 1}
