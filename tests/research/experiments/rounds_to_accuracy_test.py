"""research/experiments/rounds_to_accuracy.py on runs that are written by hand."""

import json
import os

import pytest

from research.experiments import rounds_to_accuracy
from scripts.cli import resolve

_CELL = ('--fractions=0.1', '--epochs=5', '--batch_sizes=10')


def _begin(folder, rate, accuracies):
  """Writes the run of a cell, as scripts/train.py does, with an accuracy for each round."""
  os.makedirs(folder)
  split = os.path.basename(folder).split('_')[2]
  resolved = resolve.resolve(
    task='mnist_2nn',
    task_option=[f'split={split}'],
    algorithm='fed_avg',
    rounds=len(accuracies) - 1,
    clients_per_round=10,
    client_epochs=5,
    batch_size=10,
    client_learning_rate=rate,
    rounds_per_evaluation=1,
    output_dir='elsewhere',
  ).flat()
  with open(os.path.join(folder, 'config.json'), 'w') as file:
    more = {'data': {'source': '/a/mnist.npz'}, 'versions': {}, 'started': '2026-11-21T'}
    more.update(run_id='x', changes=[])
    json.dump({'settings': resolved, **more}, file)
  with open(os.path.join(folder, 'metrics.csv'), 'w') as file:
    file.write('round,validation_accuracy,seconds_round\n')
    file.writelines(f'{t},{accuracy},1\n' for t, accuracy in enumerate(accuracies))


@pytest.fixture
def run(tmp_path, monkeypatch):
  """Runs the script on a folder with two finished runs of rate 0.05, and trains nothing."""
  monkeypatch.setattr(rounds_to_accuracy.frame.shared_runs, 'train_all', lambda jobs, _: 0)
  # The names say no rate.
  _begin(tmp_path / 'runs' / 'mnist_2nn_iid_C0.1_E5_B10_seed0', 0.05, [0.1, 0.98])
  _begin(tmp_path / 'runs' / 'mnist_2nn_shards_C0.1_E5_B10_seed0', 0.05, [0.1, 0.5, 0.98])

  def main(*arguments):
    places = [f'--output_dir={tmp_path}/runs', f'--results={tmp_path}/table']
    return rounds_to_accuracy.main(['rounds_to_accuracy.py', *places, *_CELL, *arguments])

  return main


def test_finished_runs_are_reported_under_the_rate_they_had(run, tmp_path):
  assert run('--learning_rates=0.05') == 0
  assert '| 0.1, 5, 10 | 0.05 | 300 | 1 | 2 |' in (tmp_path / 'table.md').read_text()


@pytest.mark.parametrize('more', [(), ('--report_only',)])
def test_finished_runs_of_another_rate_are_refused(run, tmp_path, capsys, more):
  assert run('--learning_rates=0.5', *more) == 2
  error = capsys.readouterr().err
  assert '--client_learning_rate was 0.05 and is now 0.5' in error
  assert 'another --output_dir' in error
  assert not (tmp_path / 'table.md').exists()


@pytest.mark.parametrize(
  'flag',
  ['--limits=', '--limits=5,2', '--limits=x', '--batch_sizes=0', '--batch_sizes=x', '--epochs=x'],
)
def test_bad_input_is_reported_in_one_line(run, capsys, flag):
  assert run('--learning_rates=0.05', flag) == 2
  error = capsys.readouterr().err
  assert error.startswith(f'rounds_to_accuracy.py: {flag}: give ')
  assert error.count('\n') == 1


def test_a_run_that_was_ended_before_its_first_row_counts_as_not_begun(run, tmp_path, capsys):
  os.truncate(tmp_path / 'runs' / 'mnist_2nn_iid_C0.1_E5_B10_seed0' / 'metrics.csv', 0)
  assert run('--learning_rates=0.05', '--report_only') == 0
  assert '| 0.1, 5, 10 | 0.05 | 300 |  | 2 |' in (tmp_path / 'table.md').read_text()
