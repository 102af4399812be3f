"""Plans: the rungs of a search, and how its runs are read."""

import dataclasses
import json

import pytest

from scripts.cli import plan as plan_lib, resolve
from tests.helpers import sweep_pool


def test_rungs_grow_by_the_reduction_factor_and_end_with_the_run():
  assert plan_lib.Plan(first_rung=2).rungs(30) == [2, 6, 18, 30]
  assert plan_lib.Plan(first_rung=2, reduction_factor=4).rungs(8) == [2, 8]
  assert plan_lib.Plan().rungs(8) == [8]


def test_a_run_is_read_up_to_its_rung(tmp_path):
  run = resolve.resolve(rounds=9, output_dir=str(tmp_path))
  sweep_pool.write_run(run, 9, 0.5)
  result = dataclasses.replace(plan_lib.Plan(), window=2).read(str(tmp_path), 6)
  assert result.window == 2
  assert [row['round'] for row in result.rows] == [*range(7)]


def test_a_run_that_stopped_at_its_target_is_whole(tmp_path):
  sweep_pool.write_run(resolve.resolve(rounds=9, output_dir=str(tmp_path)), 4, 0.5)
  summary = {'is_complete': True, 'rounds': 4, 'stopped_at_target': True}
  (tmp_path / 'summary.json').write_text(json.dumps(summary))
  assert len(plan_lib.Plan().read(str(tmp_path), 9).rows) == 5


def test_a_run_that_lacks_a_row_is_refused(tmp_path):
  sweep_pool.write_run(resolve.resolve(rounds=9, output_dir=str(tmp_path)), 9, 0.5)
  with pytest.raises(ValueError, match=r'lacks round 10 in metrics\.csv: restore'):
    plan_lib.Plan().read(str(tmp_path), 11)
