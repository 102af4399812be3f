"""scripts/train.py goes on from the weights of a run, or of a file exported from it."""

import hashlib
import json
import os
import shutil

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from scripts import export, train
from tff_adaptive.runs import run as run_lib

FLAGS = ('--task=digits', '--algorithm=fed_avg', '--rounds=2', '--rounds_per_evaluation=1')


@pytest.fixture(scope='module')
def first(tmp_path_factory):
  folder = tmp_path_factory.mktemp('runs') / 'first'
  assert train.main(['train.py', *FLAGS, f'--output_dir={folder}']) == 0
  return str(folder)


def test_a_run_starts_where_another_ended(first, tmp_path):
  model = str(tmp_path / 'npz')
  assert export.main(['export.py', first, '--format=npz', f'--output={model}']) == 0
  last = run_lib.load_run(first).rows[-1]
  weights = []
  for start in (first, os.path.join(model, 'model.npz')):
    folder = str(tmp_path / f'second_{len(weights)}')
    arguments = ['train.py', *FLAGS, f'--initial_weights={start}', f'--output_dir={folder}']
    assert train.main(arguments) == 0
    assert run_lib.load_run(folder).rows[0]['validation_loss'] == last['validation_loss']
    weights.append(tasks.load_run(folder).weights)
  for a, b in zip(*weights):
    np.testing.assert_array_equal(a, b)


def test_a_start_that_does_not_fit_is_refused_and_nothing_written(first, tmp_path, capfd):
  np.savez(tmp_path / 'other.npz', np.ones([3, 2], np.float32))
  output = tmp_path / 'run'
  for start, message in (
    (tmp_path / 'none', 'give the folder of a run, a .keras or an .npz file'),
    (tmp_path, 'give the folder of a run'),
    (tmp_path / 'other.npz', 'has 1 weights, the model has 4'),
  ):
    arguments = [*FLAGS, f'--initial_weights={start}', f'--output_dir={output}']
    assert train.main(['train.py', *arguments]) == 2
    assert message in capfd.readouterr().err
    assert not output.exists()


def test_a_start_that_has_changed_is_not_gone_on_from(first, tmp_path, capfd):
  """Of a file the bytes count, of a run the weights that are read."""
  start, file = tmp_path / 'start', tmp_path / 'weights.npz'
  shutil.copytree(first, start)
  np.savez(file, *tasks.load_run(first).weights)
  commands, configs = [], []
  for path in (file, start):
    folder = tmp_path / f'from_{path.stem}'
    given = [*FLAGS, f'--initial_weights={path}', f'--output_dir={folder}']
    assert train.main(['train.py', *given]) == 0
    commands.append(['train.py', *given, '--rounds=3'])
    configs.append(folder / 'config.json')
  recorded = json.loads(configs[0].read_text())['files']['initial_weights']
  assert recorded == {
    'path': str(file),
    'sha256': hashlib.sha256(file.read_bytes()).hexdigest(),
  }
  np.savez(file, *(2 * weight for weight in tasks.load_run(first).weights))
  more = ['train.py', *FLAGS, '--rounds=3', f'--output_dir={start}']
  assert train.main(more) == 0
  capfd.readouterr()
  for command, config, kind, path in zip(commands, configs, ('file', 'run'), (file, start)):
    before = config.read_bytes()
    assert train.main(command) == 2
    error = capfd.readouterr().err
    assert f"the {kind} of --initial_weights, '{path}', was changed since" in error
    assert config.read_bytes() == before
