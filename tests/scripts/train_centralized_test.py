"""scripts/train_centralized.py, as a user runs it."""

import json
import subprocess
import types

import pytest

from scripts import train_centralized
from tests.helpers import fakes, fresh, run_folders
from tff_adaptive_tasks import catalog


def _centralized(folder, *more):
  flags = ['--task=synthetic', '--task_option=num_clients=3', '--optimizer=adam']
  flags += ['--learning_rate=0.01', '--batch_size=50', *more]
  with fakes.no_figures():
    return train_centralized.main(['train_centralized.py', f'--output_dir={folder}', *flags])


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """The folder of a complete run."""
  folder = tmp_path_factory.mktemp('runs') / 'whole'
  assert _centralized(folder, '--epochs=3') == 0
  return folder


def test_a_run_learns_and_what_is_complete_stands_for_the_same_settings_only(whole, capsys):
  rows = fakes.rows(whole / 'adam_0.01')
  assert float(rows[-1]['validation_accuracy']) > float(rows[0]['validation_accuracy']) + 0.3
  assert (whole / 'centralized.md').exists()
  before = (whole / 'adam_0.01' / 'config.json').read_bytes()
  assert _centralized(whole, '--epochs=2') == 2
  assert 'has done 3 rounds already' in capsys.readouterr().err
  assert (whole / 'adam_0.01' / 'config.json').read_bytes() == before
  assert _centralized(whole, '--epochs=3') == 0
  assert '| centralized | 1 | 3 |' in capsys.readouterr().out
  for flag, words in (
    ('--seed=1', '--seed was 0 and is now 1'),
    ('--task=least_squares', "--task was 'synthetic' and is now 'least_squares'"),
    ('--tau=0.5', '--tau was 0.001 and is now 0.5'),
  ):
    assert _centralized(whole, '--epochs=3', flag) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert 'another folder' in captured.err
    assert captured.out == ''


def test_a_run_resumes_to_the_same_numbers_while_its_file_is_the_same(
  whole, tmp_path, monkeypatch, capsys
):
  text = 'import tff_adaptive_tasks as tasks\ndef load(data_dir, seed, num_clients: int):\n'
  text += '  return tasks.load("synthetic", seed=seed, num_clients=num_clients)\n'
  monkeypatch.chdir(tmp_path)
  path = f'{tmp_path}/mine.py'
  for named, more, epochs, code in (
    (path, '', 2, 0),
    (path, '# Changed.\n', 2, 2),
    (path, '# Changed.\n', 3, 2),
    ('mine.py', '', 3, 0),  # The same file.
  ):
    (tmp_path / 'mine.py').write_text(text + more)
    assert _centralized('x', f'--task={named}:load', f'--epochs={epochs}') == code
  assert f"the file of --task, '{path}', has changed since" in capsys.readouterr().err
  assert fakes.rows('x/adam_0.01') == fakes.rows(whole / 'adam_0.01')
  with open('x/adam_0.01/config.json') as file:
    assert json.load(file)['changes'][0]['rounds'] == [2, 3]


def test_optimizers_keep_their_state_and_a_task_without_accuracy_says_no_more_than_its_table(
  tmp_path,
):
  command = [*fresh.python(), train_centralized.__file__, '--task=least_squares', '--epochs=2']
  command += ['--optimizer=sgd,sgdm', '--learning_rate=0.1', f'--output_dir={tmp_path}/x']
  command.append('--task_option=num_clients=1')  # Its rows are one batch.
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  for words in ('validation loss', '| optimizer=sgdm |', '| optimizer=sgd |'):
    assert words in done.stdout
  settings = json.loads((tmp_path / 'x' / 'sgd_0.1' / 'config.json').read_text())['settings']
  assert settings['batch_size'] == catalog.sizes('least_squares')['batch_size']
  # Of one step an epoch the first is that of SGD, the second has the momentum of the first.
  sgd, sgdm = (fakes.rows(tmp_path / 'x' / f'{name}_0.1') for name in ('sgd', 'sgdm'))
  assert float(sgd[1]['validation_loss']) == float(sgdm[1]['validation_loss'])
  assert sgd[2]['validation_loss'] != sgdm[2]['validation_loss']
  assert 'Exception ignored' not in done.stderr  # TFF's own clean-up.
  assert 'Traceback' not in done.stderr


def test_what_diverges_is_named_and_a_signal_ends_all(monkeypatch, tmp_path, capsys):
  def train(record, task, clients, stop):
    run_folders.make(record.settings['output_dir'], [0.1, 0.2])
    stop.exit_code = 143
    return result

  result = types.SimpleNamespace(is_complete=True, summary={'ends_without_update': True})
  result.summary['rounds_without_update'] = 2
  monkeypatch.setattr(train_centralized, '_train', train)
  assert _centralized(tmp_path / 'x', '--epochs=2') == 1
  out, err = capsys.readouterr()
  assert out.endswith(f'\nDiverged: {tmp_path}/x/adam_0.01\n')
  assert 'train_centralized.py: all clients diverged in 2 rounds' in err
  result.is_complete = False
  assert _centralized(tmp_path / 'y', '--epochs=2', '--learning_rate=1,2') == 143
  error = capsys.readouterr().err
  assert error.endswith('adam_1\nStopped; the same command resumes from here.\n')


@pytest.mark.parametrize(
  ('flags', 'words'),
  [
    ('--task=digit', 'did you mean'),
    ('--optimizer=adamw', 'adam'),
    ('--optimizer=', "unknown optimizer ''"),
    ('--learning_rate=', "--learning_rate must be a number, found ''"),
    ('--learning_rate=0.1,0.10', 'share the folder'),
    ('--epochs=0', '1 or more'),
    ('--optimizer=sgd,sgdm --tau=0.1', 'no meaning for --optimizer=sgd,sgdm: leave it out'),
    ('--batch_size=4294967296', 'at most 2147483647'),
    ('--learning_rate=1e300', 'float32'),
    ('--data_dir=/tmp', 'has no files'),
  ],
)
def test_centralised_refuses_bad_input(tmp_path, capsys, flags, words):
  arguments = ['train_centralized.py', f'--output_dir={tmp_path / "x"}', *flags.split()]
  assert train_centralized.main(arguments) == 2
  assert words in capsys.readouterr().err.lower()
  assert not (tmp_path / 'x').exists()
