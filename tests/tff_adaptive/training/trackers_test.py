"""Trackers hold what the run recorded: MLflow's local files, and what wandb writes offline."""

import csv

import pytest

from tests.helpers import fakes
from tff_adaptive import runs, training


def _train(callback, folder, rounds, **options):
  """Trains and returns the rows of metrics.csv."""
  parameters = {'algorithm': 'fed_avg', 'tau': None, 'batch_size': 7}
  audience = [callback('abc', 'run a', parameters)]
  fakes.train(folder, rounds, rounds_per_evaluation=2, callbacks=audience, **options)
  return list(csv.DictReader((folder / 'metrics.csv').read_text().splitlines()))


@pytest.fixture(name='client')
def _client(tmp_path, monkeypatch):
  mlflow = pytest.importorskip('mlflow', exc_type=ImportError)
  monkeypatch.setenv('MLFLOW_DISABLE_TELEMETRY', 'true')
  monkeypatch.setenv('MLFLOW_EXPERIMENT_NAME', 'mine')
  client = mlflow.MlflowClient(tracking_uri=(tmp_path / 'mlruns').as_uri())
  monkeypatch.setattr(mlflow, 'MlflowClient', lambda: client)
  return client


def _only_run(client):
  (run,) = client.search_runs([client.get_experiment_by_name('mine').experiment_id])
  return run


def test_a_resumed_run_goes_on_in_mlflow_with_every_row_once(tmp_path, client):
  _train(training.MlflowCallback, tmp_path / 'run', 3)
  run = _only_run(client)
  assert (run.info.status, run.info.run_name) == ('FINISHED', 'run a')
  assert run.data.params == {'algorithm': 'fed_avg', 'batch_size': '7'}
  rows = _train(training.MlflowCallback, tmp_path / 'run', 5)
  for column in ('train_loss', 'validation_loss'):
    logged = client.get_metric_history(_only_run(client).info.run_id, column)
    expected = [(int(row['round']), float(row[column])) for row in rows if row[column]]
    assert [(m.step, m.value) for m in logged] == expected
  with pytest.raises(runs.NonFiniteWeightsError):
    _train(
      training.MlflowCallback, tmp_path / 'run', 7, process=fakes.StatefulProcess(poison_round=6)
    )
  assert _only_run(client).info.status == 'FAILED'


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


def test_a_run_that_wandb_logged_offline_holds_its_rows_and_parameters(tmp_path, monkeypatch):
  pytest.importorskip('wandb', exc_type=ImportError)
  from wandb.proto import wandb_internal_pb2
  from wandb.sdk.internal import datastore

  variables = {'WANDB_MODE': 'offline', 'WANDB_DIR': str(tmp_path), 'WANDB_PROJECT': 'mine'}
  patience = {'WANDB__SERVICE_WAIT': '600', 'WANDB_INIT_TIMEOUT': '600'}  # Seconds: 30, 90 else.
  for name, value in {**variables, **patience}.items():
    monkeypatch.setenv(name, value)
  rows = _train(training.WandbCallback, tmp_path / 'run', 3)
  (path,) = tmp_path.glob('wandb/offline-run-*/*.wandb')
  store = datastore.DataStore()
  store.open_for_scan(str(path))
  records = [wandb_internal_pb2.Record.FromString(data) for data in iter(store.scan_data, None)]
  (run,) = [record.run for record in records if record.HasField('run')]
  assert (run.run_id, run.display_name, run.project) == ('abc', 'run a', 'mine')
  config = {item.key: item.value_json for item in run.config.update}
  assert (config['algorithm'], 'tau' in config) == ('"fed_avg"', False)
  logged = [
    {(i.key or i.nested_key[0]): float(i.value_json) for i in record.history.item}
    for record in records
    if record.HasField('history')
  ]
  assert [items['_step'] for items in logged] == [int(row.pop('round')) for row in rows]
  assert len(rows) == 4
  for row, items in zip(rows, logged):
    expected = {column: float(cell) for column, cell in row.items() if cell}
    assert {column: items[column] for column in row if column in items} == expected
  (end,) = [record.exit for record in records if record.HasField('exit')]
  assert end.exit_code == 0
