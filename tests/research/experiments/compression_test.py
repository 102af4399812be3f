"""The experiment on compression: its smoke run, the rate that is taken, and accuracy by bytes."""

import numpy as np
import pandas as pd
import pytest

from research.experiments import compression, compression_tables
from tests.helpers import fakes


@pytest.mark.exhaustive
def test_the_smoke_run_trains_and_reports(tmp_path):
  results = tmp_path / 'smoke'
  with fakes.no_figures():
    assert compression.main(['compression.py', '--smoke', f'--results={results}']) == 0
  table = pd.read_csv(f'{results}.csv')
  assert set(table['stage']) == {'tuning', 'bytes', 'clock'}
  sent = table[table['stage'] == 'bytes'].set_index('compression')['megabytes_up']
  # Five percent of 79,510 weights, with 17 bits of position beside 32 of value.
  assert sent['top 5 %, EF14'] / sent['none'] == pytest.approx(0.05 * 49 / 32, rel=1e-3)
  assert 'after the same rounds' in (tmp_path / 'smoke.md').read_text()


def test_accuracy_at_a_budget_is_the_last_within_it():
  rows = [
    {'validation_accuracy': 0.1, 'validation_loss': 3.0},
    {'megabytes_up': 2.0, 'validation_accuracy': 0.5, 'validation_loss': 2.0},
    {'megabytes_up': 2.0},
    {'megabytes_up': 2.0, 'validation_accuracy': 0.7, 'validation_loss': 1.0},
  ]
  assert compression.curve(rows, 5.0) == {'accuracy': 0.7, 'accuracy_at_tenth': 0.5, 'loss': 1.0}
  better = [{**rows[1], 'inference_accuracy': 0.6}]
  assert compression.curve(better, 2.0)['accuracy_at_tenth'] == 0.6


def test_the_most_accurate_rate_is_taken_and_one_that_diverged_is_not():
  known = [
    compression._key('tuning', 'p', 'FedAvg', 'none', rate, 100) | {'accuracy': accuracy}
    for rate, accuracy in ((0.3, np.nan), (0.1, 0.8), (0.03, 0.7))
  ]
  known.append(compression._key('bytes', 'p', 'FedAvg', 'none', 1.0, 0) | {'accuracy': 0.9})
  assert compression.chosen(known, 'p', 'FedAvg', 'none') == pytest.approx(0.1)


def test_every_compression_has_its_parts():
  for name in (*compression.COMPRESSIONS, *compression._OF_TEXT):
    assert (name == 'none') == (compression.compressors(name) == [])


def rows():
  """Two algorithms with three compressions and two seeds, of which one run diverged."""
  table = []
  megabytes = {'none': 100.0, 'top 5 %, EF14': 7.0, '8 bits': 25.0}
  for method, times in (('FedAvg', 1), ('SCAFFOLD', 2)):
    for name, sent in megabytes.items():
      for seed in (0, 1):
        row = compression._key('bytes', 'digits', method, name, 0.1, seed)
        accuracy = 0.9 + 0.01 * seed - (0.003 if name != 'none' else 0)
        of_run = {'accuracy': accuracy, 'accuracy_at_tenth': 0.5, 'megabytes_up': times * sent}
        if (method, name, seed) == ('SCAFFOLD', '8 bits', 1):
          of_run = dict.fromkeys(of_run, np.nan)
        table.append(row | of_run)
  return pd.DataFrame(table)


def test_tables_compare_with_no_compression_seed_by_seed_and_say_what_diverged():
  text = '\n'.join(compression_tables.parts(rows(), 0.85))
  assert '| none | 90.50 ± 0.71 | 90.50 ± 0.71 |' in text
  assert '| 8 bits | 90.20 ± 0.71 | 89.70 (1/2) |' in text
  # The seeds differ by a point, and each pair by 0.3.
  assert '| top 5 %, EF14 | -0.30 ± 0.00 | -0.30 ± 0.00 |' in text
  assert '| 8 bits | -0.30 ± 0.00 | -0.30 (1/2) |' in text
  assert 'top 5 %, EF14 2 of 2; 8 bits 1 of 2.' in text
  assert '| compression | FedAvg | SCAFFOLD |' in text


def test_the_figure_has_a_line_for_each_compression_in_a_panel_for_each_algorithm(monkeypatch):
  pictures = []
  monkeypatch.setattr(
    compression_tables.style, 'write', lambda picture, _: pictures.append(picture)
  )
  compression_tables.draw('unused.png', rows())
  (picture,) = pictures
  assert [axes.get_title() for axes in picture.axes] == ['digits: FedAvg', 'digits: SCAFFOLD']
  (legend,) = picture.legends
  assert [text.get_text() for text in legend.get_texts()] == ['none', 'top 5 %, EF14', '8 bits']
  none, top, eight_bits = (drawn.lines[0].get_xydata() for drawn in picture.axes[0].containers)
  np.testing.assert_allclose(none, [[10, 50], [100, 90.5]])
  np.testing.assert_allclose(top, [[7, 90.2]])  # All its rounds send less than a tenth.
  np.testing.assert_allclose(eight_bits, [[10, 50], [25, 90.2]])
