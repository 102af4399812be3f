"""scripts/train.py goes on from the weights of a run, or of a file exported from it."""

import hashlib
import os
import shutil

import numpy as np

import tff_adaptive_tasks as tasks
from scripts import export, train
from tests.helpers import fakes
from tff_adaptive.runs import run as run_lib

FLAGS = ('--task=least_squares', '--algorithm=fed_avg', '--rounds=2', '--rounds_per_evaluation=1')


@fakes.no_figures()
def test_a_run_starts_where_another_ended_and_notices_that_its_start_has_changed(tmp_path, capfd):
  """Of a file the bytes count, of a run the weights that are read."""
  first = str(tmp_path / 'first')
  model = str(tmp_path / 'npz')
  copied = str(tmp_path / 'start')
  runs = []
  commands = []
  assert train.main(['train.py', *FLAGS, f'--output_dir={first}']) == 0
  assert export.main(['export.py', first, '--format=npz', f'--output={model}']) == 0
  shutil.copytree(first, copied)
  file = os.path.join(model, 'model.npz')
  for start in (copied, model):  # The folder of an export stands for its file.
    output = tmp_path / f'from_{len(runs)}'
    given = ['train.py', *FLAGS, f'--initial_weights={start}', f'--output_dir={output}']
    assert train.main(given) == 0
    runs.append(tasks.load_run(str(output)))
    commands.append([*given, '--rounds=3'])
    assert runs[-1].rows[0]['validation_loss'] == runs[0].rows[0]['validation_loss']
  assert runs[0].rows[0]['validation_loss'] == run_lib.load_run(first).rows[-1]['validation_loss']
  np.testing.assert_equal(runs[0].weights, runs[1].weights)
  with open(file, 'rb') as content:
    digest = hashlib.sha256(content.read()).hexdigest()
  assert runs[1].config['files']['initial_weights'] == {'path': file, 'sha256': digest}
  np.savez(file, *(2 * weight for weight in tasks.load_run(first).weights))
  shutil.rmtree(copied)
  shutil.copytree(runs[0].folder, copied)
  capfd.readouterr()
  for command, run, kind, path in zip(commands, runs, ('run', 'file'), (copied, file)):
    assert train.main(command) == 2
    error = capfd.readouterr().err
    assert f"the {kind} of --initial_weights, '{path}', has changed since" in error
    assert run_lib.load_run(run.folder).config == run.config


def test_a_start_that_does_not_fit_is_refused_and_nothing_written(tmp_path, capfd):
  output = tmp_path / 'run'
  arguments = [*FLAGS, f'--initial_weights={tmp_path}/none', f'--output_dir={output}']
  assert train.main(['train.py', *arguments]) == 2
  message = 'must be the folder of a run or of a keras or npz export'
  assert message in capfd.readouterr().err
  assert not output.exists()
