"""What a search varies, and which methods are compared."""

import numpy as np
import pytest

from scripts.comparison import methods, problems
from tff_adaptive import registry


def test_the_small_budget_is_a_grid_of_client_rates():
  points = methods.points(methods.Method('fed_adam'), (0.01, 1.0), methods.BUDGETS['small'])
  rates = [point.pop('client_learning_rate') for point in points]
  np.testing.assert_allclose(rates, np.geomspace(0.01, 1, 4), rtol=1e-3)
  assert points == [{}] * 4
  # Adam's steps at the clients have another size, whatever the budget.
  for name in ('fed_lalr', 'fed_adamw', 'fed_muon', 'fed_lada'):
    points = methods.points(methods.Method(name), (0.01, 1.0), methods.BUDGETS['small'])
    np.testing.assert_allclose(
      [point['client_learning_rate'] for point in points], np.geomspace(3e-4, 0.1, 4), rtol=1e-3
    )


def test_the_full_budget_is_a_halton_sequence_of_all_settings():
  searched = methods.Method('fed_avg', searched=('clip_norm=1,3',))
  points = methods.points(searched, (0.01, 1.0), methods.BUDGETS['full'])
  assert [*points[0]] == ['client_learning_rate', 'server_learning_rate', 'clip_norm']
  assert len(points) == 12
  # 1/2, 1/4, 3/4 in base 2; 1/3, 2/3, 1/9 in base 3; 1/5, 2/5, 3/5 in base 5.
  shares = [[1 / 2, 1 / 3, 1 / 5], [1 / 4, 2 / 3, 2 / 5], [3 / 4, 1 / 9, 3 / 5]]
  for point, (first, second, third) in zip(points, shares):
    assert point['client_learning_rate'] == pytest.approx(0.01 * 100**first, rel=1e-3)
    assert point['server_learning_rate'] == pytest.approx(0.1 * 30**second, rel=1e-3)
    assert point['clip_norm'] == pytest.approx(1 + 2 * third, rel=1e-3)


@pytest.mark.parametrize(
  'text', ['mu', 'mu=1', 'mu=1,2,3', 'mu=2,1', 'mu=0,1,log', 'mu=1,nan', '1mu=1,2', 'mu=1,2,lin']
)
def test_what_is_no_range_is_refused(text):
  with pytest.raises(ValueError, match=r'--search=.*NAME=LOW,HIGH'):
    methods.read_range(text)


def test_every_method_of_the_registry_is_compared_or_left_out_with_a_reason():
  compared = {method.key for method in methods.built_in()}
  reasons = methods.left_out()
  assert compared | set(reasons) == set(registry.ALGORITHMS)
  assert not compared & set(reasons)
  assert {'fed_per', 'ditto', 'apfl', 'scaffnew'} <= set(reasons)
  assert {'fed_avg', 'scaffold', 'moon', 'fed_dc'} <= compared


def test_a_search_varies_a_number_of_each_method_that_has_any():
  assert set(methods.SEARCHED) == {method.key for method in methods.built_in()}
  for name, texts in methods.SEARCHED.items():
    searched = {text.partition('=')[0] for text in texts}
    entry = registry.algorithm(name)
    settings = [setting for setting in entry.hyperparameters if setting.kind is float]
    numbers = {setting.name for setting in settings}
    of_chain = {'client_learning_rate', 'server_learning_rate', 'tau', 'sam_rho'}
    assert searched <= numbers | of_chain
    # Mime's and MimeLite's numbers are those of the optimizer that they freeze.
    assert searched & numbers or not numbers or name in ('mime', 'mime_lite', 'fed_nova'), name


def test_a_key_names_the_flags_and_the_digest_changes_with_file_and_flags(tmp_path):
  plain = methods.Method('ada_best')
  assert (plain.key, plain.title, plain.digest()) == ('ada_best', 'AdaBest', '')
  with_yogi = methods.Method('ada_best', {'server_optimizer': 'yogi'})
  assert with_yogi.key == 'ada_best server_optimizer=yogi'
  assert with_yogi.title == 'AdaBest, server_optimizer=yogi'
  assert len(with_yogi.digest()) == 12
  assert not with_yogi.is_built_in
  file = tmp_path / 'mine.py'
  text = (
    'import dataclasses\nfrom tff_adaptive.corrections import base\n\n'
    '@dataclasses.dataclass(frozen=True)\nclass Mine(base.Correction):\n  x: float = 1.0\n'
  )
  file.write_text(text)
  mine = methods.Method(f'{file}:Mine')
  before = mine.digest()
  assert (mine.key, mine.title) == ('mine.py:Mine', 'Mine')
  assert methods.Method(mine.reference, {'clip_norm': 1.0}).digest() != before
  file.write_text(text + '# Changed.\n')
  assert mine.digest() != before
  of_flag = methods.Method('ada_best', {'server_optimizer': f'{file}:Mine'})
  before = of_flag.digest()
  file.write_text(text)
  assert of_flag.digest() != before


def test_problems_have_ten_evaluations_and_no_flag_of_the_method():
  for name, problem in problems.PROBLEMS.items():
    flags = dict(flag.removeprefix('--').split('=', 1) for flag in problem.flags)
    assert not {'algorithm', 'seed', 'client_learning_rate', 'output_dir'} & set(flags), name
    if name in problems.OFFLINE:
      evaluations = int(flags['rounds']) / int(flags['rounds_per_evaluation'])
      assert evaluations == problems.EVALUATIONS
      assert not problem.files
      assert problem.rounds_of(problems.EVALUATIONS + 1)[-1] == int(flags['rounds'])
  assert problems.by_default(None) == list(problems.OFFLINE)
