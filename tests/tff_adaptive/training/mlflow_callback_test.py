"""MLflow: a run and its resumption are one run of MLflow's local file store."""

import pytest

from tests.helpers import fakes
from tff_adaptive import runs, training

mlflow = pytest.importorskip('mlflow', exc_type=ImportError)
PARAMETERS = {'algorithm': 'fed_avg', 'tau': None, 'batch_size': 7}


@pytest.fixture(name='client')
def _client(tmp_path, monkeypatch):
  uri = (tmp_path / 'mlruns').as_uri()
  monkeypatch.setenv('MLFLOW_DISABLE_TELEMETRY', 'true')
  monkeypatch.setenv('MLFLOW_EXPERIMENT_NAME', 'mine')
  monkeypatch.setattr(
    mlflow, 'MlflowClient', lambda kind=mlflow.MlflowClient: kind(tracking_uri=uri)
  )
  return mlflow.MlflowClient()


def _train(folder, rounds, *more, **options):
  callback = training.MlflowCallback('abc', 'run a', PARAMETERS)
  config = training.TrainingConfig(rounds=rounds, clients_per_round=3, rounds_per_evaluation=2)
  training.train(
    fakes.StatefulProcess(**options),
    fakes.Clients(),
    fakes.evaluate,
    config,
    output_dir=str(folder),
    callbacks=[callback, *more],
    show_progress=False,
  )


def _runs(client):
  return client.search_runs([client.get_experiment_by_name('mine').experiment_id])


def test_a_resumed_run_goes_on_in_mlflow_with_every_row_once(tmp_path, client):
  _train(tmp_path / 'run', 3)
  (run,) = _runs(client)
  assert run.info.status == 'FINISHED'
  assert run.info.run_name == 'run a'
  assert run.data.params == {'algorithm': 'fed_avg', 'batch_size': '7'}
  _train(tmp_path / 'run', 5)
  (run,) = _runs(client)
  lines = (tmp_path / 'run' / 'metrics.csv').read_text().splitlines()
  columns = lines[0].split(',')
  rows = [dict(zip(columns, line.split(','))) for line in lines[1:]]
  for column in ('train_loss', 'validation_loss'):
    logged = client.get_metric_history(run.info.run_id, column)
    expected = [(int(r['round']), float(r[column])) for r in rows if r[column]]
    assert [(m.step, m.value) for m in logged] == expected


def test_a_run_that_diverges_has_failed(tmp_path, client):
  with pytest.raises(runs.NonFiniteWeightsError):
    _train(tmp_path / 'run', 4, poison_round=2)
  assert [run.info.status for run in _runs(client)] == ['FAILED']


def test_mlflow_that_cannot_be_begun_with_ends_the_run_and_one_that_fails_later_does_not(
  tmp_path, client, monkeypatch, capsys
):
  class Failing(type(client)):
    def log_batch(self, run_id, metrics=(), params=()):
      if any(metric.step == 2 for metric in metrics):
        raise RuntimeError('the server\nis away')
      super().log_batch(run_id, metrics=metrics, params=params)

  uri = client.tracking_uri
  monkeypatch.setattr(mlflow, 'MlflowClient', lambda: Failing(tracking_uri=uri))
  with pytest.warns(UserWarning, match='MLflow takes no more rows .*the server is away') as warned:
    _train(tmp_path / 'run', 4)
  assert len(warned) == 1
  assert len((tmp_path / 'run' / 'metrics.csv').read_text().splitlines()) == 1 + 5
  (run,) = _runs(client)
  steps = [m.step for m in client.get_metric_history(run.info.run_id, 'train_loss')]
  assert steps == [1]
  monkeypatch.setattr(mlflow, 'MlflowClient', None)
  with pytest.raises(ValueError, match='MLflow cannot be logged to: TypeError'):
    _train(tmp_path / 'other', 4)
