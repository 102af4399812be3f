"""scripts/cli/local_steps.py: clients with one local step, where an algorithm needs two."""

import types

import pytest

from scripts import train
from scripts.cli import local_steps
from tff_adaptive import registry


class _Cost:
  def local_steps(self, examples):
    return -(-examples // 10)


def _check(algorithm, sizes, most=None):
  said = []
  what = types.SimpleNamespace(algorithm=algorithm, algorithm_entry=registry.algorithm(algorithm))
  settings = types.SimpleNamespace(what=what, output=types.SimpleNamespace(say=said.append))
  config = types.SimpleNamespace(cost_model=_Cost(), max_examples_per_client=most)
  clients = types.SimpleNamespace(
    client_ids=[*map(str, range(len(sizes)))], num_examples=lambda client: sizes[int(client)]
  )
  local_steps.check(settings, config, clients)
  return said


@pytest.mark.parametrize('algorithm', ['per_fed_avg', 'fed_rep', 'fed_rep+sam'])
def test_clients_with_one_step_are_counted_and_refused_if_all_are_such(algorithm):
  assert _check(algorithm, [11, 20, 300]) == []
  (line,) = _check(algorithm, [10, 11, 1, 0])
  assert line.startswith('2 of 4 clients have one local step; ')
  assert line.endswith('give smaller batches (--batch_size) or more passes (--client_epochs).')
  with pytest.raises(ValueError, match=r'and all 2 clients have one: give smaller batches'):
    _check(algorithm, [10, 9])
  with pytest.raises(ValueError, match='all 2 clients'):
    _check(algorithm, [100, 90], most=5)


def test_other_algorithms_may_have_one_step():
  assert _check('fed_avg', [1, 1]) == []
  assert _check('fed_per', [1, 1]) == []


def test_train_refuses_clients_of_which_all_have_one_step(capsys):
  assert train.main(['train.py', '--algorithm=per_fed_avg', '--batch_size=0', '--rounds=1']) == 2
  assert 'all 60 clients have one: give smaller batches' in capsys.readouterr().err
