"""Differences between settings, paired by seed, with confidence intervals.

Runs with one seed have the same data, partition, initial weights and cohorts. What differs between
them is what the settings do, so the mean of their differences is known better than the difference
of the means.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tff_adaptive.reports import report, scores
from tff_adaptive.runs import names, run as run_lib

CONFIDENCE = 0.95
_MOST_SEEDS = 1000
_NOTE = (
  "Each interval is that of Student's t for the mean of the differences, at 95 %, for its row"
  ' alone: of many rows about one in twenty without a difference will show one. A difference is'
  ' concluded if its interval excludes 0; "seeds needed" is how many would conclude it if their'
  ' mean and deviation were those seen here.'
)
_NOTE_OF_ONE = (
  'No two settings have two seeds in common, so that nothing can be concluded: repeat the runs with'
  ' other seeds.'
)


@dataclasses.dataclass(frozen=True)
class Difference:
  """The differences of two settings, over the seeds that both have.

  Attributes:
    values: float64 [n], the differences of the scores by seed.
  """

  values: np.ndarray

  @property
  def mean(self) -> float:
    """The mean difference."""
    return float(np.mean(self.values))

  @property
  def interval(self) -> tuple[float, float] | None:
    """The confidence interval of the mean difference; None for one seed."""
    return interval(self.values)

  @property
  def is_concluded(self) -> bool:
    """Whether the interval excludes 0."""
    limits = self.interval
    return limits is not None and not limits[0] <= 0 <= limits[1]

  @property
  def seeds_needed(self) -> int | None:
    """The least number of seeds with which this mean and deviation exclude 0; None if too many."""
    if len(self.values) < 2 or self.mean == 0:
      return None
    from scipy import stats  # Slow to import and needed here only.

    # The interval excludes 0 if t std / sqrt(n) < |mean|; t depends on n, too, hence the search.
    ratio = float(np.std(self.values, ddof=1)) / abs(self.mean)
    counts = np.arange(2, _MOST_SEEDS + 1)
    factors = stats.t.ppf((1 + CONFIDENCE) / 2, counts - 1) / np.sqrt(counts)
    sufficient = counts[factors * ratio < 1]
    if not sufficient.size:
      return None
    return int(sufficient[0])


def interval(values: Sequence[float] | np.ndarray) -> tuple[float, float] | None:
  """Returns the confidence interval of the mean of values by Student's t; None for one value."""
  if len(values) < 2:
    return None
  from scipy import stats

  mean = float(np.mean(values))
  error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
  # SciPy gives NaN for a scale of 0.
  if error == 0:
    return mean, mean
  low, high = stats.t.interval(CONFIDENCE, len(values) - 1, mean, error)
  return float(low), float(high)


def paired(
  members: Sequence[run_lib.Run], others: Sequence[run_lib.Run], column: str
) -> Difference | None:
  """Returns the differences `members` - `others` in a column, paired by seed.

  Args:
    members: Runs that differ only in their seed.
    others: The runs of other settings.
    column: A column of metrics.csv; a run's score is its mean over the last rounds.

  Returns:
    The differences, or None if no seed has a run of both that did not diverge.
  """
  scores_of_others = _by_seed(others, column)
  values = [
    value - scores_of_others[seed]
    for seed, value in _by_seed(members, column).items()
    if seed in scores_of_others
  ]
  if not values:
    return None
  return Difference(np.array(values))


def table(
  groups: Mapping[str, Sequence[run_lib.Run]], column: str, against: str | None = None
) -> report.Table | None:
  """Returns a table of the differences between groups of runs and one of them.

  Args:
    groups: Runs by label. The runs of a label differ only in their seed.
    column: A column of metrics.csv.
    against: The label of the group with which the others are compared. The default is the best by
      `scores.rank`.

  Returns:
    A table with a row for each other group, or None if there is one group only.

  Raises:
    ValueError: If no group has the label `against`.
  """
  if against is not None and against not in groups:
    raise ValueError(f'no row is called {against!r:.80}: compare with one of {", ".join(groups)}.')
  if len(groups) < 2:
    return None
  reference = against
  if reference is None:
    reference = max(groups, key=lambda label: scores.rank(groups[label], column))
  rows = []
  note = _NOTE_OF_ONE
  for label, members in groups.items():
    if label == reference:
      continue
    difference = paired(members, groups[reference], column)
    lost = _num_diverged(members, column), _num_diverged(groups[reference], column)
    rows.append(_row(label, difference, column, *lost))
    if difference is not None and difference.interval is not None:
      note = _NOTE
  title = f'{names.metric(column)}: differences from {reference}, paired by seed'
  heading = ['', 'seeds', 'difference', '95 % interval', 'conclusion', 'seeds needed']
  return report.Table(heading, rows, title=title[:1].upper() + title[1:], note=note)


def _by_seed(members: Sequence[run_lib.Run], column: str) -> dict[tuple[object, object], float]:
  """Returns the scores of the runs that did not diverge, by their seeds."""
  values = {}
  for run in members:
    value = scores.value_of(run, column)
    # The noise of privacy has a seed of its own; runs are a pair if both are equal.
    if math.isfinite(value):
      values[run.settings.get('seed'), run.settings.get('noise_seed')] = value
  return values


def _num_diverged(members: Sequence[run_lib.Run], column: str) -> int:
  """Returns the number of runs that diverged."""
  return sum(not math.isfinite(scores.value_of(run, column)) for run in members)


def _row(
  label: str, difference: Difference | None, column: str, lost: int, lost_of_reference: int
) -> list[str]:
  """Returns the row of a difference. Of the runs of both settings some diverged."""
  if difference is None:
    return [label, '0', '', '', 'no seed in common', '']
  count = len(difference.values)
  limits = difference.interval
  cells = [label, str(count), _signed(difference.mean)]
  if limits is None:
    return [*cells, '', 'none: one seed concludes nothing', '']
  needed = difference.seeds_needed
  conclusion = 'none'
  if difference.is_concluded:
    conclusion = _conclusion(difference.mean, column, lost, lost_of_reference)
  text = str(needed)
  if needed is None:
    text = f'more than {_MOST_SEEDS}'
  return [*cells, f'{_signed(limits[0])} to {_signed(limits[1])}', conclusion, text]


def _conclusion(mean: float, column: str, lost: int, lost_of_reference: int) -> str:
  """Says of a difference that is not 0 what it means."""
  diverged = f'none: {lost + lost_of_reference} diverged'
  if not scores.is_ordered(column):
    if lost or lost_of_reference:
      return diverged
    return 'larger' if mean > 0 else 'smaller'
  # The other seeds show settings with a diverged run better than they are.
  if scores.sign(column) * mean > 0:
    return diverged if lost else 'better'
  return diverged if lost_of_reference else 'worse'


def _signed(value: float) -> str:
  """Formats a difference with four decimals, or three digits if it is so small or large."""
  if 1e-3 <= abs(value) < 1e4 or value == 0:
    return f'{value:+.4f}'
  return f'{value:+.3g}'
