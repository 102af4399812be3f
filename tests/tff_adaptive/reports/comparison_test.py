"""The comparison: its notes and the order of its rows."""

import math

from tests.helpers import run_folders
from tff_adaptive.reports import comparison
from tff_adaptive.runs import groups as groups_lib

COLUMN = 'validation_accuracy'


def test_the_note_says_which_curve_ends_early_and_why(tmp_path):
  found = [
    run_folders.make(tmp_path / str(seed), values, seed=seed, rounds=3)
    for seed, values in enumerate(([0.1, 0.2, 0.3, 0.4], [0.1, 0.2], [0.1, 0.3, 0.4, 0.5]))
  ]
  made = comparison.build({'a': found}, [COLUMN])
  assert made.tables[0].note == (
    f'Not complete: 1 of 3 runs: {tmp_path / "1"} (1 of 3 rounds). The curve of a ends at round 1,'
    f' the last that all its runs have, because of {tmp_path / "1"}.'
  )
  assert [text.get_text() for text in made.figure.legends[0].get_texts()] == [
    'a (n = 3), to round 1'
  ]
  made = comparison.build({'a': found[::2]}, [COLUMN])
  assert not made.tables[0].note


def test_runs_without_a_round_in_common_have_no_curve_and_are_named(tmp_path):
  found = [run_folders.make(tmp_path / str(seed), [0.1, 0.2], seed=seed) for seed in range(3)]
  del found[0].rows[0][COLUMN]
  del found[1].rows[1][COLUMN]
  made = comparison.build({'a': found[:2], 'b': found[2:]}, [COLUMN])
  assert f'a has no curve: its runs have no round with {COLUMN} in common.' in made.tables[0].note
  assert [line.split(',')[0] for line in made.data.splitlines()] == ['label', 'b', 'b']


def test_a_run_whose_loss_diverged_is_left_out_of_the_curve_of_its_accuracy(tmp_path):
  ends = [(value, {'seed': seed}) for seed, value in enumerate((0.2, 0.4, 0.9))]
  found = run_folders.each(tmp_path, ends)
  found[2].rows[-1]['validation_loss'] = math.nan
  made = comparison.build({'a': found, 'b': found[2:]}, [COLUMN])
  shown = {text.get_text() for text in made.figure.legends[0].get_texts()}
  assert shown == {'a (n = 2, 1 diverged)', 'b (diverged)'}
  assert made.data.splitlines()[2:] == [
    'a,1,0.3,0.141421',
    'b (diverged),0,0.1,0',
    'b (diverged),1,0.9,0',
  ]


def test_rows_are_sorted_by_numbers(tmp_path):
  found = run_folders.each(tmp_path, [(0.2, {'clients_per_round': n}) for n in (10, 2, 20, 5)])
  made = comparison.build(groups_lib.group(found), [COLUMN])
  assert [row[0] for row in made.tables[0].rows] == [
    f'clients_per_round={number}' for number in (2, 5, 10, 20)
  ]
