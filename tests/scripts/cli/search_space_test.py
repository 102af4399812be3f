"""Spaces: ranges are read as written, draws have what their algorithm has."""

import pytest

from scripts.cli import search_space

optuna = pytest.importorskip('optuna')


def test_ranges():
  found = search_space.ranges(['tau=1e-4,0.1,log', 'clients_per_round=2,8'], {})
  assert found == {
    'tau': search_space.Range(1e-4, 0.1, True, False),
    'clients_per_round': search_space.Range(2, 8, False, True),
  }
  with pytest.raises(ValueError, match='each flag once'):
    search_space.ranges(['tau=0.1,1'], {'tau': ['1']})
  with pytest.raises(ValueError, match='give seeds one by one'):
    search_space.ranges(['seed=1,3'], {})


def _points(number, axes, **ranges):
  space = search_space.Space(axes, ranges, (), {})
  space.check()
  study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
  return [space.draw(study.ask()) for _ in range(number)]


def test_draws_lie_in_their_ranges_and_have_what_counts():
  axes = {
    'mu': ['0.1', '0.2'],
    'server_optimizer': ['sgd', 'adam'],
    'algorithm': ['fed_avg', 'ada_best'],
  }
  tau = search_space.Range(1e-3, 1e-1, True, False)
  found = _points(60, axes, tau=tau, batch_size=search_space.Range(4, 6, False, True))
  kinds = set()
  for point in found:
    assert point['batch_size'] in ('4', '5', '6')
    assert ('mu' in point) == (point['algorithm'] == 'ada_best') == ('server_optimizer' in point)
    assert ('tau' in point) == (point.get('server_optimizer') == 'adam')
    assert 1e-3 <= float(point.get('tau', 1e-2)) <= 1e-1
    kinds.add((point['algorithm'], point.get('server_optimizer')))
  assert kinds == {('fed_avg', None), ('ada_best', 'sgd'), ('ada_best', 'adam')}
  below = sum(float(point['tau']) < 1e-2 for point in found if 'tau' in point)
  assert 4 < below < 16  # Half of some twenty, by the logarithm: a tenth otherwise.


def test_a_value_that_no_draw_may_give_is_refused_before_any():
  with pytest.raises(ValueError, match='--mu must be'):
    _points(0, {'algorithm': ['fed_avg', 'ada_best'], 'mu': ['0.1', '-1']})
  with pytest.raises(ValueError, match='--tau has no meaning'):
    _points(0, {'algorithm': ['fed_avg']}, tau=search_space.Range(0.1, 1, False, False))


@pytest.mark.parametrize(
  'axes, seeds, words',
  [
    ({'tau': ['0.1', '1']}, ('0', '1', '00'), 'seed=0 and seed=00 are the same run'),
    ({'tau': ['0.1', '1e-1']}, ('0', '1'), 'tau=0.1 and tau=1e-1 are the same run; give each'),
  ],
)
def test_a_value_that_is_given_twice_is_refused(axes, seeds, words):
  with pytest.raises(ValueError, match=words):
    search_space.Space(axes, {}, seeds, {}).check()
