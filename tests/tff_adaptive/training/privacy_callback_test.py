"""Epsilon in the rows that are evaluated, and in the summary."""

import csv
import os

import pytest

from tests.helpers import fakes
from tff_adaptive import training
from tff_adaptive.aggregation import SampledGaussian


@pytest.mark.parametrize('rounds', [7, 9])
def test_epsilon_stands_in_evaluated_rounds_and_in_the_summary(tmp_path, rounds):
  accountant = SampledGaussian(20, 5, 1.5)
  result = training.train(
    fakes.StatefulProcess(),
    fakes.Clients(),
    fakes.evaluate,
    training.TrainingConfig(rounds=rounds, clients_per_round=5, rounds_per_evaluation=3),
    output_dir=str(tmp_path),
    callbacks=[training.PrivacyCallback(accountant, 1e-3, 3)],
    show_progress=False,
  )
  with open(os.path.join(tmp_path, 'metrics.csv'), newline='', encoding='utf-8') as file:
    found = {int(r['round']): r['epsilon'] for r in csv.DictReader(file) if r['epsilon']}
  assert list(found) == [3, 6, rounds]
  for number, value in found.items():
    assert float(value) == accountant.epsilon(number, 1e-3)
  assert result.summary['privacy'] == {
    'neighbours': 'one client is replaced',
    'noise_multiplier': 1.5,
    'delta': 1e-3,
    **accountant.epsilons(rounds, 1e-3),
  }
  assert result.summary['last']['epsilon'] == accountant.epsilon(rounds, 1e-3)
