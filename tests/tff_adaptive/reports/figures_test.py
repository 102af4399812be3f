"""Mean curves: over which runs, along what; figures show differences, and not what diverged."""

import math

import numpy as np
import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import figures, style

COLUMN = 'validation_accuracy'


def close_runs(folder):
  """Five runs that learn, and end between 0.95 and 0.99."""
  ends = dict(zip('abcde', (0.95, 0.96, 0.97, 0.98, 0.99)))
  return {
    name: [run_folders.make(folder / name, end - (end - 0.1) * np.exp(-np.arange(41)))]
    for name, end in ends.items()
  }


def drawn(groups, column=COLUMN, **options):
  figure = figures.comparison({column: figures.mean_curves(groups, column)}, **options)
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


def test_deviations_at_the_end_stand_beside_each_other_and_not_one_on_another(tmp_path):
  groups = close_runs(tmp_path)
  for seed, (name, members) in enumerate(groups.items()):
    values = [value + 0.004 for value in members[0].curve(COLUMN).values()]
    members.append(run_folders.make(tmp_path / f'{name}1', values, seed=seed + 1))
  _, (whole, end) = drawn(groups)
  assert len(whole.collections) == 5  # A band each.
  bars = [bar.get_segments()[0] for bar in end.collections]
  places = [bar[0][0] for bar in bars]
  assert len(set(places)) == 5
  assert 40 < min(places) < max(places) < end.get_xlim()[1]
  np.testing.assert_allclose([bar[1][1] - bar[0][1] for bar in bars], 0.004 * 2**0.5, rtol=1e-6)


@pytest.mark.parametrize('names, shown', [(['cat', 'dog'], 'dog'), ([], '1')])
def test_a_partition_is_drawn_with_the_names_of_classes(tmp_path, names, shown):
  path = tmp_path / 'partition.svg'
  figures.draw_partition(str(path), [3, 4], [[1, 2], [0, 4]], names=names)
  assert f'<!-- {shown} -->' in path.read_text()


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
  widths = []
  for label in ('a', 40 * 'a'):  # A wide legend takes nothing from the panel.
    figure, (axes,) = drawn({label: [run]}, levels={'paper': 0.9})
    figure.draw_without_rendering()
    widths.append(axes.get_window_extent().width)
  assert 1 / 2 < widths[1] / widths[0] < 2
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


def test_the_axis_adds_up_what_rounds_took(tmp_path):
  run = run_folders.make(tmp_path / 'a', [0.1, 0.2, 0.3], every=2)
  for axis, per_round in (('round', 1.0), ('seconds', 0.5), ('megabytes', 3.0)):
    (curve,) = figures.mean_curves({'a': [run]}, 'validation_accuracy', axis)
    np.testing.assert_allclose(curve.x, [0, 2 * per_round, 4 * per_round])
  with pytest.raises(ValueError, match=r"no column 'virtual_seconds' .* than virtual_seconds"):
    figures.mean_curves({'a': [run]}, 'validation_accuracy', 'virtual_seconds')
  found = figures.mean_curves({'a': [run]}, 'validation_accuracy', 'seconds')
  text = figures.curves_table({'validation_accuracy': found}, 'seconds').splitlines()
  assert text[0] == 'label,round,seconds,validation_accuracy_mean,validation_accuracy_std'
  assert text[2] == 'a,2,1,0.2,0'


@pytest.mark.parametrize(
  'column, end', [('validation_accuracy', math.nan), ('validation_loss', 900.0)]
)
def test_a_run_that_diverged_is_counted_and_not_averaged(tmp_path, column, end):
  start, good = (0.1, 0.5) if math.isnan(end) else (2.0, 0.5)
  members = [
    run_folders.make(tmp_path / str(seed), [start, good, last], column, seed=seed)
    for seed, last in enumerate((0.2, 0.4, end))
  ]
  (curve,) = figures.mean_curves({'a': members}, column)
  assert curve.label == 'a (n = 2, 1 diverged)'
  assert curve.mean[-1] == pytest.approx(0.3)
  assert curve.learned == (column == 'validation_loss' or curve.mean[-1] > start)
  (curve,) = figures.mean_curves({'a': members[2:]}, column)
  assert curve.label == 'a (diverged)'
  assert curve.diverged
  assert not curve.learned


@pytest.mark.parametrize(
  'column, values, learned',
  [('theta_norm', [1, 10, 100], True), ('validation_loss', [2.0, 0.5, 20.0], False)],
)
def test_a_norm_may_grow_and_a_loss_that_grew_somewhat_has_not_diverged(
  tmp_path, column, values, learned
):
  run = run_folders.make(tmp_path / 'a', values, column)
  (curve,) = figures.mean_curves({'a': [run]}, column)
  assert (curve.label, curve.diverged, curve.learned) == ('a', False, learned)
