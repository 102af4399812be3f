"""Early stopping, budgets and the best weights: by hand, and the same when resumed."""

import json
import os
import warnings

import numpy as np
import pytest

from tests.helpers import fakes
from tff_adaptive import costs, population, registry, training
from tff_adaptive.runs import summary
from tff_adaptive.training import config as config_lib, stopping

COSTS = costs.CostModel(registry.Counts(), num_parameters=250_000, batch_size=2)  # 1 MB.


def config(**options):
  return training.TrainingConfig(100, 5, cost_model=COSTS, **options)


def rows_of(column, values):
  return [{'round': i, column: value} for i, value in enumerate(values)]


def stop_round(values, column='validation_loss', **options):
  """The round after which a run with these values stops, and why."""
  state = stopping.Stopping(config(**options))
  for row in rows_of(column, values):
    state.add(row)
    if state.reason is not None:
      return row['round'], state.reason
  return None


@pytest.mark.parametrize(
  'values, options, expected',
  [
    ([3, 2, 2.5, 2.4, 1], {'patience': 2}, 3),
    ([3, 2, 2.5, 1.9, 2, 2], {'patience': 2}, 5),
    ([3, 2.9, 2.8, 2.7], {'patience': 2, 'min_delta': 0.5}, 2),
    ([3, 2.9, 2.4, 2.3], {'patience': 2, 'min_delta': 0.5}, None),
    ([3, np.nan, np.nan], {'patience': 2}, 2),
    ([np.nan, np.nan], {'patience': 2}, 1),
    ([3, 3], {'patience': 1}, 1),
  ],
)
def test_a_run_stops_after_patience_evaluations_without_a_better_value(values, options, expected):
  stopped_at = stop_round(values, early_stop='loss', **options)
  assert stopped_at == (None if expected is None else (expected, 'early_stop'))


def test_high_values_are_good_unless_they_are_errors():
  options = {'early_stop': 'accuracy', 'patience': 2}
  assert stop_round([0.5, 0.6, 0.7, 0.8], 'validation_accuracy', **options) is None
  assert stop_round([0.8, 0.7, 0.6], 'validation_accuracy', **options) == (2, 'early_stop')


def test_the_model_for_inference_counts_if_there_is_one_and_a_column_may_be_named():
  rows = [
    {'round': i, 'validation_loss': 3.0, 'inference_loss': 3.0 - i, 'train_loss': 1.0 + i}
    for i in range(4)
  ]
  for name, expected in (('loss', None), ('validation_loss', 2), ('train_loss', 2)):
    state = stopping.Stopping(config(early_stop=name, patience=2))
    reasons = []
    for row in rows:
      state.add(row)
      reasons.append(state.reason)
    assert reasons.index('early_stop') == expected if expected else not any(reasons)


def test_rounds_without_an_evaluation_do_not_count():
  state = stopping.Stopping(config(early_stop='loss', patience=2))
  for number in range(10):
    state.add({'round': number, **({'validation_loss': 1.0} if number % 4 == 0 else {})})
    assert (state.reason is not None) == (number >= 8)


def train(folder, rounds=20, **options):
  return fakes.train(folder, rounds, cost_model=COSTS, **options)


def evaluate_norm(weights):
  """A loss that falls and then rises, as the weights of the fake process grow."""
  return {'loss': abs(float(np.linalg.norm(weights[0])) - 12.0), 'accuracy': 0.5}


def test_a_run_that_stops_early_is_complete_and_says_why(tmp_path):
  options = {'rounds_per_evaluation': 1, 'evaluate': evaluate_norm, 'early_stop': 'loss'}
  result = train(tmp_path, 60, patience=3, **options)
  assert result.is_complete
  assert result.round_number < 60
  written = json.loads((tmp_path / 'summary.json').read_text())
  assert written['stopped_early'] == 'early_stop'
  assert summary.is_complete(str(tmp_path), 60)
  values = [float(row['inference_loss']) for row in fakes.rows(tmp_path)]
  assert min(values) == values[-4]
  again = train(tmp_path, 60, patience=3, **options)
  assert again.round_number == result.round_number
  further = train(tmp_path, 60, patience=6, **options)
  assert further.round_number > result.round_number


def test_a_run_says_that_no_column_has_the_name_to_stop_by(tmp_path):
  with pytest.warns(UserWarning, match="early_stop='los' had no effect: no round has such a"):
    train(tmp_path / 'wrong', 2, early_stop='los')
  with warnings.catch_warnings():
    warnings.filterwarnings('error', message='early_stop')
    train(tmp_path / 'right', 2, early_stop='train_loss')


def test_a_resumed_run_stops_in_the_same_round(tmp_path):
  options = {'rounds_per_evaluation': 2, 'evaluate': evaluate_norm, 'early_stop': 'loss'}
  options['keep_best'] = True
  whole = train(tmp_path / 'whole', 60, patience=2, **options)
  for rounds in (3, 7, 60):
    parts = train(tmp_path / 'parts', rounds, patience=2, **options)
  assert parts.round_number == whole.round_number
  assert parts.summary['best'] == whole.summary['best']
  for one, other in zip(whole.best_weights, parts.best_weights):
    np.testing.assert_array_equal(one, other)


BUDGETS = {
  'max_megabytes': (55.0, 6),  # 10 MB a round.
  'max_gradients': (40.0, None),
  'max_virtual_seconds': (100.0, None),
}


@pytest.mark.parametrize('name', BUDGETS)
def test_a_budget_ends_the_run_with_an_evaluation(tmp_path, name):
  budget, expected = BUDGETS[name]
  clients = population.Population(population.Always(), population.Speed(5.0, speed_sigma=0.5))
  result = train(tmp_path, 50, population=clients, rounds_per_evaluation=1000, **{name: budget})
  rows = fakes.rows(tmp_path)
  costs_by_round = []
  for row in rows[1:]:
    costs_by_round.append(sum(float(row[column]) for column in config_lib.BUDGETS[name]))
  assert sum(costs_by_round) >= budget
  assert sum(costs_by_round[:-1]) < budget
  assert expected in (None, result.round_number)
  assert rows[-1]['validation_loss']
  assert result.is_complete
  assert result.summary['stopped_early'] == name


@pytest.mark.parametrize('folder', [True, False])
def test_the_best_weights_are_those_of_the_best_evaluation(tmp_path, folder):
  folder = tmp_path if folder else None
  seen = {}

  def evaluate(weights):
    value = evaluate_norm(weights)
    seen[value['loss']] = weights[0].copy()
    return value

  options = {'rounds_per_evaluation': 1, 'evaluate': evaluate, 'keep_best': True, 'metric': 'loss'}
  result = train(folder, 30, **options)
  best = result.summary['best']
  assert best['column'] == 'inference_loss'
  rows = seen[best['value']]
  np.testing.assert_array_equal(result.best_weights[0], rows)
  if folder is not None:
    values = [float(row['inference_loss']) for row in fakes.rows(tmp_path)]
    assert values.index(min(values)) == best['round']
    path = tmp_path / 'checkpoints' / stopping.BEST_FILE
    stored, weights = training.read_best(str(path))
    assert tuple(stored) == (best['round'], 'inference_loss', best['value'])
    np.testing.assert_array_equal(weights[0], rows)


def test_without_keep_best_there_is_no_file(tmp_path):
  assert train(tmp_path, 3).best_weights is None
  assert os.listdir(tmp_path / 'checkpoints') == ['state.sqlite']


@pytest.mark.parametrize('damage', ['removed', 'cut'])
def test_lost_best_weights_are_replaced_by_those_of_the_next_evaluation(tmp_path, damage):
  options = {'rounds_per_evaluation': 1, 'evaluate': evaluate_norm, 'keep_best': True}
  train(tmp_path, 5, metric='loss', **options)
  path = tmp_path / 'checkpoints' / stopping.BEST_FILE
  if damage == 'removed':
    path.unlink()
  else:
    path.write_bytes(path.read_bytes()[:100])
  result = train(tmp_path, 6, metric='loss', **options)
  assert result.summary['best']['round'] == 6
  assert training.read_best(str(path))[0].round_number == 6


@pytest.mark.parametrize('damage', ['removed', 'cut', 'of another round', 'other weights'])
def test_best_weights_that_are_lost_after_the_last_round_are_written_again(tmp_path, damage):
  path = tmp_path / 'checkpoints' / stopping.BEST_FILE

  class Damager(training.Callback):
    def checkpoint(self, number):
      if number == 5:
        damage_best(path, damage)

  options = {'rounds_per_evaluation': 1, 'evaluate': evaluate_norm, 'keep_best': True}
  result = train(tmp_path, 5, metric='loss', callbacks=[Damager()], **options)
  best, weights = training.read_best(str(path))
  expected = result.summary['best']
  assert tuple(best) == (expected['round'], expected['column'], expected['value'])
  for stored, of_result in zip(weights, result.best_weights, strict=True):
    np.testing.assert_array_equal(stored, of_result)


def damage_best(path, damage):
  """Damages the file of the best weights."""
  if damage == 'removed':
    path.unlink()
  elif damage == 'cut':
    os.truncate(path, 100)
  else:
    best, weights = stopping.read_best(str(path))
    if damage == 'of another round':
      best = best._replace(round_number=best.round_number + 1)
    else:
      weights = [weight + 1 for weight in weights]
    stopping._write_best(str(path), best, weights)


@pytest.mark.parametrize(
  'options, words',
  [
    ({'patience': 0}, 'patience must be at least 1'),
    ({'min_delta': -1.0}, 'min_delta must be finite and at least 0'),
    ({'max_megabytes': 0.0}, 'max_megabytes must be finite and above 0'),
    ({'max_virtual_seconds': 5.0}, 'max_virtual_seconds is given without a population'),
    ({'max_gradients': 5.0, 'cost_model': None}, 'max_gradients is given without a cost_model'),
  ],
)
def test_what_cannot_be_is_refused(options, words):
  with pytest.raises(ValueError, match=words):
    training.TrainingConfig(3, 2, **{'cost_model': COSTS, **options})
