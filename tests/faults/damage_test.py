"""A few of the damages of `damage`: noticed, or without effect."""

import os
import random
import shutil

import pytest

from tests.faults import damage, small_run

STATE = os.path.join('checkpoints', 'state.sqlite')


@pytest.fixture(scope='module')
def attack(tmp_path_factory):
  return damage.Attack(str(tmp_path_factory.mktemp('attack')))


@pytest.mark.parametrize('kind', damage.KINDS)
@pytest.mark.parametrize('name', [STATE, 'metrics.csv'])
def test_a_damaged_file_is_refused_or_makes_no_difference(attack, name, kind):
  rng = random.Random(f'{name} {kind}')
  for _ in range(6):
    attack.attempt(name, lambda path: damage.damage(path, kind, rng))


def _flip_in(path, needle):
  """Flips a bit of the last place where `needle` stands in a file."""
  with open(path, 'r+b') as file:
    where = file.read().rindex(needle)
    file.seek(where)
    file.write(bytes([needle[0] ^ 4]))
  return f'bit in {needle!r}'


def test_a_bit_of_the_server_state_is_noticed_and_the_previous_checkpoint_helps(attack, tmp_path):
  shutil.copytree(os.path.join(attack._folder, 'run'), tmp_path / 'run')
  whole = attack._expected
  weights = small_run.outcome(str(tmp_path / 'run'))[2]

  def flip(path):
    return _flip_in(path, weights)

  assert attack.attempt(STATE, flip) == 'refused'
  assert attack.attempt(STATE, flip, 'previous') == 'equal'
  flip(str(tmp_path / 'run' / STATE))
  with pytest.raises(ValueError, match=r'round 10 is damaged .*previous checkpoint, of round 8'):
    small_run.train(str(tmp_path / 'run'), 14)
  assert small_run.train(str(tmp_path / 'run'), 14, 'previous').is_complete
  assert small_run.outcome(str(tmp_path / 'run')) == whole
