"""The experiment on robust rules: its smoke run, its attackers, and the price without attack."""

import pandas as pd
import pytest

from research.experiments import robust
from tff_adaptive import aggregation, population


@pytest.mark.exhaustive
def test_the_smoke_run_trains_and_goes_on(tmp_path):
  command = ['robust.py', '--smoke', f'--results={tmp_path}/smoke']
  assert robust.main(command) == 0
  table = pd.read_csv(tmp_path / 'smoke.csv')
  assert len(table) == 4
  assert table['accuracy'].between(0, 1).all()
  assert 'What a rule costs without an attack' in (tmp_path / 'smoke.md').read_text()


def test_the_price_is_the_difference_by_seed_without_an_attack():
  accuracies = {('mean', 0): 0.9, ('mean', 1): 0.8, ('krum', 0): 0.6, ('krum', 1): 0.7}
  rows = [
    {'rule': rule, 'attack': 'none', 'alpha': 0.1, 'seed': seed, 'accuracy': value}
    for (rule, seed), value in accuracies.items()
  ]
  rows.append({'rule': 'krum', 'attack': 'noise', 'alpha': 0.1, 'seed': 0, 'accuracy': 0.0})
  prices = robust.price(pd.DataFrame(rows))
  # 30 and 10 points: 20 in the mean, with a sample deviation of 14.1.
  assert prices.loc['krum', 'alpha = 0.1'] == '20.0 ± 14.1'
  assert list(prices.index) == ['krum']


def test_every_rule_and_attack_is_one_of_the_library():
  assert set(robust.RULES) <= set(aggregation.AGGREGATORS)
  for rule, options in robust.RULES.items():
    aggregation.aggregator(rule).values(options)
  for title, (attack, scale) in robust.ATTACKS.items():
    attackers = robust._attackers(title)
    if title == robust.NO_ATTACK:
      assert attackers is None
    else:
      assert isinstance(attackers, population.Attackers)
      assert (attackers.attack, attackers.scale) == (attack, scale)
