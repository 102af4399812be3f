"""A CSV goes in by the guide's file, a model comes out that predicts raw rows as the run did."""

import json
import os
import pathlib
import re
import runpy
import subprocess
import tempfile

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tff_adaptive_tasks as tasks
from scripts import export, train
from tests.helpers import fresh

GUIDE = pathlib.Path(__file__).parents[2] / 'docs' / 'guide'


def blocks(page):
  return re.findall(r'```python\n(.*?)```', (GUIDE / page).read_text('utf-8'), re.DOTALL)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run of the guide's task, by the guide's command; theta-bar is evaluated too."""
  folder = tmp_path_factory.mktemp('visits')
  (file,) = blocks('own_data.md')
  (folder / 'my_task.py').write_text(file)
  flags = '--rounds=6 --clients_per_round=5 --batch_size=10 --client_learning_rate=0.1'
  flags += ' --task_option=model=network --algorithm=ada_best --beta=0.5 --rounds_per_evaluation=3'
  paths = [f'--task={folder}/my_task.py:load', f'--data_dir={folder}']
  paths.append(f'--output_dir={folder}/runs/visits')
  assert train.main(['train.py', *paths, *flags.split()]) == 0
  return folder


def test_the_exported_model_has_the_runs_accuracy_on_raw_rows(run, monkeypatch):
  output = run / 'new' / 'model'
  assert export.main(['export.py', str(run / 'runs' / 'visits'), f'--output={output}']) == 0
  name = 'model.keras' if (output / 'model.keras').exists() else 'model'
  model = tf.keras.models.load_model(output / name)
  Preparation = runpy.run_path(str(output / 'preparation.py'))['Preparation']
  prepare = Preparation.load(str(output / 'preparation.json'))
  saved = tasks.load_run(str(run / 'runs' / 'visits'))
  rows = pd.read_csv(run / 'visits.csv', dtype={'hospital': str})
  rows = rows[~rows['hospital'].isin(saved.task().train.client_ids)]  # What validation has.
  labels = prepare.labels(model.predict(prepare(rows), verbose=0))
  last = saved.rows[-1]
  best = max(last['validation_accuracy'], last['inference_accuracy'])
  assert np.mean(labels == rows['outcome']) == pytest.approx(best, abs=1e-6)
  record = json.loads((output / 'export.json').read_text())
  assert record['validation']['accuracy'] == best
  assert record['round'] == 6
  block, evaluates = blocks('export.md')  # The guide's examples predict and evaluate.
  command = [*fresh.python(), '-c', block.replace('model.keras', name)]
  done = subprocess.run(command, cwd=output, capture_output=True, text=True, check=True)
  assert re.fullmatch(r"\['(good|poor)' '(good|poor)'\]", done.stdout.strip())
  monkeypatch.chdir(run)
  exec(evaluates, scope := {})
  assert scope['run'].evaluate()['accuracy'] > 0.5


def test_the_weights_that_were_asked_for_are_exported(run, monkeypatch, capsys):
  # Nothing is moved from another file system.
  monkeypatch.setattr(tempfile, 'tempdir', '/no/such/folder')
  folder = str(run / 'runs' / 'visits')
  assert export.main(['export.py', folder, '--format=npz', '--weights=theta']) == 0
  path = f'{folder}/export_npz/model.npz'
  assert capsys.readouterr().out.startswith(f'{path}: theta of round 6; validation: ')
  found = np.load(path)
  np.testing.assert_equal(tuple(found.values()), tasks.load_run(folder).weights)


def test_a_run_is_exported_from_any_folder_without_what_it_held_out_while_its_file_is_the_same(
  tmp_path, monkeypatch, capsys
):
  """It was begun in another folder, with paths from there; so was a centralised one."""
  (tmp_path / 'there' / 'data').mkdir(parents=True)
  (tmp_path / 'there' / 'my_task.py').write_text(
    'import os\n\nimport tff_adaptive_tasks as tasks\n\n\ndef load(data_dir, seed):\n'
    "  assert os.path.isdir(data_dir)\n  return tasks.load('least_squares', seed=seed)\n"
  )
  monkeypatch.chdir(tmp_path / 'there')
  paths = ['--task=my_task.py:load', '--data_dir=data']
  held = ['--rounds=1', '--clients_per_round=3', '--heldout_clients=0.2', '--heldout_examples=0.2']
  assert train.main(['train.py', *paths, *held, '--output_dir=run']) == 0
  one = ['--algorithm=centralized', '--rounds=1', '--client_learning_rate=0.01']
  assert train.main(['train.py', *paths, *one, '--output_dir=central']) == 0
  monkeypatch.chdir(tmp_path)
  assert export.main(['export.py', 'there/run', '--output=export']) == 0
  # From the file beside the SavedModel.
  start = ['--initial_weights=export', '--rounds=1', '--clients_per_round=2', '--output_dir=next']
  assert train.main(['train.py', '--task=least_squares', *start]) == 0
  for folder in ('there/run', 'there/central'):
    run = tasks.load_run(folder)
    assert run.settings['data_dir'] == str(tmp_path / 'there' / 'data')
    last = run.rows[-1]['validation_loss']
    assert run.evaluate()['loss'] == pytest.approx(last, abs=1e-6)
  run = tasks.load_run('there/run')
  data = run.config['data']
  assert len(run.task().train.client_ids) == data['clients'] == 5 - data['unseen_clients']
  with open('there/my_task.py', 'a') as file:
    file.write('# Changed.\n')
  assert export.main(['export.py', 'there/run', '--output=again']) == 2
  assert "my_task.py', was changed since the run" in capsys.readouterr().err


def test_bad_input_is_refused_in_one_line_and_writes_nothing(run, tmp_path, capfd):
  folder = str(run / 'runs' / 'visits')
  before = sorted(os.listdir(folder))
  for arguments, message in (
    ([], 'give the folder of one run, found 0'),
    ([folder, '--format=onnx'], "unknown format 'onnx'"),
    ([folder, '--weights=phi'], '--weights'),
    ([str(tmp_path)], 'is not the folder of a run'),
    ([folder, f'--output={tmp_path}'], 'exists already'),
    ([folder, '--output=/proc/x'], '--output=/proc/x cannot be written to'),
  ):
    assert export.main(['export.py', *arguments]) == 2
    error = capfd.readouterr().err
    assert message in error
    assert error.count('\n') == 1
  assert sorted(os.listdir(folder)) == before
  assert not os.listdir(tmp_path)


def test_a_full_disk_ends_the_command_in_one_line(run, monkeypatch, capsys):
  def full(*unused_arguments, **unused_options):
    raise tf.errors.ResourceExhaustedError(None, None, 'a; No space left on device')

  monkeypatch.setattr(tf.keras.Model, 'save', full)
  output, before = run / 'full', sorted(os.listdir(run))
  arguments = ['export.py', str(run / 'runs' / 'visits'), '--format=saved_model']
  assert export.main([*arguments, f'--output={output}']) == 1
  (line,) = capsys.readouterr().err.splitlines()[-1:]
  assert line.startswith(f'export.py: --output={output}: ')
  assert 'No space left on device' in line
  assert sorted(os.listdir(run)) == before
