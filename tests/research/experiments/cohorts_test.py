"""The experiment on rules for cohorts: its smoke run, the way to a target, and the gain."""

import math

import numpy as np
import pandas as pd
import pytest

from research.experiments import cohorts


@pytest.mark.exhaustive
def test_the_smoke_run_trains_and_goes_on(tmp_path):
  command = ['cohorts.py', '--smoke', f'--results={tmp_path}/smoke']
  assert cohorts.main(command) == 0
  table = pd.read_csv(tmp_path / 'smoke.csv')
  assert list(table['rule']) == ['uniform', 'oort']
  assert 'times as quick as uniform' in (tmp_path / 'smoke.md').read_text()
  assert cohorts.main([*command, '--report_only']) == 0


def test_what_the_target_took_is_the_sum_up_to_the_first_evaluation_at_it():
  rows = [
    {'round': 0, 'validation_accuracy': 0.1},
    {'round': 1, 'virtual_seconds': 3.0, 'megabytes_down': 2.0, 'megabytes_up': 1.0},
    {'round': 2, 'virtual_seconds': 4.0, 'validation_accuracy': 0.6},
    {'round': 3, 'virtual_seconds': 5.0, 'validation_accuracy': 0.9},
  ]
  assert cohorts.to_target(rows, 0.5) == {'rounds': 2, 'seconds': 7.0, 'megabytes': 3.0}
  assert cohorts.to_target(rows, 0.95) == dict.fromkeys(('rounds', 'seconds', 'megabytes'), np.inf)


def test_the_gain_is_the_range_over_seeds_that_both_reached():
  seconds = {('uniform', 0): 10.0, ('uniform', 1): 30.0, ('uniform', 2): math.inf}
  seconds.update({('oort', 0): 5.0, ('oort', 1): 10.0, ('oort', 2): 1.0})
  rows = [
    {'server': 'all', 'rule': rule, 'seed': seed, 'seconds': value}
    for (rule, seed), value in seconds.items()
  ]
  assert cohorts.gains(pd.DataFrame(rows)) == {('all', 'oort'): '2.00 to 3.00'}


def test_the_traces_are_the_same_each_time_and_clients_come_and_go():
  ids = [f'c{i}' for i in range(30)]
  availability, speed = cohorts.traces(ids)
  again, _ = cohorts.traces(ids)
  assert availability.intervals == again.intervals
  assert set(speed.profiles['seconds_per_step']) == set(ids)
  mask = availability.bind(ids, 0)
  shares = [np.mean(mask(1, seconds)) for seconds in (0.0, 900.0, 1800.0)]
  assert min(shares) > 0.2
  assert max(shares) < 0.8
