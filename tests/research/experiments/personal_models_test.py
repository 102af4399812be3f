"""The experiment beside PFLlib's leaderboard: its smoke run, its turns, its table."""

import pandas as pd
import pytest

from research.experiments import personal_models
from tests.helpers import fakes


@pytest.mark.exhaustive
def test_the_smoke_run_trains_in_turns_and_goes_on(tmp_path, monkeypatch):
  trained = []
  train = personal_models.Bench.train

  def noted(self, title, rounds, folder):
    trained.append((title, rounds))
    train(self, title, rounds, folder)

  monkeypatch.setattr(personal_models.Bench, 'train', noted)
  places = [f'--results={tmp_path}/found', f'--runs={tmp_path}/runs']
  command = ['personal_models.py', '--smoke', '--methods=FedAvg,FedPer', *places]
  with fakes.no_figures():
    assert personal_models.main(command) == 0
    assert personal_models.main(command) == 0  # All is there.
  assert trained == [('FedAvg', 1), ('FedPer', 1), ('FedAvg', 2), ('FedPer', 2)]
  table = pd.read_csv(tmp_path / 'found.csv')
  assert [*table['method'].unique()] == ['FedAvg', 'FedPer']
  assert [*table['round'].unique()] == [0, 1, 2]
  assert '| FedPer | 2 |' in (tmp_path / 'found.md').read_text()


def test_the_table_has_the_last_and_the_best_accuracy(tmp_path):
  rows = [('FedPer', 0, 10, 97.0), ('FedPer', 0, 20, 96.0), ('FedPer', 1, 20, 98.0)]
  table = pd.DataFrame(rows, columns=['method', 'seed', 'round', 'accuracy'])
  personal_models._FLAGS(['personal_models.py', f'--results={tmp_path}/found'])
  text = '\n'.join(personal_models.report(table))
  assert '| FedPer | 20 | 97.00 | 97.50 | 97.44 ± 0.06 |  |' in text
  # Beside PFLlib's own program, after as many rounds as both have.
  program = [('FedPer', 10, 94.0), ('FedPer', 15, 95.0), ('FedAvg', 20, 50.0)]
  rows_of_program = pd.DataFrame(program, columns=['method', 'round', 'accuracy'])
  rows_of_program.to_csv(tmp_path / 'pfllib.csv', index=False)
  text = '\n'.join(personal_models.report(table))
  assert '| 97.44 ± 0.06 | round 10: 97.00, 94.00 |' in text


def test_rows_of_runs_that_are_gone_stay_unless_there_is_a_longer_run():
  columns = ['method', 'seed', 'round', 'accuracy']
  before = [('FedAvg', 0, 20, 1.0), ('FedPer', 0, 10, 2.0), ('FedPer', 1, 30, 3.0)]
  of_runs = [('FedPer', 0, 10, 4.0), ('FedPer', 1, 10, 5.0), ('FedRep', 0, 10, 6.0)]
  table = personal_models.with_rows_of_others(
    pd.DataFrame(of_runs, columns=columns), pd.DataFrame(before, columns=columns)
  )
  assert table['accuracy'].tolist() == [1.0, 4.0, 3.0, 6.0]


def test_a_run_that_was_stopped_before_its_first_row_has_none(tmp_path):
  folder = tmp_path / 'fed_avg_seed_0'
  assert personal_models._done(str(folder)) == 0
  folder.mkdir()
  (folder / 'metrics.csv').touch()
  assert personal_models._done(str(folder)) == 0
  (folder / 'metrics.csv').write_text('round,loss\n0,1.0\n1,0.5\n')
  assert personal_models._done(str(folder)) == 1


@pytest.mark.parametrize(
  ('flags', 'words'),
  [
    (['--methods=FedPerr'], 'FedPerr is none of FedAvg'),
    (['--seeds=one'], 'give whole numbers'),
    (['--report_only'], 'has no run with an evaluation'),
  ],
)
def test_bad_flags_are_refused(flags, words, tmp_path, capsys):
  places = [f'--results={tmp_path}/found', f'--runs={tmp_path}/runs']
  assert personal_models.main(['personal_models.py', *places, *flags]) == 2
  assert words in capsys.readouterr().err
