"""Scores by one hyperparameter."""

import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import sensitivity

COLUMN = 'validation_accuracy'


def runs(folder, algorithm='fed_yogi', shift=0.0):
  """Three values of tau, two rates, of which the higher is better but for the largest tau."""
  values = {0.001: (0.5, 0.6), 0.01: (0.7, 0.8), 0.1: (0.4, 0.3)}
  ends = [
    (value + shift + (seed - 0.5) / 100, {'tau': tau, 'client_learning_rate': rate, 'seed': seed})
    for tau, pair in values.items()
    for rate, value in zip((0.1, 0.3), pair)
    for seed in (0, 1)
  ]
  return run_folders.each(folder / algorithm, ends, algorithm=algorithm)


def test_a_line_is_the_best_of_other_settings_at_each_value(tmp_path):
  both = [*runs(tmp_path), *runs(tmp_path, 'fed_adam', -0.05)]
  both.append(run_folders.make(tmp_path / 'other', [0.1, 0.99], tau=None))  # Has no tau.
  made = sensitivity.build(both, COLUMN, 'tau')
  (table,) = made.tables
  assert table.heading == ['', 'tau = 0.001', 'tau = 0.01', 'tau = 0.1']
  assert table.rows[0] == ['FedYogi', '60.00 ± 0.71', '80.00 ± 0.71', '40.00 ± 0.71']
  assert table.rows[1] == ['FedAdam', '55.00 ± 0.71', '75.00 ± 0.71', '35.00 ± 0.71']
  assert table.bold == {(0, 2), (1, 2)}
  assert 'client_learning_rate=0.1 (FedYogi, tau = 0.1; FedAdam, tau = 0.1)' in table.note
  (axes,) = made.figure.axes
  assert axes.get_xscale() == 'log'
  assert [text.get_text() for text in made.figure.legends[0].get_texts()] == ['FedYogi', 'FedAdam']
  assert made.data.splitlines()[1] == 'FedYogi,0.001,2,0.6,0.00707107,client_learning_rate=0.3'


def test_a_line_needs_two_values(tmp_path):
  with pytest.raises(ValueError, match="have 0 values of 'mu'"):
    sensitivity.build(runs(tmp_path), COLUMN, 'mu')
  with pytest.raises(ValueError, match="have 1 value of 'tau'"):
    sensitivity.build(runs(tmp_path / 'more')[:4], COLUMN, 'tau')


def test_values_that_include_zero_have_a_linear_axis(tmp_path):
  found = [run_folders.make(tmp_path / str(b), [0.1, b / 2], beta=b) for b in (0.0, 0.5, 0.9)]
  made = sensitivity.build(found, COLUMN, 'beta')
  assert made.figure.axes[0].get_xscale() == 'linear'


@pytest.mark.parametrize(
  'column, by', [(COLUMN, 'validation'), ('train_accuracy', 'train accuracy')]
)
def test_the_note_says_what_chose(tmp_path, column, by):
  found = [
    run_folders.make(tmp_path / f'{tau}_{rate}', [0.1, rate], column, tau=tau, mu=rate)
    for tau in (0.1, 1.0)
    for rate in (0.2, 0.3)
  ]
  (table,) = sensitivity.build(found, column, 'tau').tables
  assert table.note == f'Best of several settings by {by}: mu=0.3.'
