"""Weights & Biases, offline: what it writes to be sent later is what the run recorded."""

import pytest

from tests.helpers import fakes
from tff_adaptive import training

wandb = pytest.importorskip('wandb', exc_type=ImportError)


def _records(path):
  """The records of an offline run's file."""
  from wandb.proto import wandb_internal_pb2
  from wandb.sdk.internal import datastore

  store = datastore.DataStore()
  store.open_for_scan(str(path))
  while (data := store.scan_data()) is not None:
    record = wandb_internal_pb2.Record()
    record.ParseFromString(data)
    yield record


def test_a_run_logged_offline_holds_its_rows_and_parameters(tmp_path, monkeypatch):
  monkeypatch.setenv('WANDB_MODE', 'offline')
  monkeypatch.setenv('WANDB_DIR', str(tmp_path))
  monkeypatch.setenv('WANDB_PROJECT', 'mine')
  for name in ('WANDB__SERVICE_WAIT', 'WANDB_INIT_TIMEOUT'):  # Seconds: 30 and 90 else.
    monkeypatch.setenv(name, '600')
  callback = training.WandbCallback('abc', 'run a', {'algorithm': 'fed_avg', 'tau': None})
  training.train(
    fakes.StatefulProcess(),
    fakes.Clients(),
    fakes.evaluate,
    training.TrainingConfig(rounds=3, clients_per_round=3, rounds_per_evaluation=2),
    output_dir=str(tmp_path / 'run'),
    callbacks=[callback],
    show_progress=False,
  )
  (path,) = tmp_path.glob('wandb/offline-run-*/*.wandb')
  records = list(_records(path))
  (run,) = [record.run for record in records if record.HasField('run')]
  assert (run.run_id, run.display_name, run.project) == ('abc', 'run a', 'mine')
  config = {item.key: item.value_json for item in run.config.update}
  assert config['algorithm'] == '"fed_avg"'
  assert 'tau' not in config
  logged = []
  for record in records:
    if record.HasField('history'):
      items = {(i.key or i.nested_key[0]): float(i.value_json) for i in record.history.item}
      logged.append((int(items['_step']), items))
  lines = (tmp_path / 'run' / 'metrics.csv').read_text().splitlines()
  columns = lines[0].split(',')
  assert [step for step, _ in logged] == [0, 1, 2, 3]
  for line, (_, items) in zip(lines[1:], logged):
    for column, cell in zip(columns[1:], line.split(',')[1:]):
      assert (column in items) == bool(cell)
      assert not cell or items[column] == float(cell)
  (end,) = [record.exit for record in records if record.HasField('exit')]
  assert end.exit_code == 0
