"""Does a trial of a study: trains its runs from rung to rung, and says how good it is."""

import dataclasses
import math
from collections.abc import Callable, Sequence

from tff_adaptive.reports import scores, tables
from tff_adaptive.runs import run as run_lib, summary

from . import study, worker
from .settings import Settings

LOSS_DIVERGED = 'its validation loss diverged, or all updates of its last round.'
Train = Callable[[Settings, int | None], worker.Answer]


def do(claim: study.Claim, plan: study.Plan, train: Train) -> None:
  """Does a trial, or leaves it as it is if a signal to the command stops a run.

  Args:
    claim: The trial.
    plan: Says where it is compared with others, and by what.
    train: Trains a run up to a round, None: to its end.

  Raises:
    ValueError: If a run has no values of the metric.
  """
  rungs = plan.rungs(claim.runs[0].training.rounds)
  for rounds in rungs:
    is_last = rounds == rungs[-1]
    answers = [train(run, None if is_last else rounds) for run in claim.runs]
    for kind in ('stopped', 'failed', 'diverged'):
      if found := [answer for answer in answers if answer.kind == kind]:
        if kind == 'stopped':
          return claim.close()
        return claim.finish(kind, reason=found[0].reason)
    try:
      done = [read_whole(run.output.output_dir, rounds) for run in claim.runs]
    except ValueError as error:  # Somebody else wrote there.
      return claim.finish('failed', reason=str(error))
    column = plan.metric or tables.default_metric(done)
    score = scores.score(done, column)
    if not score.is_finite:
      is_loss = all(math.isfinite(scores.mean_of_last(run, column) or 0) for run in done)
      reason = LOSS_DIVERGED if is_loss else f'{column} is not finite.'
      return claim.finish('diverged', reason=reason)
    value = scores.sign(column) * score.mean
    if is_last or claim.should_prune(rounds, value):
      return claim.finish('done' if is_last else 'pruned', value)
  return None


def are_complete(runs: Sequence[Settings]) -> bool:
  """Whether runs are complete in their folders, which somebody may have deleted.

  Raises:
    ValueError: If the rows of one are damaged: a mean would be of the others.
  """
  ends = [(run.output.output_dir, run.training.rounds) for run in runs]
  return all(summary.is_complete(*end) for end in ends) and all(read_whole(*end) for end in ends)


def read_whole(folder: str, rounds: int) -> run_lib.Run:
  """Reads the first rounds of a run.

  Raises:
    ValueError: If it cannot be read or lacks a row: of the rest a mean would be another.
  """
  way_out = 'bring back a copy of the file, or remove the folder, and the run is done again.'
  try:
    found = run_lib.load_run(folder)
  except ValueError as error:
    raise ValueError(f'{str(error).rstrip(".")}: {way_out}') from None
  rows = [row for row in found.rows if row['round'] <= rounds]
  missing = {*range(rounds + 1)} - {int(row['round']) for row in rows}
  if missing:
    raise ValueError(f'{folder} lacks round {min(missing)} in metrics.csv: {way_out}')
  return dataclasses.replace(found, rows=rows)
