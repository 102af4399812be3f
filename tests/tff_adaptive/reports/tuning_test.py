"""Maps by client and server rate, against grids written by hand."""

import copy
import csv
import io
import math
import typing

import numpy as np
import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import tuning

COLUMN = 'validation_accuracy'
RATES = (0.01, 0.1, 1.0)
# Of server rates by client rates; the last of all diverged.
GRID = {'fed_yogi': [[0.5, 0.6, 0.7], [0.8, 0.9, 0.4], [0.3, 0.2, math.nan]]}
GRID['fed_avg'] = (np.array(GRID['fed_yogi']) - 0.1).tolist()


CLIENT = tuning.CLIENT
SERVER = tuning.SERVER


def grid_runs(folder):
  ends = []
  for algorithm, values in GRID.items():
    for server, row in zip(RATES, values):
      for client, value in zip(RATES, row):
        settings = {'algorithm': algorithm, CLIENT: client, SERVER: server}
        ends.append((value - 0.005, {**settings, 'seed': 0}))
        ends.append((value + 0.005, {**settings, 'seed': 1}))
  return run_folders.each(folder, ends)


@pytest.fixture(scope='module')
def report(tmp_path_factory):
  return tuning.by_rates(grid_runs(tmp_path_factory.mktemp('runs')), COLUMN, title='Digits')


def test_a_map_is_a_table_with_its_best_cell_bold(report):
  yogi = next(table for table in report.tables if table.title.startswith('FedYogi'))
  assert yogi.title == 'FedYogi: validation accuracy, %, mean of the last 1 round'
  assert yogi.heading == ['', 'client 0.01', 'client 0.1', 'client 1']
  assert yogi.rows[0] == ['server 1', '30.0 ± 0.7', '20.0 ± 0.7', 'diverged (2 of 2)']
  assert yogi.rows[1][2] == '90.0 ± 0.7'
  assert yogi.bold == {(1, 2)}
  assert report.tables[-1].rows == [
    ['FedYogi', '0.1 (80.0 ± 0.7)', '0.1 (90.0 ± 0.7)', '0.01 (70.0 ± 0.7)'],
    ['FedAvg', '0.1 (70.0 ± 0.7)', '0.1 (80.0 ± 0.7)', '0.01 (60.0 ± 0.7)'],
  ]


def _maps(report):
  return [axes for axes in report.figure.axes if axes.images]


def test_the_figure_has_a_map_each(report):
  maps = _maps(report)
  assert {axes.get_title() for axes in maps} == {'FedYogi', 'FedAvg'}
  for axes in maps:
    for ticks in (axes.get_xticklabels(), axes.get_yticklabels()):
      assert [tick.get_text() for tick in ticks] == ['0.01', '0.1', '1']
    assert (axes.get_xlabel(), axes.get_ylabel()) == ('client rate', 'server rate')
    assert not axes.yaxis_inverted()


def test_a_map_shows_its_numbers(report):
  yogi = next(axes for axes in _maps(report) if axes.get_title() == 'FedYogi')
  values = yogi.images[0].get_array()  # The lowest server rate is the lowest row.
  np.testing.assert_allclose(values[:2], 100 * np.array(GRID['fed_yogi'][:2]))
  assert values.mask[2, 2]
  texts = {(*text.get_position(), text.get_text(), text.get_color()) for text in yogi.texts}
  assert texts >= {(1, 2, '20.0', 'w'), (1, 1, '90.0', 'k'), (2, 2, 'x', '0.4')}  # Light on dark.


def test_maps_have_one_scale_of_which_the_worst_quarter_does_not_take_the_colours(report):
  (scale,) = {axes.images[0].get_clim() for axes in _maps(report)}
  assert scale[1] == pytest.approx(90)
  assert scale[0] > 20
  about = 'validation accuracy, %,\nmean of the last 1 round; x: diverged'  # Beside the colours.
  assert about in [axes.get_ylabel() for axes in report.figure.axes]
  assert (report.title, report.figure.get_suptitle()) == ('Digits', 'Digits')


def test_the_data_have_a_row_for_each_pair_of_rates(report):
  rows = list(csv.DictReader(io.StringIO(report.data)))
  assert len(rows) == 18
  row = next(r for r in rows if r['label'] == 'FedAvg' and r['server_learning_rate'] == '0.1')
  assert [row[CLIENT], row['runs'], row['mean'], row['std']] == ['0.01', '2', '0.7', '0.00707107']


def test_cells_need_different_seeds_and_rates(tmp_path):
  runs = grid_runs(tmp_path)
  with pytest.raises(ValueError, match=r'=0\.01, .*=0\.01. have the same seed'):
    tuning.by_rates([*runs, copy.copy(runs[0])], COLUMN)
  without = run_folders.make(tmp_path / 'more', [0.1, 0.2])
  with pytest.raises(ValueError, match='has no client_learning_rate and server_learning_rate'):
    tuning.by_rates([*runs, without], COLUMN)


class Best(typing.NamedTuple):
  column: str
  values: tuple[float, float, float]  # Of three rates.
  cell: str
  colors: tuple[float, float]


@pytest.mark.parametrize(
  'best',
  [
    Best(
      column='validation_loss',
      values=(0.5, 0.4, math.inf),
      cell='0.1 (0.4000)',
      colors=(0.4, 0.475),
    ),
    # Of those that do equally well the lowest.
    Best(column='validation_loss', values=(1.5, 1.5, 1.5), cell='0.01 (1.5000)', colors=(1.0, 2.0)),
    Best(column=COLUMN, values=(0.5, 0.5, 0.5), cell='0.01 (50.0)', colors=(49.5, 50.5)),
  ],
)
def test_of_a_loss_the_least_is_best_and_of_equal_ones_the_lowest_rate(tmp_path, best):
  ends = [(value, {SERVER: rate}) for value, rate in zip(best.values, (0.01, 0.1, 1.0))]
  runs = run_folders.each(tmp_path, ends, best.column, start=2.0, **{CLIENT: 0.1})
  report = tuning.by_rates(runs, best.column)
  assert report.tables[-1].rows == [['FedAvg', best.cell]]
  image = report.figure.axes[0].images[0]  # Good values are light.
  colours = image.get_cmap().name, image.colorbar.extend
  assert colours == (('viridis', 'min') if best.column == COLUMN else ('viridis_r', 'max'))
  assert image.get_clim() == pytest.approx(best.colors)


def test_algorithms_with_rates_and_tasks_of_their_own_have_maps_of_their_own(tmp_path):
  ends = []
  for task in ('digits', 'least_squares'):
    for algorithm, server, rates in (
      ('fed_avg', 'sgd', (0.5, 1)),
      ('fed_adam', 'adam', (0.01, 0.1)),
    ):
      settings = {'task': task, 'algorithm': algorithm, 'server_optimizer': server}
      ends += [(0.5, {**settings, SERVER: rate}) for rate in rates]
  report = tuning.by_rates(run_folders.each(tmp_path, ends, **{CLIENT: 0.1}), COLUMN)
  *maps, best = report.tables
  assert [row[0] for row in best.rows] == [
    'FedAvg, digits',
    'FedAdam, digits',
    'FedAvg, least_squares',
    'FedAdam, least_squares',
  ]
  assert [len(table.rows) for table in maps] == [2] * 4
  assert [axes.axison for axes in report.figure.axes[:6]] == [True] * 4 + [False] * 2


def test_rates_have_as_many_digits_as_tell_them_apart(tmp_path):
  ends = [(0.12, {CLIENT: rate, SERVER: 1 - rate}) for rate in (0.12341, 0.12344)]
  report = tuning.by_rates(run_folders.each(tmp_path, ends), COLUMN)
  assert report.tables[0].heading[1:] == ['client 0.12341', 'client 0.12344']
  assert [row[0] for row in report.tables[0].rows] == ['server 0.87659', 'server 0.87656']
  (axes,) = (axes for axes in report.figure.axes if axes.images)
  assert len({tick.get_text() for tick in axes.get_xticklabels()}) == 2
