"""The runs of the experiment on compositions: what chooses the rates, and what counts."""

from research.experiments import composition, frame
from tests.helpers import run_folders

COMMAND = ['composition.py', '--task=digits', '--seeds=0,1', '--results=table']
COMMAND += ['--output_dir=final_out']  # The folder of a stage is found in any folder.


def train(groups, label_by):
  """Stands in for training: a client rate of 0.1 and the least server rate are best."""
  for runs in groups.values():
    for run in runs:
      is_best = run.rates.client_learning_rate == 0.1 and run.rates.server_learning_rate in (
        0.01,
        0.3,
      )
      value = 0.9 if is_best else 0.5
      run_folders.make(
        run.output.output_dir,
        [0.1] * run.training.rounds + [value],
        test={'test_accuracy': value - 0.1 - run.what.seed / 100},
        **{name: v for name, v in run.flat().items() if name not in ('output_dir', 'rounds')},
      )
  return 0


def test_each_pair_is_tuned_by_itself_and_counts_with_other_seeds(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  given = []
  monkeypatch.setattr(
    frame, 'train_all', lambda groups, by: given.append(groups) or train(groups, by)
  )
  assert composition.main([*COMMAND, '--rounds=4', '--tuning_rounds=2']) == 0
  tuning, final = given
  assert len(tuning) == len(final) == 20
  assert sum(map(len, tuning.values())) == 5 * (3 * 2 + 3 * 3 * 3)
  every = [run for runs in tuning.values() for run in runs]
  assert {
    (run.what.seed, run.training.rounds, run.what.task_options['validation']) for run in every
  } == {(100, 2, 'clients')}
  for folder, runs in final.items():
    assert [run.what.seed for run in runs] == [0, 1]
    server = folder.rsplit('_', 1)[1]
    for run in runs:
      assert (run.rates.client_learning_rate, run.what.server_optimizer, run.training.rounds) == (
        0.1,
        server,
        4,
      )
      assert run.rates.server_learning_rate == (0.3 if server == 'sgd' else 0.01)
  text = (tmp_path / 'table.md').read_text()
  assert '| FedDyn | **79.50 ± 0.71** | **79.50 ± 0.71** |' in text
  assert '| AdaBest | Yogi | 0.1 | 0.01 |' in text


def test_runs_that_are_not_complete_are_left_out_and_counted(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  ends = [
    (0.5, {'algorithm': correction, 'seed': seed, 'rounds': rounds})
    for correction, seed, rounds in (('fed_avg', 0, 1), ('fed_avg', 1, 9), ('scaffold', 0, 9))
  ]
  rates = {'client_learning_rate': 0.1, 'server_learning_rate': 1.0}
  folder, test = tmp_path / 'final_out' / 'final', {'test_accuracy': 0.5}
  run_folders.each(folder, ends, test=test, server_optimizer='sgd', **rates)
  assert composition.main([*COMMAND, '--report_only']) == 0
  text = (tmp_path / 'table.md').read_text()
  assert 'were left out: none x SGD 1 of 2; SCAFFOLD x SGD 1 of 1.' in text
