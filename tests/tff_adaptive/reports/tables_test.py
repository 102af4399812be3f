"""The table of the comparison: runs that diverged, stopped early or were not evaluated yet."""

import dataclasses
import math

import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import tables
from tff_adaptive.runs import run as run_lib, summary

COLUMN = 'validation_accuracy'


def _table(runs, column=COLUMN):
  report = tables.comparison_table({'a': runs}, column)
  _, _, _, mean, last, _ = report.rows[0]
  return mean, last, report.note


def _seeds(folder, curves, column=COLUMN, rounds=4):
  runs = [
    run_folders.make(folder / str(seed), values, column, every=2, seed=seed, rounds=rounds)
    for seed, values in enumerate(curves)
  ]
  return [dataclasses.replace(run, window=rounds) for run in runs]


def test_a_run_that_is_not_complete_is_named_and_one_without_values_refused(tmp_path):
  runs = _seeds(tmp_path, [[0.1, 0.4, 0.8], [0.1, 0.4], [0.1]])
  assert _table(runs[:2]) == (
    '0.5000 ± 0.1414',
    '0.6000 ± 0.2828',
    f'Not complete: 1 of 2 runs: {tmp_path / "1"} (2 of 4 rounds).',
  )
  with pytest.raises(ValueError, match=r'/2 has no values of .* after round 0'):
    _table(runs)


def test_a_note_names_three_runs_and_says_whether_there_are_more(tmp_path):
  runs = _seeds(tmp_path, 4 * [[0.1, 0.4]])
  names = ', '.join(f'{tmp_path / str(i)} (2 of 4 rounds)' for i in range(3))
  assert _table(runs[:3])[2] == f'Not complete: 3 of 3 runs: {names}.'
  assert _table(runs)[2] == f'Not complete: 4 of 4 runs: {names} and others.'


@pytest.mark.parametrize('end', [math.nan, math.inf, 201.0])
def test_an_accuracy_of_a_run_whose_loss_diverged_is_in_no_mean(tmp_path, end):
  runs = _seeds(tmp_path, [[0.1, 0.4, 0.8], [0.1, 0.6, 0.6]])
  for row, loss in zip(runs[1].rows, (2.0, 2.0, 2.0, 2.0, end)):
    row['validation_loss'] = loss
  assert _table(runs) == ('nan ± nan', 'nan ± nan', f'Diverged: 1 of 2 runs: {tmp_path / "1"}.')
  assert _table(runs[:1]) == ('0.6000', '0.8000', '')


def test_rows_hold_means_deviations_and_rounds_to_a_target(tmp_path):
  one = _seeds(tmp_path / 'a', [[0.0, 0.4, 0.8], [0.0, 0.6, 0.6]])
  groups = {'n=10': _seeds(tmp_path / 'b', [[0.1, 0.2, 0.3]]), 'n=2': one}
  # The initial model, round 0, is not in the mean: (0.4 + 0.8) / 2 and (0.6 + 0.6) / 2.
  assert tables.comparison(groups, [COLUMN], target=0.6).tables[0].rows == [
    ['n=2', '2', '4', '0.6000 ± 0.0000', '0.7000 ± 0.1414', '3 ± 1', '0.5000'],
    ['n=10', '1', '4', '0.2500', '0.3000', 'not reached', '0.5000'],
  ]
  table = tables.comparison_table(groups, COLUMN, target=0.7)
  assert table.rows[1][5] == '4 (reached by 1 of 2 seeds)'
  losses = {'a': _seeds(tmp_path / 'c', [[2.0, 1.0, 0.5]], 'validation_loss')}
  assert tables.comparison_table(losses, 'validation_loss', target=1.0).rows[0][5] == '2'
  columns = 'seconds_round, megabytes_down, megabytes_up, validation_accuracy'  # Not of round 0.
  with pytest.raises(ValueError, match=f"no values of 'val_acc' .*; it has: {columns}."):
    tables.comparison_table(groups, 'val_acc')


CURVES = [[0.0, 0.4, 0.8], [0.0, 0.6, 0.6]]


def test_columns_are_chosen_and_the_title_is_the_tables_caption(tmp_path):
  groups = {'a': _seeds(tmp_path, CURVES)}
  for run in groups['a']:
    summary.write(run.folder, {**run.summary(), 'state_megabytes': {'server': 2.0, 'client': 0.5}})
  columns = ['last', 'reached', 'runs', 'server_mb', 'client_mb']
  without = {'b': [run_folders.make(tmp_path / 'b', [0.0, 0.5])]}  # It has no summary.json.
  with pytest.raises(ValueError, match='b has no sizes of its states: leave'):
    tables.comparison(without, [COLUMN], target=0.6, columns=columns)
  report = tables.comparison(groups, [COLUMN], target=0.6, title='Digits', columns=columns)
  assert report.tables[0].heading[:4] == ['', 'validation accuracy, last', 'rounds to 0.6', 'runs']
  sizes = '2.0000 ± 0.0000', '0.5000 ± 0.0000'
  assert report.tables[0].rows == [['a', '0.7000 ± 0.1414', '3 ± 1', '2', *sizes]]
  assert '\\caption{Digits.}' in report.tables[0].latex()


def test_each_column_has_a_table_and_axes_of_its_own(tmp_path):
  groups = {'a': _seeds(tmp_path, CURVES)}
  options = {'title': 'Digits', 'levels': {'paper': 0.9}, 'log_scale': ['megabytes_up']}
  report = tables.comparison(groups, [COLUMN, 'megabytes_up'], axis='seconds', **options)
  titles = [table.title for table in report.tables]
  assert titles == ['Digits: validation accuracy', 'Digits: megabytes up']
  assert report.data.startswith('label,round,seconds,')
  drawn = [(axes.get_xlabel(), axes.get_yscale()) for axes in report.figure.axes]
  assert drawn == [('seconds of training', scale) for scale in ('linear', 'log')]
  legend = [text.get_text() for text in report.figure.legends[0].get_texts()]
  assert (report.title, report.figure.get_suptitle()) == ('Digits', 'Digits')
  assert legend[-1] == 'paper = 0.9'


def test_an_unknown_column_of_the_table_is_refused(tmp_path):
  groups = {'a': _seeds(tmp_path, CURVES)}
  for unknown in ('accuracy', 'reached'):
    with pytest.raises(ValueError, match='give some of runs, rounds, mean, last'):
      tables.comparison(groups, [COLUMN], columns=[unknown])


def test_the_heading_says_over_how_many_rounds_and_evaluations_the_mean_is(tmp_path):
  a = [run_folders.make(tmp_path / 'a', [0.1] * 11, every=2)]
  b = [run_folders.make(tmp_path / 'b', [0.1] * 31, every=2)]
  whole = [dataclasses.replace(*b, window=100)]
  for groups, words in (
    ({'a': a}, 'mean of last 2 rounds (1 evaluation)'),
    ({'a': a, 'b': b}, 'mean of last 2 to 6 rounds (1 to 3 evaluations)'),
    ({'a': a, 'b': whole}, 'mean of last 2 to 60 rounds (1 to 30 evaluations)'),
  ):
    assert tables.comparison_table(groups, COLUMN).heading[3].endswith(words)
  assert tables.comparison_table({'a': a}, 'megabytes_up').heading[3].endswith('last 2 rounds')


ALL = 'loss accuracy nll'


@pytest.mark.parametrize(
  'tasks, metric_of_runs',
  [
    ([(None, 'loss read accuracy')], 'accuracy'),
    ([(None, 'loss recall_at_5 precision')], 'recall_at_5'),
    ([(None, 'loss')], 'loss'),
    ([(None, 'loss accuracy'), (None, 'loss other')], 'loss'),
    ([(None, 'loss'), (None, '')], None),
    ([('nll', ALL)], 'nll'),
    ([('loss', ALL)], 'loss'),
    ([('nll', ALL), (None, ALL)], 'nll'),
    ([('nll', ALL), ('loss', ALL)], 'accuracy'),  # Two tasks: what they share.
    ([('recall', ALL)], 'accuracy'),  # There is no such column.
  ],
)
def test_the_metric_is_the_tasks_or_accuracy_another_or_the_loss(tasks, metric_of_runs):
  runs = []
  for metric, columns in tasks:
    row = {'round': 0.0, 'train_error': 1.0}
    row |= {f'validation_{name}': 1.0 for name in columns.split()}
    runs.append(run_lib.Run('x', {'settings': {}, 'metric': metric}, [row]))
  if metric_of_runs is None:
    with pytest.raises(ValueError, match='name a column'):
      tables.default_metric(runs)
  else:
    assert tables.default_metric(runs) == f'validation_{metric_of_runs}'


def test_the_legend_says_which_curve_ends_early(tmp_path):
  three_runs = [
    run_folders.make(tmp_path / str(seed), values, seed=seed, rounds=3)
    for seed, values in enumerate(([0.1, 0.2, 0.3, 0.4], [0.1, 0.2], [0.1, 0.3, 0.4, 0.5]))
  ]
  for runs, label in ((three_runs, 'a (n = 3), to round 1'), (three_runs[::2], 'a (n = 2)')):
    report = tables.comparison({'a': runs}, [COLUMN])
    assert [text.get_text() for text in report.figure.legends[0].get_texts()] == [label]
  for run, t in zip(three_runs[::2], (1, 2)):
    run.rows[:] = run.rows[t : t + 1]
  words = "the runs of 'a' have no round with a value of .* in common"
  with pytest.raises(ValueError, match=words):
    tables.comparison({'a': three_runs[::2]}, [COLUMN])


def test_a_budget_of_megabytes_and_megabytes_to_a_target(tmp_path):
  """A round sends 2 MB down and 1 MB up, and every second one is evaluated."""
  groups = {
    'a': _seeds(tmp_path / 'a', [[0.0, 0.4, 0.8], [0.0, 0.6, 0.6]]),
    'b': _seeds(tmp_path / 'b', [[0.1, 0.2]]),
  }

  def cells(name, **options):
    table = tables.comparison_table(groups, COLUMN, **options)
    column = table.heading.index(name)
    return [row[column] for row in table.rows]

  at = {'at_megabytes': 11.9}  # Round 2 ends at 6 MB, round 4 at 12; b ends at 6.
  assert cells('validation accuracy at 11.9 MB', **at) == ['0.5000 ± 0.1414', 'not reached']
  assert cells('validation accuracy at 12 MB', at_megabytes=12) == [
    '0.7000 ± 0.1414',
    'not reached',
  ]
  up = {'axis': 'megabytes_up', 'at_megabytes': 2.0}
  assert cells('validation accuracy at 2 MB up', **up) == ['0.5000 ± 0.1414', '0.2000']
  for axis, of_round in (('megabytes', 3), ('megabytes_up', 1), ('megabytes_down', 2)):
    heading = f'{axis.replace("_", " ")} to 0.8'
    wanted = [f'{4 * of_round:.1f} (reached by 1 of 2 seeds)', 'not reached']
    assert cells(heading, axis=axis, target=0.8) == wanted
  names = ['last', 'at_megabytes', 'spent']
  options = {'axis': 'megabytes', 'target': 0.2, 'at_megabytes': 6, 'columns': names}
  table = tables.comparison({'b': groups['b']}, [COLUMN], **options).tables[0]
  assert table.rows == [['b', '0.2000', '0.2000', '6.0']]
  with pytest.raises(ValueError, match=r'at_megabytes must be .* above 0, found 0.0: give'):
    tables.comparison_table(groups, COLUMN, at_megabytes=0.0)
  for name in ('spent', 'at_megabytes', 'reached'):
    with pytest.raises(ValueError, match=f"'{name}' is no column: .* at_megabytes an at_megabytes"):
      tables.comparison_table(groups, COLUMN, columns=[name])
