"""The estimate is the closed form where there is one, and has the parts that it says."""

import dataclasses

import pytest

from research.experiments import cluster_on_paper as paper

FREE = paper.Machine(1e30, 1e30, 1e30, 0.0, 0.0, 0.0)
WORK = paper.Work('w', 1000, 6, 0.5, 10.0)


def test_without_costs_of_moving_a_round_is_the_training_divided():
  found = paper.estimate(WORK, 2, [4] * 6, FREE)
  assert found.total == pytest.approx(6 * 4 * 0.5 / 2)
  assert found.narrow_place == 'training'
  # The costliest first: 5, then 3 + 2, and 2 as the last of the first's.
  assert paper.makespan([5, 3, 2, 2], 2) == 7


def test_each_part_is_its_closed_form():
  machine = dataclasses.replace(FREE, network=100.0, memory=1000.0)
  found = paper.estimate(WORK, 3, [4] * 9, machine)
  assert found.broadcast == pytest.approx(2 * 4000 / 100)  # 1, 2, 4 nodes have the weights.
  assert found.merging == pytest.approx(2 * (4000 / 100 + 2 * 4000 / 1000))  # 3 sums, 2 levels.
  assert found.trainer == pytest.approx(4000 / 100 + 10 * 4000 / 1000)
  stateful = paper.estimate(dataclasses.replace(WORK, is_stateful=True), 3, [4] * 9, machine)
  assert stateful.states == pytest.approx((9 * 8000 + 360) / 3 / 100 - 6)
  assert stateful.total - found.total == pytest.approx(stateful.states - found.states)


def test_the_command_prints_a_row_for_each_number_of_workers(capsys):
  assert paper.main(['cluster_on_paper.py']) == 0
  rows = capsys.readouterr().out.splitlines()
  assert len(rows) == 2 + 4 * 4
  assert rows[2].startswith("| EMNIST's CNN, 10,000 | 1 | ")


def test_more_is_never_slower_in_training_and_every_client_is_counted():
  sizes = paper.client_sizes(100, 0)
  assert min(sizes) >= 20
  assert max(sizes) <= 400
  times = [paper.estimate(WORK, n, sizes, FREE).training for n in (1, 2, 8, 64)]
  assert times == sorted(times, reverse=True)
  assert times[0] == pytest.approx(sum(sizes) * 0.5)
