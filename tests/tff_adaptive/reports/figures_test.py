"""What a figure shows: differences, and not what diverged."""

import math

import numpy as np
import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import curves, figures, style

COLUMN = 'validation_accuracy'


def close_runs(folder):
  """Five runs that learn, and end between 0.95 and 0.99."""
  ends = dict(zip('abcde', (0.95, 0.96, 0.97, 0.98, 0.99)))
  return {
    name: [run_folders.make(folder / name, end - (end - 0.1) * np.exp(-np.arange(41)))]
    for name, end in ends.items()
  }


def drawn(groups, column=COLUMN, **options):
  figure = figures.comparison({column: curves.build(groups, column)}, **options)
  return figure, [axes for axes in figure.axes if axes.axison]


def test_curves_that_end_close_are_apart_in_a_panel_of_the_end(tmp_path):
  figure, (whole, end) = drawn(close_runs(tmp_path))
  assert whole.get_ylim()[0] < 0.1
  low, high = end.get_ylim()
  ends = [line.get_ydata()[-1] for line in end.get_lines()]
  gaps = np.diff(sorted(ends)) / (high - low)
  assert len(ends) == 5
  assert gaps.min() > 0.15  # Of the panel's height.
  assert end.get_xlim()[0] == 20
  # By colour and by dashes; the best is the first in the legend.
  looks = {(line.get_color(), str(line._dash_pattern)) for line in end.get_lines()}
  assert len(looks) == 5
  assert [text.get_text() for text in figure.legends[0].get_texts()] == list('edcba')


@pytest.mark.parametrize('column, bad', [(COLUMN, [0.1, 0.05, 0.05]), ('validation_loss', None)])
def test_a_run_that_diverged_stretches_no_panel(tmp_path, column, bad):
  def groups(with_bad):
    folder = tmp_path / str(with_bad)
    values = np.exp(-np.arange(41) / 8)
    found = close_runs(folder)
    if column != COLUMN:
      found = {
        n: [run_folders.make(folder / f'l{n}', (2 + i / 9) * values, column)]
        for i, n in enumerate('ab')
      }
    if with_bad:
      worse = bad or [2.0, 1e3, 1e6]
      found['bad'] = [run_folders.make(folder / 'bad', worse, column)]
      found['nan'] = [run_folders.make(folder / 'nan', [worse[0], math.inf, math.nan], column)]
    return found

  limits = [
    [axes.get_ylim() for axes in drawn(groups(with_bad), column)[1]] for with_bad in (False, True)
  ]
  assert limits[0] == limits[1]


def test_a_spike_of_a_loss_that_fell_again_is_cut(tmp_path):
  run = run_folders.make(tmp_path / 'a', [2.0, 5.0, 1.0, 0.5], 'validation_loss')
  _, (axes,) = drawn({'a': [run]}, 'validation_loss')
  assert 2.0 < axes.get_ylim()[1] < 2.2
  assert 0.3 < axes.get_ylim()[0] < 0.5


def test_a_log_scale_shows_all_that_did_not_diverge(tmp_path):
  values = [2.0, 15.0, 1.0, 0.5]
  groups = {
    'a': [run_folders.make(tmp_path / 'a', values, 'validation_loss')],
    'worse': [run_folders.make(tmp_path / 'b', [2.0, 1.0, 1.0, 20.0], 'validation_loss')],
    'bad': [run_folders.make(tmp_path / 'c', [2.0, 1.0, 1e9, 1e12], 'validation_loss')],
  }
  _, (axes,) = drawn(groups, 'validation_loss', log_scale=['validation_loss'])
  low, high = axes.get_ylim()
  assert 0.25 < low < 0.5
  assert 20 < high < 40


def test_a_level_is_in_view_and_in_the_legend(tmp_path):
  run = run_folders.make(tmp_path / 'a', [0.1, 0.2])
  figure, (axes,) = drawn({'a': [run]}, levels={'paper': 0.9})
  assert axes.get_ylim()[1] > 0.9
  assert 'paper = 0.9' in [text.get_text() for text in figure.legends[0].get_texts()]


@pytest.mark.parametrize('ending', style.FORMATS)
def test_the_same_figure_gives_the_same_file(tmp_path, ending):
  files = []
  run = run_folders.make(tmp_path / 'run', [0.1, 0.2])
  for name in ('a', 'b'):
    figure, _ = drawn({'a': [run]})
    style.write(figure, str(tmp_path / f'{name}.{ending}'))
    files.append((tmp_path / f'{name}.{ending}').read_bytes())
  assert files[0] == files[1]
