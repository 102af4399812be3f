"""Mean curves: over which runs, along what; figures show differences, and not what diverged."""

import math

import numpy as np
import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import figures, style, tables

COLUMN = 'validation_accuracy'


def drawn(groups, column=COLUMN, **options):
  figure = figures.comparison({column: figures.mean_curves(groups, column)}, **options)
  return figure, figure.axes


def test_bands_are_deviations_and_the_legend_begins_with_the_best(tmp_path):
  groups = {}
  for name, end in (('a', 0.3), ('b', 0.7), ('c', 0.5)):
    first = run_folders.make(tmp_path / f'{name}0', [0.1, end], seed=0)
    second = run_folders.make(tmp_path / f'{name}1', [0.1, end + 0.1], seed=0.1)
    groups[name] = [first, second]
  figure, (axes,) = drawn(groups)
  assert [text.get_text()[0] for text in figure.legends[0].get_texts()] == list('bca')
  # By colour and by dashes.
  looks = {(line.get_color(), str(line._dash_pattern)) for line in axes.get_lines()}
  assert len(looks) == len({line.get_marker() for line in axes.get_lines()}) == 3
  ends = [band.get_paths()[0].vertices[:, 1] for band in axes.collections]
  heights = [np.ptp(y[y > 0.2]) for y in ends]
  np.testing.assert_allclose(heights, 0.1 * 2**0.5, rtol=1e-6)
  assert (axes.get_xlabel(), axes.get_ylabel()) == ('round', 'validation accuracy')
  assert all(tick == int(tick) for tick in axes.get_xticks())
  for points, marker in ((19, 'o'), (20, 'None')):
    run = run_folders.make(tmp_path / str(points), points * [0.1])
    assert drawn({'a': [run]})[1][0].get_lines()[0].get_marker() == marker


@pytest.mark.parametrize('names, label', [(['cat', 'dog'], 'dog'), ([], '1')])
def test_a_partition_is_drawn_with_the_names_of_classes(monkeypatch, names, label):
  drawn = []
  monkeypatch.setattr(style, 'write', lambda figure, path: drawn.append(figure))
  figures.draw_partition('', [3, 4, 4], [[1, 2], [0, 4]], '$', names)
  (figure,) = drawn
  bars, sizes = drawn[0].axes
  drawn_bars = [(bar.get_x(), bar.get_width()) for bar in bars.patches]
  assert drawn_bars == [(0, 1), (0, 0), (1, 2), (0, 4)]  # Label by label, beside each other.
  assert [bar.get_height() for bar in sizes.patches] == [1, 2]
  assert (bars.get_xlabel(), bars.get_ylabel()) == ('examples, a colour a label', 'client')
  assert (sizes.get_xlabel(), sizes.get_ylabel()) == ('examples of a client', 'clients')
  assert figure.legends[0].get_texts()[1].get_text() == label
  assert (figure._suptitle.get_text(), figure._suptitle.get_parse_math()) == ('$', False)
  assert figure.get_size_inches()[1] == 3.6


def test_clients_have_their_names_and_counts_are_whole_numbers(monkeypatch):
  drawn = []
  monkeypatch.setattr(style, 'write', lambda figure, path: drawn.append(figure))
  names = ['north', 'a very long name of a client of the south', '$x\n']
  figures.draw_partition('', [1, 2, 3], [[1, 0], [0, 2], [1, 2]], clients=names)
  bars, sizes = drawn[0].axes
  labels = [text.get_text() for text in bars.get_yticklabels()]
  assert labels == ['north', 'a very long..f the south', '$x']
  assert not any(text.get_parse_math() for text in bars.get_yticklabels())
  assert bars.yaxis_inverted()  # The first is at the top.
  ticks = [*bars.get_xticks(), *sizes.get_xticks(), *sizes.get_yticks()]
  assert all(tick == int(tick) for tick in ticks)
  figures.draw_partition('', [1] * 100, [[1, 1]] * 100, clients=[f'c{i}' for i in range(100)])
  labels = [text.get_text() for text in drawn[1].axes[0].get_yticklabels()]
  assert labels == [f'c{i}' for i in range(0, 100, 3)]


@pytest.mark.parametrize('count', [2, 7, 12, 21, 40])
def test_classes_differ_in_colour_or_hatch_whatever_the_readers_colour_vision(count):
  looks = [(tuple(look['color']), look.get('hatch')) for look in style.fills(count)]
  assert len(set(looks)) == count
  if count <= 7:
    assert [look['color'] for look in style.fills(count)] == list(style.COLORS[:count])


def test_a_curve_over_another_one_shows_it_in_its_gaps(tmp_path):
  groups = {
    'a': [run_folders.make(tmp_path / 'a', [0.1, 0.5, 0.7])],
    'same': [run_folders.make(tmp_path / 'b', [0.1, 0.5, 0.701])],
    'other': [run_folders.make(tmp_path / 'c', [0.1, 0.3, 0.4])],
  }
  _, (axes,) = drawn(groups)
  first, same, other = axes.get_lines()
  assert first.get_linestyle() == '-'
  over = style.OVER[1]
  dashes = [line._unscaled_dash_pattern[1] for line in (same, other)]
  assert tuple(dashes[0]) == over
  assert tuple(dashes[1]) == style.DASHES[2][1]


def test_the_figure_of_a_run_names_run_algorithm_and_data():
  settings = {'algorithm': 'fed_yogi', 'task': 'digits', 'task_option': ['alpha=0.3']}
  config = run_folders.config(settings)
  assert figures.run_title('runs/mine/', config) == 'mine: FedYogi on digits, alpha=0.3'
  assert figures.run_title('runs/mine', run_folders.config({})) == 'mine'


def test_a_figure_without_a_title_names_the_data_of_its_runs(tmp_path):
  runs = [run_folders.make(tmp_path / 'a', [0.1, 0.5], task='s/load.py:f')]
  assert tables.comparison({'a': runs}, [COLUMN]).figure.get_suptitle() == 'load.py:f'
  runs.append(run_folders.make(tmp_path / 'b', [0.1, 0.5], task='digits', seed=1))
  assert tables.comparison({'a': runs}, [COLUMN]).figure.get_suptitle() == ''


def test_of_a_run_what_was_evaluated_is_drawn_with_what_it_trained(monkeypatch):
  drawn = []
  monkeypatch.setattr(style, 'write', lambda *given: drawn.append(given))
  rows = [{'round': 0, 'validation_loss': 3.0}, {'round': 1, 'train_loss': 2.5, 'train_norm': 1.0}]
  rows.append({'round': 2, 'train_loss': 2.0, 'validation_loss': 1.5, 'inference_accuracy': 0.5})
  figures.draw_run('a.png', rows)
  ((figure, path),) = drawn
  losses, accuracies = figure.axes
  validation, train = losses.get_lines()
  assert validation.get_xydata().tolist() == [[0, 3], [2, 1.5]]
  assert train.get_xydata().tolist() == [[1, 2.5], [2, 2]]
  (inference,) = accuracies.get_lines()
  assert inference.get_xydata().tolist() == [[2, 0.5]]
  assert [axes.get_ylabel() for axes in figure.axes] == ['loss', 'accuracy']
  labels = [text.get_text() for text in figure.legends[0].get_texts()]
  assert (labels, path) == (['inference', 'validation', 'train'], 'a.png')


def test_a_log_scale_shows_all_that_did_not_diverge(tmp_path):
  values = [2.0, 15.0, 1.0, 0.5]
  groups = {
    'bad': [run_folders.make(tmp_path / 'c', [2.0, 1.0, 1e9, 1e12], 'validation_loss')],
    'a': [run_folders.make(tmp_path / 'a', values, 'validation_loss')],
    'worse': [run_folders.make(tmp_path / 'b', [2.0, 1.0, 1.0, 20.0], 'validation_loss')],
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
    style.write(drawn({'a': [run]})[0], str(tmp_path / f'{name}.{ending}'))
    files.append((tmp_path / f'{name}.{ending}').read_bytes())
  assert files[0] == files[1]


def test_the_axis_adds_up_what_rounds_took(tmp_path):
  run = run_folders.make(tmp_path / 'a', [0.1, 0.2, 0.3], every=2)
  for axis, per_round in (('round', 1.0), ('seconds', 0.5), ('megabytes', 3.0)):
    (curve,) = figures.mean_curves({'a': [run]}, 'validation_accuracy', axis)
    np.testing.assert_allclose(curve.x, [0, 2 * per_round, 4 * per_round])
  with pytest.raises(ValueError, match=r"no column 'virtual_seconds' .* than virtual_seconds"):
    figures.mean_curves({'a': [run]}, 'validation_accuracy', 'virtual_seconds')
  curves = figures.mean_curves({'a': [run]}, 'validation_accuracy', 'seconds')
  text = figures.curves_table({'validation_accuracy': curves}, 'seconds').splitlines()
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
  (curve,) = figures.mean_curves({'a': members[2:]}, column)
  assert curve.label == 'a (diverged)'
  assert curve.diverged
  assert figures.curves_table({column: [curve]}).splitlines()[1].startswith('a (diverged),0,')
  # A norm may grow, and a loss that grew somewhat has not diverged.
  for name, values in (('theta_norm', [1, 10, 1000]), ('validation_loss', [2.0, 0.5, 200.0])):
    run = run_folders.make(tmp_path / name, values, name)
    (curve,) = figures.mean_curves({'a': [run]}, name)
    assert (curve.label, curve.diverged) == ('a', False)
