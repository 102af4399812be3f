"""A metric over clients: what each statistic is, by hand; reports from the files of runs."""

import os
import typing

import numpy as np
import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import client_distribution
from tff_adaptive.runs import groups as groups_lib

# Of 11 clients, the last without anything to divide by: correct answers and examples.
SUMS = np.array(
  [[1, 1], [3, 4], [5, 10], [2, 8], [0, 2], [7, 7], [1, 10], [9, 10], [4, 5], [6, 9], [0, 0]],
  np.float64,
)
VALUES = np.array([1, 0.75, 0.5, 0.25, 0, 1, 0.1, 0.9, 0.8, 6 / 9])


def make(folder, values, seed=0, **settings):
  """A run whose clients have these accuracies at the end."""
  run = run_folders.make(folder, [0.1, 0.2], seed=seed, **settings)
  os.makedirs(folder / client_distribution.FOLDER)
  for number, shift in ((0, 0.5), (1, 0.0), (2, 0.25)):
    lines = [f'unseen,"c,{i}",4,1.0,{value + shift}\n' for i, value in enumerate(values)]
    text = ''.join(['group,client,examples,loss,accuracy\n', 'train,a,4,1.0,0.25\n', *lines])
    path = folder / client_distribution.FOLDER / f'round_{number:06d}.csv'
    path.write_text(text)
  return run


def test_it_is_of_the_last_evaluation_of_each_run_up_to_its_last_row(tmp_path):
  runs = [
    make(tmp_path / 'a', [0.2, 0.4], seed=0, algorithm='fed_avg'),
    make(tmp_path / 'b', [0.4, 0.6], seed=1, algorithm='fed_avg'),
    make(tmp_path / 'c', [0.9, float('nan'), 0.7], algorithm='fed_dyn'),
  ]
  report = client_distribution.build(groups_lib.group(runs, ['algorithm']), 'accuracy', 'unseen')
  (table,) = report.tables
  assert table.heading == ['', 'mean', 'std', 'p10', 'p50', 'p90', 'worst tenth']
  assert [row[0] for row in table.rows] == ['FedAvg', 'FedDyn']
  assert table.rows[0][1] == '0.4000 ± 0.1414'
  assert table.rows[0][-1] == '0.3000 ± 0.1414'
  assert table.rows[1][1:3] == ['0.8000', '0.1000']
  lines = report.data.splitlines()
  assert lines[0] == 'label,value,share_of_clients'
  assert lines[1:5] == ['FedAvg,0.2,0.25', 'FedAvg,0.4,0.5', 'FedAvg,0.4,0.75', 'FedAvg,0.6,1']
  (axes,) = report.figure.axes
  xs = [0.2, 0.2, 0.4, 0.4, 0.4, 0.4, 0.6, 0.6], [0.7, 0.7, 0.9, 0.9]  # Two points for each step.
  assert [list(line.get_xdata()) for line in axes.lines] == [*xs]
  assert list(axes.lines[1].get_ydata()) == [0.0, 0.5, 0.5, 1.0]
  assert (axes.get_xlabel(), table.title) == ('accuracy', 'accuracy over clients (unseen)')


def test_runs_that_diverged_or_are_not_complete_are_said_to_be(tmp_path):
  runs = [
    make(tmp_path / 'a', [0.2, 0.4], seed=0, algorithm='fed_avg'),
    make(tmp_path / 'b', [0.9, 0.9], seed=1, algorithm='fed_avg'),
    make(tmp_path / 'c', [0.7], algorithm='fed_dyn'),
  ]
  runs[1].rows[-1]['validation_loss'] = float('nan')
  runs[2].settings['rounds'] = 99
  groups = groups_lib.group(runs, ['algorithm'])
  report = client_distribution.build(groups, 'accuracy', 'unseen', title='Mine')
  (table,) = report.tables
  assert {report.title, table.title, report.figure.get_suptitle()} == {'Mine'}
  assert table.rows[0] == ['FedAvg', *['diverged'] * 6]
  assert table.rows[1][1] == '0.7000'
  assert table.note == (
    f'Diverged: 1 of 3 runs: {tmp_path / "b"}.'
    f' Not complete: 1 of 3 runs: {tmp_path / "c"} (1 of 99 rounds).'
  )
  assert report.data.splitlines()[1:] == [
    '"FedAvg (n = 1, 1 diverged)",0.2,0.5',
    '"FedAvg (n = 1, 1 diverged)",0.4,1',
    'FedDyn,0.7,1',
  ]


class Lacking(typing.NamedTuple):
  """What is asked of a file, and how it ends."""

  metric: str = 'accuracy'
  clients: str = 'unseen'
  end: str = '4,1.0,0.4'
  message: str = ''


@pytest.mark.parametrize(
  'lacking',
  [
    Lacking(clients='heldout', message="has no clients called 'heldout'"),
    Lacking(metric='recall', message="has no metric 'recall', but loss, accuracy"),
    Lacking(end='4,1.0'),
    Lacking(end='4,1.0,x'),
    Lacking(end='4,1.0,' + '9' * 200_000),
  ],
  ids=['clients', 'metric', 'cell', 'number', 'long'],
)
def test_what_a_file_lacks_is_named(tmp_path, lacking):
  run = make(tmp_path / 'a', [0.4])
  path = tmp_path / 'a' / client_distribution.FOLDER / 'round_000001.csv'
  path.write_text(path.read_text().replace('4,1.0,0.4', lacking.end))
  with pytest.raises(ValueError, match=rf'round_000001\.csv cannot be used: .*{lacking.message}'):
    client_distribution.build({'mine': [run]}, lacking.metric, lacking.clients)
  path.unlink()
  path.with_name('round_000000.csv').unlink()
  with pytest.raises(ValueError, match='has no evaluations by client'):
    client_distribution.build({'mine': [run]}, lacking.metric, lacking.clients)


def test_every_statistic_is_what_it_is_called():
  statistics = client_distribution.describe(SUMS, 'accuracy')
  assert list(statistics) == list(client_distribution.STATISTICS)
  assert statistics['by_examples'] == pytest.approx(38 / 66)
  assert statistics['mean'] == pytest.approx(VALUES.sum() / 10)
  assert statistics['std'] == pytest.approx(np.sqrt(np.mean((VALUES - VALUES.mean()) ** 2)))
  ordered = np.sort(VALUES)
  assert statistics['p10'] == pytest.approx(ordered[0] + 0.9 * (ordered[1] - ordered[0]))
  assert statistics['p50'] == pytest.approx((ordered[4] + ordered[5]) / 2)
  assert statistics['p90'] == pytest.approx(ordered[8] + 0.1 * (ordered[9] - ordered[8]))
  assert statistics['worst_tenth'] == 0.0


def test_the_worst_tenth_is_rounded_up_and_is_at_the_other_end_for_errors():
  sums = np.stack([np.arange(11.0), np.ones(11)], 1)
  assert client_distribution.describe(sums, 'recall_at_5')['worst_tenth'] == 0.5
  for metric in ('loss', 'mse', 'mean_absolute_error'):
    assert client_distribution.describe(sums, metric)['worst_tenth'] == 9.5


def test_nobody_and_infinite_losses():
  assert np.isnan(list(client_distribution.describe(SUMS[-1:], 'loss').values())).all()
  with np.errstate(all='raise'):
    statistics = client_distribution.describe(np.array([[np.inf, 1], [1, 1], [0, 0]]), 'loss')
  assert statistics['worst_tenth'] == statistics['mean'] == np.inf
