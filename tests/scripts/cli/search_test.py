"""A trial: its runs go from rung to rung; what one of them comes to is the trial's result."""

import math

import pytest

from scripts.cli import resolve, worker
from tests.helpers import sweep_pool

pytest.importorskip('optuna')
from scripts.cli import search, study


class _Claim:
  """Prunes after the rounds that it was made with."""

  def __init__(self, runs, prunes_at=None):
    self.runs, self.reported, self.finished, self.is_closed = runs, [], None, False
    self._prunes_at = prunes_at

  def should_prune(self, rounds, score):
    self.reported.append((rounds, score))
    return rounds == self._prunes_at

  def finish(self, state, score=None, reason=''):
    self.finished = (state, score, reason)

  def close(self):
    self.is_closed = True


def _do(tmp_path, values, prunes_at=None, metric=None, column='validation_loss'):
  """Does a trial of two seeds, whose runs come to values, or to answers."""
  runs = [resolve.resolve(rounds=9, seed=n, output_dir=str(tmp_path / str(n))) for n in (0, 1)]
  claim, trained = _Claim(runs, prunes_at), []

  def train(run, last_round):
    trained.append((run.what.seed, last_round))
    if isinstance(values[run.what.seed], worker.Answer):
      return values[run.what.seed]
    sweep_pool.write_run(run, last_round or 9, values[run.what.seed], column)
    return worker.Answer('done')

  search.do(claim, study.Plan('tpe', first_rung=1, metric=metric), train)
  return claim, trained


def test_it_is_the_mean_of_its_seeds_reported_at_each_rung(tmp_path):
  claim, trained = _do(tmp_path, [1.0, 2.0])
  assert trained == [(0, 1), (1, 1), (0, 3), (1, 3), (0, None), (1, None)]
  assert claim.reported == [(1, -1.5), (3, -1.5)]  # Little of a loss is good.
  assert claim.finished == ('done', -1.5, '')
  claim, trained = _do(tmp_path, [1.0, 3.0], prunes_at=3)
  assert claim.finished == ('pruned', -2.0, '')
  assert trained[-1] == (1, 3)


@pytest.mark.parametrize(
  'values, expected',
  [
    ([worker.Answer('failed', 'no disk'), 1.0], ('failed', None, 'no disk')),
    ([worker.Answer('diverged', 'a'), worker.Answer('failed', 'b')], ('failed', None, 'b')),
    ([1.0, worker.Answer('diverged', 'no luck')], ('diverged', None, 'no luck')),
    ([1.0, math.nan], ('diverged', None, 'validation_loss is not finite.')),
    ([worker.Answer('stopped'), worker.Answer('failed', 'b')], None),
  ],
)
def test_a_run_that_comes_to_nothing_decides(tmp_path, values, expected):
  claim, trained = _do(tmp_path, values)
  assert claim.finished == expected
  assert claim.is_closed == (expected is None)  # For whoever goes on.
  assert trained == [(0, 1), (1, 1)]


def test_a_run_whose_loss_reports_call_diverged_is_so_here(tmp_path):
  run = resolve.resolve(rounds=9, output_dir=str(tmp_path))
  sweep_pool.write_run(run, 9, 0.75)
  rows = ''.join(f'{t},{101 if t else 1},{0.75 if t else 0.1}\n' for t in range(10))
  (tmp_path / 'metrics.csv').write_text(f'round,validation_loss,validation_accuracy\n{rows}')
  claim, plan = _Claim([run]), study.Plan('tpe', metric='validation_accuracy')
  search.do(claim, plan, lambda *_: worker.Answer('done'))
  assert claim.finished == ('diverged', None, search.LOSS_DIVERGED)


def test_a_run_is_read_whole_and_up_to_its_rung(tmp_path):
  run = resolve.resolve(rounds=9, output_dir=str(tmp_path))
  sweep_pool.write_run(run, 9, 0.5)
  found = search.read_whole(str(tmp_path), 6)
  assert [row['round'] for row in found.rows] == [*range(7)]
  assert search.are_complete([run])
  with pytest.raises(ValueError, match=r'lacks round 10 in metrics\.csv: bring back'):
    search.read_whole(str(tmp_path), 11)
