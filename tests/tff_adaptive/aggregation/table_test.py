"""What goes with which algorithm: promises that would not be kept are refused."""

import pytest

from tff_adaptive import registry
from tff_adaptive.aggregation import table

PROMISES = [a.name for a in table.AGGREGATORS.values() if a.promise]


def check(aggregator, algorithm, weighting='uniform', **values):
  table.check(table.aggregator(aggregator), registry.algorithm(algorithm), values, weighting)


@pytest.mark.parametrize('algorithm', registry.ALGORITHMS)
def test_the_mean_and_compression_go_with_all(algorithm):
  assert {*table.AGGREGATORS} - {*PROMISES} == {'mean', 'compression'}
  for aggregator in ('mean', 'compression'):
    check(aggregator, algorithm, 'examples')


@pytest.mark.parametrize('aggregator', PROMISES)
def test_what_is_sent_besides_the_update_is_not_covered(aggregator):
  for algorithm in ('fed_avg', 'fed_yogi', 'fed_prox', 'fed_dyn', 'ada_best'):
    check(aggregator, algorithm, scale_mu=False)
  with pytest.raises(ValueError, match=rf'{aggregator} does not .*scaffold also sends the change'):
    check(aggregator, 'scaffold')
  with pytest.raises(ValueError, match=r'scaffold_m also sends g_i / \(K_i eta_l\)\. Take'):
    check(aggregator, 'scaffold_m')


@pytest.mark.parametrize('aggregator', ['dp_gaussian', 'dp_tree'])
def test_noise_wants_clients_of_equal_weight_and_no_sizes_in_the_model(aggregator):
  with pytest.raises(ValueError, match="has no weights, but client_weighting is 'examples'"):
    check(aggregator, 'fed_avg', 'examples')
  with pytest.raises(ValueError, match='mean number of examples, by which scale_mu'):
    check(aggregator, 'ada_best', scale_mu=True)
  check('clipping', 'ada_best', scale_mu=True)


def test_nobody_vouches_for_what_an_algorithm_of_a_users_own_uploads(tmp_path):
  path = tmp_path / 'own.py'
  path.write_text(
    'import dataclasses\nfrom tff_adaptive import corrections\n\n'
    '@dataclasses.dataclass(frozen=True)\nclass Mine(corrections.Correction):\n'
    "  name = 'mine'\n  def client_update(self, client, g_i, steps): return (), g_i\n"
  )
  with pytest.raises(ValueError, match=r'does not .*: a client of mine also sends'):
    check('secure', f'{path}:Mine')
  check('mean', f'{path}:Mine')


def test_options_that_are_not_given_have_the_values_of_tff_and_of_the_papers():
  names = 'compression', 'dp_gaussian', 'dp_tree'
  values = [list(table.aggregator(name).values({}).values()) for name in names]
  assert values == [[8, 20000, True, True], [None, 0.1, True, 0.5, 0.2, None], [None, 1.0]]


def test_a_wrong_name_or_value_is_refused_in_one_line():
  with pytest.raises(ValueError, match='Did you mean clipping'):
    table.aggregator('cliping')
  for bits, words in ((0, 'at least 1'), (32, 'at most 16')):
    with pytest.raises(ValueError, match=f'bits must be {words}, found {bits}'):
      table.aggregator('compression').values({'bits': bits})
  with pytest.raises(ValueError, match='norm must be finite and above 0, found 0'):
    table.aggregator('clipping').values({'norm': 0.0})
