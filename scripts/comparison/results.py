"""The numbers of the bench's page: values, ranks, paired differences, costs and sensitivity."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive.reports import differences, ranks as ranks_lib

from . import cells, methods, problems, rows

FED_AVG = 'fed_avg'


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What a method came to on a problem.

  Attributes:
    problem: The problem.
    trials: The rows of the search, by number.
    finals: The rows that count, by seed.
  """

  problem: problems.Problem
  trials: Mapping[int, rows.Row]
  finals: Mapping[int, rows.Row]

  @property
  def refusal(self) -> str:
    """Why the method has no meaning on the problem; '' if it has."""
    of_cell = [*self.trials.values(), *self.finals.values()]
    reasons = [row.reason for row in of_cell if row.status == rows.REFUSED]
    return ''.join(reasons[:1])

  @property
  def values(self) -> dict[int, float]:
    """The values that count by seed; NaN if a run diverged."""
    return {seed: row.value for seed, row in self.finals.items()}

  @property
  def worth(self) -> float:
    """The mean value, with the sign that makes large numbers good; NaN if a run diverged."""
    return self.problem.worth(float(np.mean(list(self.values.values()))))

  @property
  def curves(self) -> list[list[float]]:
    """The evaluations of the runs that did not diverge, from round 0 on."""
    return [row.evaluations for row in self.finals.values() if row.status == rows.DONE]

  @property
  def point(self) -> str:
    """The settings that the search chose."""
    return next(iter(self.finals.values())).point

  @property
  def good_trials(self) -> float:
    """The share of the trials that come within the problem's margin of the best."""
    worths = [self.problem.worth(row.value) for row in self.trials.values()]
    finite = [worth for worth in worths if math.isfinite(worth)]
    if not finite:
      return 0.0
    near = [worth for worth in finite if worth >= max(finite) - self.problem.margin]
    return len(near) / len(worths)

  def mean_of(self, column: str) -> float:
    """Returns the mean of a column over the runs that count."""
    return float(np.mean([getattr(row, column) for row in self.finals.values()]))


@dataclasses.dataclass(frozen=True)
class Results:
  """The outcomes of methods on problems.

  Attributes:
    budget: The name of the budget.
    names: The names of the problems, in the order of the page.
    titles: What tables call the methods, by key.
    subjects: The keys of the methods that the page is about; none for a page of all methods.
    outcomes: By name of the problem and key of the method.
  """

  budget: str
  names: Sequence[str]
  titles: Mapping[str, str]
  subjects: Sequence[str]
  outcomes: Mapping[tuple[str, str], Outcome]

  def on(self, problem: str, refused: bool = False) -> dict[str, Outcome]:
    """Returns the outcomes on a problem by method: those with values, or those refused."""
    return {
      method: outcome
      for (name, method), outcome in self.outcomes.items()
      if name == problem and bool(outcome.refusal) == refused
    }

  def methods_on_all(self) -> list[str]:
    """Returns the methods that have values on all problems, in the order of `titles`."""
    present = [set(self.on(problem)) for problem in self.names]
    on_all = set(self.titles).intersection(*present)
    return [key for key in self.titles if key in on_all]

  def ranks(self) -> ranks_lib.Ranks | None:
    """Returns the ranks of the methods that have values on all problems; None if they are few."""
    import pandas as pd  # Slow to import and needed here only.

    ranked = self.methods_on_all()
    if len(ranked) < 2:
      return None
    table = pd.DataFrame(index=list(self.names), columns=ranked, dtype=float)
    for name in self.names:
      outcomes = self.on(name)
      table.loc[name] = [outcomes[key].worth for key in ranked]
    return ranks_lib.average_ranks(table)

  def rank_on(self, problem: str, method: str) -> tuple[int, int]:
    """Returns the rank of a method on a problem, and the number of methods with values there."""
    worths = {key: _nan_last(outcome.worth) for key, outcome in self.on(problem).items()}
    better = sum(worth > worths[method] for worth in worths.values())
    return better + 1, len(worths)

  def best_stored(self, problem: str) -> str | None:
    """Returns the built-in method with the best mean on a problem; None if there is none."""
    others = {
      key: _nan_last(outcome.worth)
      for key, outcome in self.on(problem).items()
      if key not in self.subjects
    }
    return max(others, key=others.__getitem__, default=None)

  def compared_with(self, problem: str) -> list[str]:
    """Returns the methods beside which a problem's rows stand: FedAvg, and the best one."""
    keys = [FED_AVG, self.best_stored(problem)]
    present = self.on(problem)
    return [key for key in dict.fromkeys(keys) if key in present and key not in self.subjects]

  def difference(self, problem: str, method: str, other: str) -> differences.Difference | None:
    """Returns the differences method - other, paired by seed; None without a seed in common."""
    outcomes = self.on(problem)
    if method not in outcomes or other not in outcomes:
      return None
    values = outcomes[method].values
    others = outcomes[other].values
    paired = [values[seed] - others[seed] for seed in values if seed in others]
    finite = [value for value in paired if math.isfinite(value)]
    if not finite:
      return None
    return differences.Difference(np.array(finite))

  def conclusion(self, problem: str, difference: differences.Difference | None) -> str:
    """Returns 'better', 'worse' or 'none', or why there is no difference."""
    if difference is None:
      return 'no seed in common'
    if not difference.is_concluded:
      return 'none'
    if problems.PROBLEMS[problem].worth(difference.mean) > 0:
      return 'better'
    return 'worse'

  def verdict(self, problem: str, method: str, other: str) -> str:
    """Returns 'better', 'worse' or 'none', or why two methods cannot be compared on a problem.

    A method with a run that diverged is worse than one without: the differences of its other seeds
    would show it as it does not deserve.
    """
    outcomes = self.on(problem)
    if method in outcomes and other in outcomes:
      has_lost = not math.isfinite(outcomes[method].worth)
      other_has_lost = not math.isfinite(outcomes[other].worth)
      if has_lost and other_has_lost:
        return 'none'
      if has_lost:
        return 'worse'
      if other_has_lost:
        return 'better'
    return self.conclusion(problem, self.difference(problem, method, other))

  def record(self) -> dict[str, Any]:
    """Returns everything as JSON has it; what is not finite is None."""
    ranks = self.ranks()
    averages: dict[str, float] = {}
    p = math.nan
    critical_difference = math.nan
    if ranks is not None:
      averages = ranks.by_problem.mean().to_dict()
      p = ranks.p
      critical_difference = ranks.critical_difference
    of_methods = {}
    for key, title in self.titles.items():
      outcomes = {name: self.outcomes.get((name, key)) for name in self.names}
      of_methods[key] = {
        'title': title,
        'average_rank': averages.get(key),
        'problems': {name: self._record(name, key, o) for name, o in outcomes.items() if o},
      }
    return {
      'protocol': rows.VERSION,
      'budget': self.budget,
      'subjects': list(self.subjects),
      'friedman_p': _finite(p),
      'critical_difference': _finite(critical_difference),
      'methods': of_methods,
      'differences': self._differences(),
    }

  def _record(self, problem: str, method: str, outcome: Outcome) -> dict[str, Any]:
    if outcome.refusal:
      return {'refused': outcome.refusal}
    rank, number = self.rank_on(problem, method)
    return {
      'values': {str(seed): _finite(value) for seed, value in outcome.values.items()},
      'diverged': sum(not math.isfinite(value) for value in outcome.values.values()),
      'mean': _finite(outcome.problem.worth(outcome.worth)),
      'rank': rank,
      'ranked': number,
      'chosen': outcome.point,
      'good_trials': outcome.good_trials,
      **{name: _finite(outcome.mean_of(name)) for name in ('megabytes', 'gradients', 'seconds')},
    }

  def _differences(self) -> list[dict[str, Any]]:
    """Returns the paired differences of the subjects from all other methods."""
    records = []
    for subject in self.subjects:
      for problem in self.names:
        for other in self.on(problem):
          difference = self.difference(problem, subject, other)
          if other == subject or difference is None:
            continue
          records.append(
            {
              'problem': problem,
              'method': subject,
              'other': other,
              'mean': difference.mean,
              'interval': difference.interval,
              'conclusion': self.verdict(problem, subject, other),
            }
          )
    return records


def _nan_last(worth: float) -> float:
  if math.isfinite(worth):
    return worth
  return -math.inf


def _finite(value: float) -> float | None:
  return value if math.isfinite(value) else None


def collect(
  table: Mapping[rows.Key, rows.Row],
  budget: str,
  names: Sequence[str],
  subjects: Sequence[methods.Method],
) -> Results:
  """Returns the outcomes of all methods whose runs on a problem are complete, or were refused."""
  compared = {method.key: method for method in subjects}
  for method in methods.built_in():
    compared.setdefault(method.key, method)
  outcomes = {}
  for name in names:
    for key, method in compared.items():
      cell = cells.Cell(name, method, budget)
      if cell.missing(table):
        continue
      outcomes[name, key] = Outcome(
        problems.PROBLEMS[name],
        {run.number: table[run] for run in cell.search_keys() if run in table},
        {run.number: table[run] for run in cell.final_keys() if run in table},
      )
  present = {key for _, key in outcomes}
  return Results(
    budget,
    names,
    {key: method.title for key, method in compared.items() if key in present},
    [method.key for method in subjects],
    outcomes,
  )
