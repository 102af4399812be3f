"""A CSV goes in by the guide's file, a model comes out that predicts raw rows as the run did."""

import json
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import tff_adaptive_tasks as tasks
from scripts import export, train
from tests.helpers import fresh
from tff_adaptive._utils import user_code

ROOT = pathlib.Path(__file__).parents[2]
GUIDE = ROOT / 'docs' / 'guide'


def blocks(page):
  return re.findall(r'```python\n(.*?)```', (GUIDE / page).read_text('utf-8'), re.DOTALL)


@pytest.fixture(scope='module')
def run(tmp_path_factory):
  """A run of the guide's task, by the guide's command; theta-bar is evaluated too."""
  folder = tmp_path_factory.mktemp('visits')
  file = blocks('own_data.md')[0]
  (folder / 'my_task.py').write_text(file)
  flags = '--rounds=6 --clients_per_round=5 --batch_size=10 --client_learning_rate=0.1'
  flags += ' --task_option=model=network --algorithm=ada_best --beta=0.5 --rounds_per_evaluation=3'
  paths = [f'--task={folder}/my_task.py:load', f'--data_dir={folder}']
  paths.append(f'--output_dir={folder}/runs/visits')
  assert train.main(['train.py', *paths, *flags.split()]) == 0
  return folder


@pytest.mark.exhaustive
def test_the_exported_model_has_the_runs_accuracy_on_raw_rows(run, monkeypatch):
  output = run / 'new' / 'model'
  assert export.main(['export.py', str(run / 'runs' / 'visits'), f'--output={output}']) == 0
  if (output / 'model.keras').exists():
    name = 'model.keras'
  else:
    name = 'model'
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
  block, _, evaluates = blocks('export.md')  # The guide's examples predict and evaluate.
  command = [*fresh.python(), '-c', block.replace('model.keras', name)]
  done = subprocess.run(command, cwd=output, capture_output=True, text=True, check=True)
  assert re.fullmatch(r"\['(good|poor)' '(good|poor)'\]", done.stdout.strip())
  monkeypatch.chdir(run)
  scope = {}
  exec(evaluates, scope)
  assert scope['run'].evaluate()['accuracy'] > 0.5


def softmax(scores):
  powers = np.exp(scores)
  return powers / powers.sum(-1, keepdims=True)


@pytest.mark.exhaustive
def test_a_copied_run_folder_is_exported_and_served_where_there_is_no_data(tmp_path):
  """As its user does: the run's folder alone goes to a machine that serves, from any folder."""
  here = tmp_path / 'here'
  there = tmp_path / 'there'
  here.mkdir()
  there.mkdir()
  (here / 'my_task.py').write_text(blocks('own_data.md')[0])
  flags = '--rounds=2 --clients_per_round=5 --client_learning_rate=0.1 --algorithm=fed_avg'
  paths = [f'--task={here}/my_task.py:load', f'--data_dir={here}', f'--output_dir={here}/run']
  assert train.main(['train.py', *paths, *flags.split()]) == 0
  saved = tasks.load_run(str(here / 'run'))
  task = saved.task()
  raw = {'age': [30, 80, 55], 'smoker': ['no', 'yes', 'no']}
  x = task.preparation(raw)
  logits = task.build_model(0).forward(saved.weights, x, False, None).numpy()
  labels = task.preparation.labels(logits).tolist()
  last = {k.removeprefix('validation_'): v for k, v in saved.rows[-1].items()}
  shutil.move(here / 'run', there / 'copied')
  shutil.rmtree(here)  # Neither the table nor the task's file is left.

  for file_format in export.FORMATS:
    command = [*fresh.python(), str(ROOT / 'scripts' / 'export.py'), 'copied']
    command += [f'--format={file_format}', f'--output={file_format}']
    done = subprocess.run(command, cwd=there, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record = json.loads((there / file_format / 'export.json').read_text())
    assert record['validation'] == {name: last[name] for name in record['validation']}
    assert {'loss', 'accuracy'} <= {*record['validation']}

  keras = tf.keras.models.load_model(there / 'keras' / 'model.keras')
  np.testing.assert_allclose(keras.predict(x, verbose=0), logits, rtol=1e-5, atol=1e-6)
  served = tf.saved_model.load(str(there / 'saved_model' / 'model')).signatures['serving_default']
  np.testing.assert_allclose(served(x=x)['predictions'], logits, rtol=1e-5, atol=1e-6)
  runner = tf.lite.Interpreter(str(there / 'tflite' / 'model.tflite')).get_signature_runner()
  np.testing.assert_allclose(runner(x=x)['predictions'], logits, rtol=1e-5, atol=1e-6)
  arrays = np.load(there / 'npz' / 'model.npz')
  np.testing.assert_equal(tuple(arrays.values()), saved.weights)

  # The guide's server, in the exported folder.
  server = blocks('export.md')[1] + f'import json\nprint(json.dumps(predict({raw})))\n'
  if 'fastapi' in server:
    pytest.importorskip('fastapi')
  command = [*fresh.python(), '-c', server]
  done = subprocess.run(command, cwd=there / 'keras', capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  answer = json.loads(done.stdout.splitlines()[-1])
  assert answer['labels'] == labels
  np.testing.assert_allclose(answer['probabilities'], softmax(logits), rtol=1e-4)
  assert json.loads((there / 'keras' / 'preparation.json').read_text())['output'] == 'logits'


OWN_LAYER = """
import numpy as np
import tensorflow as tf

import tff_adaptive_tasks as tasks


class Doubled(tf.keras.layers.Layer):
  def call(self, x):
    return 2 * x


def network(shape, outputs):
  return tf.keras.Sequential([tf.keras.Input(shape), Doubled(), tf.keras.layers.Dense(outputs)])


def load(data_dir, seed):
  x = np.random.default_rng(0).normal(size=(40, 3))
  clients = np.arange(40) % 4
  return tasks.from_arrays(x, (x[:, 0] > 0).astype(int), clients, model=network)
"""


def forget_user_code(monkeypatch) -> None:
  """Removes modules of users' files, as in another process."""
  for name in [name for name in sys.modules if user_code.is_module(name)]:
    monkeypatch.delitem(sys.modules, name)


@pytest.mark.exhaustive
def test_a_run_with_layers_of_ones_own_or_of_an_earlier_release_says_what_is_missing(
  tmp_path, monkeypatch, capsys
):
  (tmp_path / 'own.py').write_text(OWN_LAYER)
  folder = str(tmp_path / 'run')
  flags = ['--rounds=1', '--clients_per_round=2', f'--output_dir={folder}']
  assert train.main(['train.py', f'--task={tmp_path}/own.py:load', *flags]) == 0
  assert export.main(['export.py', folder, f'--output={tmp_path}/with_task']) == 0
  assert (tmp_path / 'with_task' / 'model.keras').exists()
  (tmp_path / 'own.py').unlink()
  forget_user_code(monkeypatch)
  capsys.readouterr()
  assert export.main(['export.py', folder, f'--output={tmp_path}/from_the_copy']) == 0
  assert "is gone: the copy '" in capsys.readouterr().err
  shutil.rmtree(f'{folder}/files')
  forget_user_code(monkeypatch)
  assert export.main(['export.py', folder, f'--output={tmp_path}/without']) == 2
  error = capsys.readouterr().err
  assert error.count('\n') == 1
  assert '--format=keras: Keras cannot load it' in error
  assert '..' not in error
  assert '--format=saved_model does without them' in error
  assert not (tmp_path / 'without').exists()
  flags = ['--format=saved_model', f'--output={tmp_path}/served']
  assert export.main(['export.py', folder, *flags]) == 0
  shutil.rmtree(f'{folder}/model')
  capsys.readouterr()
  assert export.main(['export.py', folder, f'--output={tmp_path}/old']) == 2
  error = capsys.readouterr().err
  assert error.count('\n') == 1
  assert 'stores no model, as release 0.2.0 and before did not' in error


@pytest.mark.exhaustive
def test_a_run_of_an_earlier_release_is_exported_with_its_data(run, tmp_path):
  folder = str(tmp_path / 'old')
  shutil.copytree(run / 'runs' / 'visits', folder)
  shutil.rmtree(f'{folder}/model')
  stored = export.export(tasks.load_run(str(run / 'runs' / 'visits')), 'npz', f'{tmp_path}/new')
  loaded = export.export(tasks.load_run(folder), 'npz', f'{tmp_path}/loaded')
  for name in ('task', 'source', 'round', 'weights', 'weight_names', 'input', 'file'):
    assert stored[name] == loaded[name]
  assert stored['validation'] == pytest.approx(loaded['validation'], abs=1e-6)
  one = dict(np.load(f'{tmp_path}/new/model.npz'))
  other = dict(np.load(f'{tmp_path}/loaded/model.npz'))
  np.testing.assert_equal(one, other)


@pytest.mark.exhaustive
def test_the_weights_that_were_asked_for_are_exported(run, monkeypatch, capsys):
  # Nothing is moved from another file system.
  monkeypatch.setattr(tempfile, 'tempdir', '/no/such/folder')
  folder = str(run / 'runs' / 'visits')
  assert export.main(['export.py', folder, '--format=npz', '--weights=theta']) == 0
  path = f'{folder}/export_npz/model.npz'
  assert capsys.readouterr().out.startswith(f'{path}: theta of round 6; validation: ')
  exported = np.load(path)
  np.testing.assert_equal(tuple(exported.values()), tasks.load_run(folder).weights)


@pytest.mark.exhaustive
def test_a_runs_task_is_loaded_from_any_folder_without_what_it_held_out(tmp_path, monkeypatch):
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
  last = run.rows[-1]['validation_loss']
  data = run.config['data']
  assert len(run.task().train.client_ids) == data['clients'] == 5 - data['unseen_clients']
  with open('there/my_task.py', 'a') as file:
    file.write('# Changed.\n')
  with pytest.warns(UserWarning, match=r"my_task.py', the file of the task, or a .* is used"):
    assert tasks.load_run('there/run').evaluate()['loss'] == pytest.approx(last, abs=1e-6)
  assert export.main(['export.py', 'there/run', '--output=again']) == 0  # It needs no data.


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


@pytest.mark.exhaustive
def test_a_full_disk_ends_the_command_in_one_line(run, monkeypatch, capsys):
  def full(*unused_arguments, **unused_options):
    raise tf.errors.ResourceExhaustedError(None, None, 'a; No space left on device')

  monkeypatch.setattr(tf.keras.Model, 'save', full)
  output = run / 'full'
  before = sorted(os.listdir(run))
  arguments = ['export.py', str(run / 'runs' / 'visits'), '--format=saved_model']
  assert export.main([*arguments, f'--output={output}']) == 1
  (line,) = capsys.readouterr().err.splitlines()[-1:]
  assert line.startswith(f'export.py: --output={output}: ')
  assert 'No space left on device' in line
  assert sorted(os.listdir(run)) == before


def test_the_best_weights_of_a_run_are_exported_on_request(tmp_path, capsys):
  """The run stops by itself: nothing is better by 2 than the accuracy before training."""
  folder = tmp_path / 'run'
  flags = ['--rounds=9', '--rounds_per_evaluation=1', '--keep_best', f'--output_dir={folder}']
  stop = ['--early_stop=accuracy', '--patience=1', '--min_delta=2']
  assert train.main(['train.py', '--task=digits', *flags, *stop]) == 0
  summary = json.loads((folder / 'summary.json').read_text())
  assert (summary['rounds'], summary['stopped_early'], summary['is_complete']) == (
    1,
    'early_stop',
    True,
  )
  best = summary['best']
  rows = tasks.load_run(str(folder)).rows
  accuracies = [row['validation_accuracy'] for row in rows]
  assert best['value'] == max(accuracies)
  assert rows[best['round']]['validation_accuracy'] == best['value']

  command = ['export.py', str(folder), '--format=npz', '--which=best']
  path = folder / 'checkpoints' / 'best.npz'
  kept_best = path.read_bytes()
  path.unlink()
  assert export.main(command) == 2
  assert 'train with --keep_best' in capsys.readouterr().err
  path.write_bytes(kept_best)
  assert export.main(command) == 0
  record = json.loads((folder / 'export_npz' / 'export.json').read_text())
  assert (record['round'], record['weights']) == (best['round'], 'the best weights')
  assert record['validation'] == {'validation_accuracy': best['value']}
  saved = np.load(folder / 'export_npz' / 'model.npz')
  weights = np.load(path)
  for number, name in enumerate(record['weight_names']):
    np.testing.assert_array_equal(saved[name], weights[f'weight_{number}'])
  # These weights have the accuracy that the run saw.
  run = tasks.load_run(str(folder))
  arrays = [saved[name] for name in record['weight_names']]
  assert run.evaluate(arrays)['accuracy'] == pytest.approx(best['value'], abs=1e-6)
  assert export.main([*command, '--weights=theta']) == 2
