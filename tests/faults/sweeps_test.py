"""A few of the damages of `sweeps`: refused, or a grid's table is the same."""

import random

import pytest

pytest.importorskip('optuna')
from tests.faults import sweeps


@pytest.mark.parametrize('of', ['grid', 'asha'])
def test_a_damaged_sweep_is_refused_or_ends_as_it_did(of, tmp_path):
  attack, rng = sweeps.Attack(str(tmp_path), of), random.Random(of)
  for kind in sweeps.KINDS:
    for _ in range(2):
      attack.attempt(kind, rng)


@pytest.mark.parametrize('kind', sweeps.RUNS_KINDS)
def test_a_complete_run_with_damaged_rows_is_no_part_of_a_mean(kind, tmp_path):
  assert sweeps.Attack(str(tmp_path), 'grid').attempt(kind, random.Random(1)) == 'refused'
