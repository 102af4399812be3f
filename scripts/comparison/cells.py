"""Does the runs of the bench that are missing: for each problem and method a search, then seeds."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from . import methods, problems, rows

Rows = dict[rows.Key, rows.Row]
# Trains a run; `runs.train`.
Train = Callable[[rows.Key, methods.Method, Mapping[str, float], str | None], rows.Row]


@dataclasses.dataclass(frozen=True)
class Cell:
  """The runs of a method on a problem.

  Attributes:
    problem, budget: Their names.
    method: The method.
  """

  problem: str
  method: methods.Method
  budget: str

  def key(self, stage: str, number: int) -> rows.Key:
    """Returns the key of one of the runs."""
    return rows.Key(self.problem, self.method.key, self.budget, stage, number)

  def points(self) -> list[dict[str, float]]:
    """Returns the settings of the trials."""
    return methods.points(
      self.method, problems.PROBLEMS[self.problem].rates, methods.BUDGETS[self.budget]
    )

  def search_keys(self) -> list[rows.Key]:
    """Returns the keys of the trials."""
    return [self.key(rows.SEARCH, n) for n in range(methods.BUDGETS[self.budget].trials)]

  def final_keys(self) -> list[rows.Key]:
    """Returns the keys of the runs that count."""
    return [self.key(rows.FINAL, seed) for seed in methods.BUDGETS[self.budget].seeds]

  def missing(self, known: Mapping[rows.Key, rows.Row]) -> int:
    """Returns the number of runs that are to be done.

    A run that counts is to be done again if it has not the settings of the best trial.
    """
    if is_refused(self, known):
      return 0
    trials = sum(key not in known for key in self.search_keys())
    if trials:
      return trials + sum(key not in known for key in self.final_keys())
    points = _points_of_finals(self, known)
    return sum(not _is_of(known.get(key), points) for key in self.final_keys())


def is_refused(cell: Cell, known: Mapping[rows.Key, rows.Row]) -> bool:
  """Returns whether the method has no meaning on the problem."""
  of_cell = [known[key] for key in (*cell.search_keys(), *cell.final_keys()) if key in known]
  return any(row.status == rows.REFUSED for row in of_cell)


def best_trial(cell: Cell, known: Mapping[rows.Key, rows.Row]) -> rows.Row | None:
  """Returns the best trial of a search; None if all have diverged."""
  # By the trials alone: seeds that count must not choose settings.
  problem = problems.PROBLEMS[cell.problem]
  done = [known[key] for key in cell.search_keys() if known[key].status == rows.DONE]
  return max(done, key=lambda row: problem.worth(row.value), default=None)


def _points_of_finals(cell: Cell, known: Mapping[rows.Key, rows.Row]) -> set[str]:
  """Returns the settings that runs that count may have: those of the best trial, or of its equals.

  If all trials have diverged, the runs that count have the settings of any.
  """
  best = best_trial(cell, known)
  trials = [known[key] for key in cell.search_keys()]
  if best is None:
    return {row.point for row in trials}
  # Trials that differ by less than a file's six digits are equals.
  return {
    row.point for row in trials if math.isclose(row.value, best.value, rel_tol=1e-5, abs_tol=1e-5)
  }


def _is_of(row: rows.Row | None, points: set[str]) -> bool:
  return row is not None and row.point in points


def fill(cell: Cell, known: Rows, data_dir: str | None, train: Train) -> Iterator[rows.Row]:
  """Does the missing runs of a cell, adds their rows to `known`, and yields each.

  The settings of the runs that count are those of the best trial. If all trials have diverged these
  runs are not trained: they count as diverged.
  """
  for key, point in zip(cell.search_keys(), cell.points()):
    if key not in known:
      known[key] = train(key, cell.method, point, data_dir)
      yield known[key]
    if known[key].status == rows.REFUSED:
      return
  best = best_trial(cell, known)
  points = _points_of_finals(cell, known)
  # Diverged runs get rows, too: the method then is last on this problem, and not missing there.
  for key in cell.final_keys():
    if _is_of(known.get(key), points):
      continue
    if best is None:
      known[key] = dataclasses.replace(
        known[cell.search_keys()[0]],
        stage=key.stage,
        number=key.number,
        value=math.nan,
        reason='all trials of the search diverged',
      )
    else:
      known[key] = train(key, cell.method, best.settings, data_dir)
    yield known[key]
    if known[key].status == rows.REFUSED:
      return


def of_methods(names: Sequence[str], compared: Sequence[methods.Method], budget: str) -> list[Cell]:
  """Returns the cells of some problems and methods: all problems of a method, then the next."""
  cells = []
  for method in compared:
    cells += [Cell(name, method, budget) for name in names]
  return cells
