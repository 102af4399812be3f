"""Damages one file of a copy of a finished run, and trains on from it.

The run must be refused by a `ValueError` of one line that names its folder, before anything changes
or when a damaged part is read; or its states must end equal to the bit to those of the undamaged
run. With `FAULT_TRIES=300 FAULT_SEED=1` in the environment each damage is tried 300 times.
"""

import os
import random
import shutil
from collections.abc import Callable

import pytest

from tests.faults import small_run

TRIES = int(os.environ.get('FAULT_TRIES', '6'))
SEED = os.environ.get('FAULT_SEED', '0')
STATE = os.path.join('checkpoints', 'state.sqlite')
METRICS = 'metrics.csv'


class Attack:
  """A finished run, to be damaged again and again."""

  def __init__(self, folder: str):
    """Trains the run, and the undisturbed longer one, below `folder`."""
    self._folder = folder
    self._run = os.path.join(folder, 'run')
    small_run.train(self._run, 10)
    whole = os.path.join(folder, 'whole')
    shutil.copytree(self._run, whole)
    small_run.train(whole, 14)
    self._expected = small_run.outcome(whole)

  def attempt(self, name: str, harm: Callable[[str], None], resume_from: str = 'latest') -> bool:
    """Damages file `name` of a copy by `harm`; returns whether it ended equal, not refused."""
    copy = os.path.join(self._folder, 'copy')
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(self._run, copy)
    harm(os.path.join(copy, name))
    before = small_run.contents(copy)
    try:
      small_run.train(copy, 14, resume_from)
    except ValueError as error:
      text = str(error)
      after = small_run.contents(copy)
      assert copy in text
      assert '\n' not in text
      if len(after) > len(before) and 'damaged' in text:  # An event file: the run had begun.
        return False
      assert after == before
      return False
    start = 1 if name == METRICS else 0
    assert small_run.outcome(copy)[start:] == self._expected[start:]
    return True


@pytest.fixture(scope='module')
def attack(tmp_path_factory):
  return Attack(str(tmp_path_factory.mktemp('damage')))


@pytest.mark.parametrize('kind', small_run.KINDS)
@pytest.mark.parametrize('name', [STATE, METRICS])
def test_a_damaged_file_is_refused_or_makes_no_difference(attack, name, kind):
  rng = random.Random(f'{SEED} {name} {kind}')
  for _ in range(TRIES):
    attack.attempt(name, lambda path: small_run.damage(path, kind, rng))


def test_a_bit_of_the_server_state_is_noticed_and_the_previous_checkpoint_helps(attack):
  weights = small_run.outcome(os.path.join(attack._folder, 'run'))[2]

  def flip(path):
    """Flips a bit of the last place where the weights stand in the file."""
    with open(path, 'r+b') as file:
      where = file.read().rindex(weights)
      file.seek(where)
      file.write(bytes([weights[0] ^ 4]))

  assert not attack.attempt(STATE, flip)
  with pytest.raises(ValueError, match=r'round 10 is damaged .*previous checkpoint, of round 8'):
    small_run.train(os.path.join(attack._folder, 'copy'), 14)
  assert attack.attempt(STATE, flip, 'previous')
