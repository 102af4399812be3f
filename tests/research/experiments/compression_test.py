"""The experiment on compression: its smoke run, the rate that is taken, and accuracy by bytes."""

import numpy as np
import pandas as pd
import pytest

from research.experiments import compression
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
