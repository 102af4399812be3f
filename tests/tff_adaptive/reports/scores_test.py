"""When a run counts as diverged, and which settings are the best."""

import dataclasses
import math
import typing

import pytest

from tests.helpers import run_folders
from tff_adaptive.reports import scores
from tff_adaptive.runs import run as run_lib


@pytest.mark.parametrize(
  'lost, clients, expected', [(None, 1, False), (1, 10, False), (10, 10, True), (0, 0, False)]
)
def test_a_run_ends_diverged_when_all_clients_of_its_last_round_were_left_out(
  lost, clients, expected, tmp_path
):
  run = run_folders.make(tmp_path / 'run', [0.1, 0.2, 0.3])
  run.rows[1]['non_finite_clients'] = run.rows[1]['clients'] = 10.0  # It recovered.
  run.rows[-1]['clients'] = float(clients)
  if lost is not None:
    run.rows[-1]['non_finite_clients'] = float(lost)
  assert scores.has_diverged(run, 'validation_accuracy') == expected
  value = scores.score([run], 'validation_accuracy').values[0]
  assert math.isnan(value) == expected


@pytest.mark.parametrize(
  'values, expected',
  [
    ([0.0, 0.1, 0.2], False),  # A hundred times 0 is 0: nothing is known from this.
    ([0.5, 49.9], False),
    ([0.5, 50.1], True),
    ([0.5, 50.1, 0.4], False),  # It recovered.
    ([-1.0, -0.5], False),
  ],
)
def test_a_loss_of_more_than_a_hundred_times_the_first_has_diverged(tmp_path, values, expected):
  run = run_folders.make(tmp_path / 'run', values, 'validation_loss')
  assert scores.has_diverged(run, 'validation_loss') == expected


class Judged(typing.NamedTuple):
  """A run that is evaluated every so many rounds, and the evaluations that count."""

  rounds: int
  over: int
  number: int
  every: int = 1
  window: int | None = None


@pytest.mark.parametrize(
  'judged',
  [
    Judged(rounds=9, over=1, number=1),
    Judged(rounds=100, over=10, number=10),
    Judged(rounds=101, over=11, number=11),
    Judged(rounds=1500, over=100, number=100),
    Judged(rounds=1500, every=50, over=100, number=2),
    Judged(rounds=100, every=20, over=10, number=1),
    Judged(rounds=100, window=30, over=30, number=30),
    Judged(rounds=20, window=30, over=20, number=20),
    Judged(rounds=20, every=20, window=5, over=5, number=1),
  ],
)
def test_a_run_is_judged_by_its_last_tenth_or_the_window(judged):
  every = judged.every
  rows = [{'round': t} for t in range(judged.rounds + 1)]
  for row in rows[::every]:
    row['x'] = row['round']
  run = run_lib.Run('x', {}, rows, window=judged.window)
  assert scores.window(run) == judged.over
  assert len(scores.last_values(run, 'x')) == judged.number
  assert scores.last_values(run, 'x')[-1] == judged.rounds
  # One that has just begun has the values there are; the initial model is none.
  for end in (every, every - 1):
    begun = dataclasses.replace(run, rows=rows[: end + 1])
    assert scores.last_values(begun, 'x') == [t for t in range(1, end + 1) if t % every == 0]


def test_settings_that_stopped_early_beat_those_that_diverged_only(tmp_path):
  curves = {0.1: [0.1] + [0.5] * 20 + [0.9] * 80, 0.3: [0.1] + [0.85] * 12, 1.0: [0.1, 0.99]}
  runs = {
    rate: run_folders.make(tmp_path / str(rate), values, client_learning_rate=rate)
    for rate, values in curves.items()
  }
  for rate in (0.1, 0.3):
    runs[rate].settings['rounds'] = 100  # The second has done 12 of them, the third its only one.
  runs[1.0].rows[-1]['validation_loss'] = math.inf
  del runs[1.0].rows[-1]['validation_accuracy']  # As of a run that diverges before an evaluation.
  _, best = scores.best_runs([*runs.values()], 'validation_accuracy')
  assert best == [runs[0.1]]
  _, best = scores.best_runs([runs[0.3], runs[1.0]], 'validation_accuracy')
  assert best == [runs[0.3]]


def test_of_a_loss_the_lowest_is_the_best(tmp_path):
  ends = [(loss, {'client_learning_rate': loss}) for loss in (0.5, 0.2, 0.9)]
  runs = run_folders.each(tmp_path, ends, 'validation_loss', start=1.0)
  assert scores.best_runs(runs, 'validation_loss')[1] == [runs[1]]


@pytest.mark.parametrize(
  'weightings, words',
  [
    ((None, None), ''),
    (('uniform', 'uniform'), 'client_weighting: uniform.'),
    (('examples', 'uniform'), 'client_weighting: examples (FedAvg), uniform (own.py:Mine).'),
  ],
)
def test_the_note_says_how_clients_are_weighed(tmp_path, weightings, words):
  algorithms = ('fed_avg', '/home/own.py:Mine')
  ends = [(0.5, {'algorithm': a, 'client_weighting': w}) for a, w in zip(algorithms, weightings)]
  assert scores.note({}, run_folders.each(tmp_path, ends)) == words


def test_the_note_names_runs_with_finite_models_whose_clients_diverged(tmp_path):
  healthy, impaired, diverged = run_folders.each(tmp_path, [(0.9, {}), (0.4, {}), (0.4, {})])
  impaired.rows[-1].update(clients=10, non_finite_clients=3)
  diverged.rows[-1].update(clients=10, non_finite_clients=10)
  note = scores.note({}, [healthy, impaired, diverged])
  assert f'left out: 1 of 3 runs: {impaired.folder} (3).' in note
  assert f'Diverged: 1 of 3 runs: {diverged.folder}.' in note


def test_runs_of_which_only_the_initial_model_was_evaluated_are_left_out(tmp_path, capsys):
  runs = [
    run_folders.make(tmp_path / name, values, every=2, rounds=4)
    for name, values in (('a', [0.1, 0.2]), ('b', [0.1]), ('c', [0.1, 0.3]))
  ]
  del runs[2].rows[-1]['validation_accuracy']
  for run in runs[::2]:
    run.rows[-1]['train_loss'] = 1.0
  assert scores.evaluated(runs) == runs[:1]
  assert [line.split()[2] for line in capsys.readouterr().err.splitlines()] == [
    *(str(tmp_path / name) for name in 'bc')
  ]
  assert scores.evaluated(runs, 'train_loss') == [runs[0], runs[2]]
  # No run has such a column, which is another error's business.
  assert scores.evaluated(runs[::2], 'train_lost') == runs[::2]
  with pytest.raises(ValueError, match='none of the runs has been evaluated after round 0'):
    scores.evaluated(runs[1:])


def test_theta_bar_is_taken_where_it_was_evaluated(tmp_path):
  test = {'test_accuracy': 0.5, 'test_inference_accuracy': 0.6}
  assert scores.value_on_test(run_folders.make(tmp_path / 'a', [0.1, 0.2], test=test)) == 0.6


@pytest.mark.parametrize('rounds, number, test', [(4000, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 0)])
def test_test_data_are_those_of_the_last_round(tmp_path, rounds, number, test):
  """Not of a run that was complete, was begun again with more rounds, and has not ended yet."""
  if test:
    test = {'test_accuracy': 0.5}
  else:
    test = None
  run = run_folders.make(tmp_path / 'a', [0.1, 0.2], test=test, rounds=rounds)
  run.rows[-1]['round'] = number
  with pytest.raises(ValueError, match=f'summary.json after {number} of {rounds} rounds'):
    scores.value_on_test(run)
