"""The distribution of a metric over clients, from the files of runs."""

import dataclasses
import os

import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import client_distribution
from tff_adaptive.runs import groups as groups_lib


def make(folder, values, seed=0, **settings):
  """A run whose clients have these accuracies at the end."""
  run = run_folders.make(folder, [0.1, 0.2], seed=seed, **settings)
  os.makedirs(folder / client_distribution.FOLDER)
  for number, shift in ((5, 0.5), (10, 0.0)):
    lines = [f'unseen,"c,{i}",4,1.0,{value + shift}\n' for i, value in enumerate(values)]
    text = ''.join(['group,client,examples,loss,accuracy\n', 'train,a,4,1.0,0.25\n', *lines])
    path = folder / client_distribution.FOLDER / f'round_{number:06d}.csv'
    path.write_text(text)
  return run


def test_it_is_of_the_last_evaluation_of_each_run(tmp_path):
  found = [
    make(tmp_path / 'a', [0.2, 0.4], seed=0, algorithm='fed_avg'),
    make(tmp_path / 'b', [0.4, 0.6], seed=1, algorithm='fed_avg'),
    make(tmp_path / 'c', [0.9, float('nan'), 0.7], algorithm='fed_dyn'),
  ]
  made = client_distribution.build(groups_lib.group(found, ['algorithm']), 'accuracy', 'unseen')
  (table,) = made.tables
  assert table.heading == ['', 'mean', 'std', 'p10', 'p50', 'p90', 'worst tenth']
  assert [row[0] for row in table.rows] == ['FedAvg', 'FedDyn']
  assert table.rows[0][1] == '0.4000 ± 0.1414'
  assert table.rows[0][-1] == '0.3000 ± 0.1414'
  assert table.rows[1][1:3] == ['0.8000', '0.1000']
  lines = made.data.splitlines()
  assert lines[0] == 'label,value,share_of_clients'
  assert lines[1:5] == ['FedAvg,0.2,0.25', 'FedAvg,0.4,0.5', 'FedAvg,0.4,0.75', 'FedAvg,0.6,1']
  (axes,) = made.figure.axes
  assert [list(line.get_xdata()) for line in axes.lines] == [[0.2, 0.4, 0.4, 0.6], [0.7, 0.9]]


def test_runs_that_diverged_or_are_not_complete_are_said_to_be(tmp_path):
  found = [
    make(tmp_path / 'a', [0.2, 0.4], seed=0, algorithm='fed_avg'),
    make(tmp_path / 'b', [0.9, 0.9], seed=1, algorithm='fed_avg'),
    make(tmp_path / 'c', [0.7], algorithm='fed_dyn'),
  ]
  found[1].rows[-1]['validation_loss'] = float('nan')
  found[2].settings['rounds'] = 99
  made = client_distribution.build(groups_lib.group(found, ['algorithm']), 'accuracy', 'unseen')
  (table,) = made.tables
  assert table.rows[0] == ['FedAvg', *['diverged'] * 6]
  assert table.rows[1][1] == '0.7000'
  assert table.note.startswith(f'Not complete: 1 of 3 runs: {tmp_path / "c"} (')
  assert made.data.splitlines()[1:] == [
    '"FedAvg (n = 1, 1 diverged)",0.2,0.5',
    '"FedAvg (n = 1, 1 diverged)",0.4,1',
    'FedDyn,0.7,1',
  ]


@pytest.mark.parametrize(
  'metric, clients, error',
  [
    ('accuracy', 'heldout', "has no clients called 'heldout'"),
    ('recall', 'unseen', "has no metric 'recall', but loss, accuracy"),
  ],
)
def test_what_a_run_lacks_is_named(tmp_path, metric, clients, error):
  groups = {'mine': [make(tmp_path / 'a', [0.5])]}
  with pytest.raises(ValueError, match=error):
    client_distribution.build(groups, metric, clients)


def test_a_run_without_evaluations_by_client_is_named(tmp_path):
  groups = {'mine': [run_folders.make(tmp_path / 'a', [0.1, 0.2])]}
  with pytest.raises(ValueError, match='has no evaluations by client'):
    client_distribution.build(groups, 'accuracy', 'unseen')


@pytest.mark.parametrize(
  'change, error',
  [
    (
      lambda text: text.replace('unseen,"c,2",4,1.0,0.9\n', ''),
      'of its 2 clients is 0.3, in .* 0.5',
    ),
    (lambda text: text.replace('0.9', '0.8'), 'of its 3 clients is 0.466667, in metrics.csv it is'),
    (lambda text: text[:-3], 'cannot be used'),
    (lambda text: text.replace('4,1.0,0.9', '4,1.0'), 'cannot be used'),
    (lambda text: text.replace('4,1.0,0.9', '4,1.0,x'), 'cannot be used: could not convert'),
    (lambda text: text.replace('0.9', '9' * 200_000), 'cannot be used: field larger than'),
    (lambda text: '', "has no clients called 'unseen'"),
    (lambda text: text.replace('group', 'troup'), "cannot be used: 'group'"),
  ],
)
def test_a_file_that_lost_or_changed_clients_is_refused(tmp_path, change, error):
  run = make(tmp_path / 'a', [0.2, 0.4, 0.9])
  rows = [*run.rows, {'round': 10.0, 'clients_unseen_accuracy_mean': 0.5}]
  groups = {'mine': [dataclasses.replace(run, rows=rows)]}
  client_distribution.build(groups, 'accuracy', 'unseen')
  path = tmp_path / 'a' / client_distribution.FOLDER / 'round_000010.csv'
  path.write_text(change(path.read_text()))
  with pytest.raises(ValueError, match=f'round_000010.csv .*{error}'):
    client_distribution.build(groups, 'accuracy', 'unseen')
