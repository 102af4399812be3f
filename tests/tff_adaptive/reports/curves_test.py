"""Mean curves: over which runs, along what."""

import math

import numpy as np
import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import curves
from tff_adaptive.runs import run as run_lib


def test_the_axis_adds_up_what_rounds_took(tmp_path):
  run = run_folders.make(tmp_path / 'a', [0.1, 0.2, 0.3], every=2)
  for axis, per_round in (('round', 1.0), ('seconds', 0.5), ('megabytes', 3.0)):
    (curve,) = curves.build({'a': [run]}, 'validation_accuracy', axis)
    np.testing.assert_allclose(curve.x, [0, 2 * per_round, 4 * per_round])
  with pytest.raises(ValueError, match=r"no column 'virtual_seconds' .* than virtual_seconds"):
    curves.build({'a': [run]}, 'validation_accuracy', 'virtual_seconds')
  found = curves.build({'a': [run]}, 'validation_accuracy', 'seconds')
  text = curves.table({'validation_accuracy': found}, 'seconds').splitlines()
  assert text[0] == 'label,round,seconds,validation_accuracy_mean,validation_accuracy_std'
  assert text[2] == 'a,2,1,0.2,0'


@pytest.mark.parametrize(
  'column, end', [('validation_accuracy', math.nan), ('validation_loss', 900.0)]
)
def test_a_run_that_diverged_is_counted_and_not_averaged(tmp_path, column, end):
  start, good = (0.1, 0.5) if math.isnan(end) else (2.0, 0.5)
  members = [
    run_folders.make(tmp_path / str(seed), [start, good, last], column, seed=seed)
    for seed, last in enumerate((0.2, 0.4, end))
  ]
  (curve,) = curves.build({'a': members}, column)
  assert curve.label == 'a (n = 2, 1 diverged)'
  assert curve.mean[-1] == pytest.approx(0.3)
  assert curve.learned == (column == 'validation_loss' or curve.mean[-1] > start)
  (curve,) = curves.build({'a': members[2:]}, column)
  assert curve.label == 'a (diverged)'
  assert curve.diverged
  assert not curve.learned


def test_a_norm_may_grow():
  rows = [{'round': float(t), 'theta_norm': 10.0**t} for t in range(4)]
  (curve,) = curves.build({'a': [run_lib.Run('a', {}, rows)]}, 'theta_norm')
  assert curve.learned
  assert curve.label == 'a'


def test_a_loss_that_grew_somewhat_has_not_diverged_and_not_learned(tmp_path):
  run = run_folders.make(tmp_path / 'a', [2.0, 0.5, 20.0], 'validation_loss')
  (curve,) = curves.build({'a': [run]}, 'validation_loss')
  assert curve.label == 'a'
  assert (curve.diverged, curve.learned) == (False, False)
