"""A few of the damages of `damage`: noticed, or without effect."""

import os
import random

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


def test_a_bit_of_the_server_state_is_noticed_and_the_previous_checkpoint_helps(attack):
  weights = small_run.outcome(os.path.join(attack._folder, 'run'))[2]

  def flip(path):
    """Flips a bit of the last place where the weights stand in the file."""
    with open(path, 'r+b') as file:
      where = file.read().rindex(weights)
      file.seek(where)
      file.write(bytes([weights[0] ^ 4]))

  assert attack.attempt(STATE, flip) == 'refused'
  with pytest.raises(ValueError, match=r'round 10 is damaged .*previous checkpoint, of round 8'):
    small_run.train(os.path.join(attack._folder, 'copy'), 14)
  assert attack.attempt(STATE, flip, 'previous') == 'equal'
