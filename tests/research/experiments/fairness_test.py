"""The experiment on fairness: its data, its smoke run, and its table."""

import numpy as np
import pandas as pd
import pytest

from research.experiments import fairness


def test_adults_clients_are_by_doctorate_and_question_marks_have_no_indicator():
  values = {name: ['?', 'a', 'b'] for name in fairness._COLUMNS}
  values['education'] = ['Bachelors', 'Doctorate']
  data = {f'{name}_values': np.array(names) for name, names in values.items()}
  for part in ('train', 'test'):
    data |= {f'{name}_{part}': np.array([0, 1, 1]) for name in fairness._COLUMNS}
    data[f'income_{part}'] = np.array([0, 1, 0])
  x, y, clients = fairness.adult(data)['test']
  assert list(clients) == ['others', 'Doctorate', 'Doctorate']
  assert list(y) == [0, 1, 0]
  # Seven columns with two categories beside '?', and two degrees.
  assert x.shape == (3, 16)
  assert list(x.sum(axis=1)) == [1, 8, 8]  # The first person has a degree only.


def test_writers_have_white_paper_at_0():
  data = {'client_ids': np.array(['u', 'v'])}
  for part in ('train', 'test'):
    data[f'x_{part}'] = np.full((2, 28, 28), 255, np.uint8)
    data[f'y_{part}'] = np.array([3, 61], np.uint8)
    data[f'client_{part}'] = np.array([1, 0])
  x, y, clients = fairness.writers(data)['train']
  assert x.shape == (2, 784)
  assert not x.any()
  assert list(y) == [3, 61]
  assert list(clients) == ['v', 'u']


def test_the_table_has_means_over_seeds_by_method():
  rows = [
    {'problem': 'adult', 'method': 'AFL', 'seed': seed, 'worst_tenth': worst}
    for seed, worst in enumerate((0.7, 0.8))
  ]
  table = pd.DataFrame(rows).assign(pooled=0.9, mean=0.85, deviation=0.05)
  fairness._FLAGS(['fairness.py'])
  text = '\n'.join(fairness.report(table))
  assert '| AFL | 90.0 ± 0.0 | 85.0 ± 0.0 | 5.0 ± 0.0 | 75.0 ± 7.1 |' in text


def test_the_table_says_how_far_another_program_is(tmp_path):
  rows = pd.DataFrame({'method': ['AFL'], 'seed': [0], 'worst_tenth': [0.7]})
  rows = rows.assign(pooled=0.9, mean=0.85, deviation=0.05)
  after_all = rows.assign(rounds=600, worst_tenth=0.6975)
  after_ten = rows.assign(rounds=10, worst_tenth=0.1)
  pd.concat([after_ten, after_all]).to_csv(tmp_path / fairness.PROGRAM, index=False)
  fairness._FLAGS(['fairness.py', f'--results={tmp_path}/fairness'])
  text = '\n'.join(fairness.report(rows.assign(problem='adult')))
  assert 'differ from these numbers by 0.2500 points at most' in text
  assert ', 1 runs:' in text


@pytest.mark.exhaustive
def test_the_smoke_run_trains_and_goes_on(tmp_path):
  arguments = ['fairness.py', '--smoke', f'--results={tmp_path}/smoke']
  assert fairness.main(arguments) == 0
  table = pd.read_csv(tmp_path / 'smoke.csv')
  assert list(table['method']) == ['AFL (rate 0.1)', 'AFL (rate 0.001)']
  assert fairness.main([*arguments, '--report_only']) == 0
