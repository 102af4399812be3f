"""The table of the comparison: runs that diverged, stopped early or were not evaluated yet."""

import math

import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import tables
from tff_adaptive.runs import run as run_lib

COLUMN = 'validation_accuracy'


def _table(runs, column=COLUMN):
  made = tables.comparison_table({'a': runs}, column)
  _, _, _, mean, last, _ = made.rows[0]
  return mean, last, made.note


def _seeds(folder, curves, column=COLUMN, rounds=4):
  return [
    run_folders.make(folder / str(seed), values, column, every=2, seed=seed, rounds=rounds)
    for seed, values in enumerate(curves)
  ]


def test_the_initial_model_is_the_last_of_no_run_where_others_were_evaluated(tmp_path):
  runs = _seeds(tmp_path, [[0.1, 0.4, 0.8], [0.1, 0.6, 0.6], [0.1]])
  assert _table(runs) == (
    '0.6000 ± 0.0000 (2 of 3 runs)',
    '0.7000 ± 0.1414 (2 of 3 runs)',
    f'Not complete: 1 of 3 runs: {tmp_path / "2"} (0 of 4 rounds).',
  )
  assert _table(runs[2:])[:2] == ('', '0.1000')
  made = tables.comparison_table({'a': runs[:2], 'b': runs[2:]}, COLUMN)
  assert [row[4] for row in made.rows] == ['0.7000 ± 0.1414', '']


@pytest.mark.parametrize('end', [math.nan, math.inf, 500.0])
def test_an_accuracy_of_a_run_whose_loss_diverged_is_in_no_mean(tmp_path, end):
  runs = _seeds(tmp_path, [[0.1, 0.4, 0.8], [0.1, 0.6, 0.6]])
  for row, loss in zip(runs[1].rows, (2.0, 2.0, 2.0, 2.0, end)):
    row['validation_loss'] = loss
  assert _table(runs) == ('nan ± nan', 'nan ± nan', f'Diverged: 1 of 2 runs: {tmp_path / "1"}.')
  assert _table(runs[:1]) == ('0.6000', '0.8000', '')


def test_a_loss_that_is_finite_and_diverged_is_in_no_mean(tmp_path):
  runs = _seeds(tmp_path, [[2.0, 1.0, 1.0], [2.0, 1.0, 500.0]], 'validation_loss')
  assert _table(runs, 'validation_loss')[:2] == ('nan ± nan', 'nan ± nan')


def test_small_losses_are_told_apart(tmp_path):
  runs = _seeds(tmp_path, [[1.0, 1.2e-6, 1.4e-6]], 'validation_loss')
  assert _table(runs, 'validation_loss')[:2] == ('1.3e-06', '1.4e-06')


def test_rows_hold_means_deviations_and_rounds_to_a_target(tmp_path):
  one = _seeds(tmp_path / 'a', [[0.0, 0.4, 0.8], [0.0, 0.6, 0.6]])
  groups = {'a': one, 'b': _seeds(tmp_path / 'b', [[0.1, 0.2, 0.3]])}
  # The initial model, round 0, is not in the mean: (0.4 + 0.8) / 2 and (0.6 + 0.6) / 2.
  assert tables.comparison_table(groups, COLUMN, target=0.6).rows == [
    ['a', '2', '4', '0.6000 ± 0.0000', '0.7000 ± 0.1414', '3 ± 1', '0.5000'],
    ['b', '1', '4', '0.2500', '0.3000', 'not reached', '0.5000'],
  ]
  table = tables.comparison_table(groups, COLUMN, target=0.7)
  assert table.rows[0][5] == '4 (reached by 1 of 2 seeds)'
  with pytest.raises(ValueError, match=r"no values of 'val_acc' .*it has: .*validation_accuracy"):
    tables.comparison_table(groups, 'val_acc')


def test_the_heading_says_over_how_many_rounds_and_evaluations_the_mean_is(tmp_path):
  a, b = ([run_folders.make(tmp_path / str(n), [0.1] * n, every=2)] for n in (2, 4))
  for groups, words in (
    ({'a': a}, 'mean of last 2 rounds (1 evaluation)'),
    ({'a': a, 'b': b}, 'mean of last 2 to 6 rounds (1 to 3 evaluations)'),
  ):
    assert tables.comparison_table(groups, COLUMN).heading[3].endswith(words)
  assert tables.comparison_table({'a': a}, 'megabytes_up').heading[3].endswith('last 2 rounds')


def _of(metric, *columns):
  config = {'settings': {}, 'metric': metric}
  return run_lib.Run('x', config, [{'round': 0.0, **dict.fromkeys(columns, 1.0)}])


@pytest.mark.parametrize(
  'columns, chosen',
  [
    ('validation_loss validation_read validation_accuracy train_accuracy', 'accuracy'),
    ('validation_loss validation_recall_at_5 validation_precision', 'recall_at_5'),
    ('validation_loss train_error', 'loss'),
  ],
)
def test_without_a_metric_it_is_accuracy_another_or_the_loss(columns, chosen):
  run = _of(None, *columns.split())
  assert tables.default_metric([run]) == f'validation_{chosen}'
  other = _of(None, 'validation_loss', 'validation_other')
  assert tables.default_metric([run, other]) == 'validation_loss'
  with pytest.raises(ValueError, match='name a column'):
    tables.default_metric([run, _of(None, 'train_loss')])


@pytest.mark.parametrize(
  'metrics, chosen',
  [
    (['nll'], 'nll'),
    (['loss'], 'loss'),
    (['nll', None], 'nll'),
    (['nll', 'loss'], 'accuracy'),  # Two tasks: what they share.
    (['recall'], 'accuracy'),  # There is no such column.
  ],
)
def test_the_metric_that_the_task_is_judged_by_counts(metrics, chosen):
  names = [f'validation_{name}' for name in ('loss', 'accuracy', 'nll')]
  assert tables.default_metric([_of(m, *names) for m in metrics]) == f'validation_{chosen}'
