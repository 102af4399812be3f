"""What a search varies: values to choose from, ranges to draw from, seeds to repeat with."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import flags, grid
from .settings import Settings

if TYPE_CHECKING:
  import optuna

# These say which of the others have a meaning.
_FIRST = ('task', 'algorithm', 'server_optimizer')


@dataclasses.dataclass(frozen=True)
class Range:
  """Numbers from `low` to `high`, evenly by their logarithm if `is_log`."""

  low: float
  high: float
  is_log: bool
  is_whole: bool


@dataclasses.dataclass(frozen=True)
class Space:
  """What the runs of a search vary.

  Attributes:
    axes: Flag -> values to choose from, as texts.
    ranges: Flag -> numbers to draw from.
    seeds: Each trial is trained with each of these, and is as good as their mean; empty: with the
      seed of the settings.
    given: What all runs share.
  """

  axes: grid.Axes
  ranges: Mapping[str, Range]
  seeds: Sequence[str]
  given: Mapping[str, Any]

  @property
  def names(self) -> list[str]:
    """The flags that vary, those first on which it depends whether others have a meaning."""
    names = [*self.axes, *self.ranges]
    return [*(n for n in _FIRST if n in names), *(n for n in names if n not in _FIRST)]

  def points(self) -> list[dict[str, str]]:
    """Returns each combination of `axes`."""
    return grid.points(self.axes, self.given)

  def check(self) -> None:
    """ValueError, before anything is run, if a value or a bound of a range is bad."""
    kinds = self._kinds()
    bounds = {name: [_text(r.low, r), _text(r.high, r)] for name, r in self.ranges.items()}
    tried = {'': kinds}
    for name, values in {**self.axes, **bounds, 'seed': self.seeds}.items():
      if name not in _FIRST:
        fitting = [kind for kind in kinds if self._is_free(name, kind)] or kinds
        tried[name] = [{**fitting[0], name: value} for value in values]
    for points in tried.values():
      grid.check_different([self._settings(point) for point in points])

  def example(self) -> Settings:
    """Returns the settings of a run without what is varied."""
    return self._settings(self._kinds()[0])

  def draw(self, trial: 'optuna.Trial') -> dict[str, str]:
    """Returns the values of a trial, drawn by its study's sampler, as texts."""
    point: dict[str, str] = {}
    for name in self.names:
      if not self._is_free(name, point):
        continue
      if name in self.axes:
        point[name] = str(trial.suggest_categorical(name, list(self.axes[name])))
        continue
      drawn = self.ranges[name]
      if drawn.is_whole:
        low, high = int(drawn.low), int(drawn.high)
        value: float = trial.suggest_int(name, low, high, log=drawn.is_log)
      else:
        value = trial.suggest_float(name, drawn.low, drawn.high, log=drawn.is_log)
      point[name] = _text(value, drawn)
    return point

  def runs(self, point: grid.Point, folder: str) -> list[Settings]:
    """Returns the settings of a trial's runs, one for each seed.

    Args:
      point: The trial's values.
      folder: The run's folder; with seeds, ',seed=SEED' follows.

    Raises:
      ValueError: If they are bad, or a folder holds another run.
    """
    everywhere = self._kinds()
    return [
      grid.settings_of(varied, where, self.given, everywhere)
      for where, varied in self.folders(point, folder)
    ]

  def folders(self, point: grid.Point, folder: str) -> list[tuple[str, grid.Point]]:
    """The folder of each of a trial's runs and what it varies; see `runs`."""
    if not self.seeds:
      return [(folder, point)]
    return [(f'{folder},seed={seed}', {**point, 'seed': seed}) for seed in self.seeds]

  def _settings(self, point: grid.Point) -> Settings:
    """The settings of a run, whose folder is not looked at."""
    return grid.settings_of(point, grid.label(point), self.given, self._kinds(), is_new=True)

  def _is_free(self, name: str, point: grid.Point) -> bool:
    """Whether a flag has a meaning, and may have any of its values, given those drawn before."""
    if name != 'server_optimizer':
      return grid.counts(name, point, self.given)
    values = [{**point, name: value} for value in self.axes.get(name, ())]
    return not any(grid.server_is_fixed(one, self.given) for one in values)

  def _kinds(self) -> list[dict[str, str]]:
    """The combinations of what decides which of the others have a meaning."""
    return grid.points({n: v for n, v in self.axes.items() if n in _FIRST}, self.given)


def ranges(texts: Sequence[str], before: grid.Axes) -> dict[str, Range]:
  """Reads --range.

  Args:
    texts: FLAG=LOW,HIGH or FLAG=LOW,HIGH,log each.
    before: The flags of --grid.

  Raises:
    ValueError: If one is written otherwise, is no number of a run, or comes twice.
  """
  kinds = {flag.name: flag.kind for flag in flags.table()}
  found: dict[str, Range] = {}
  for text in texts:
    name, _, values = text.partition('=')
    low, high, *log = [*values.split(','), '', '']
    grid.check_varied('range', name, [*before, *found])
    if kinds.get(name) not in (int, float) or [*filter(None, log)] not in ([], ['log']):
      raise ValueError(
        f'--range={text}: write it as FLAG=LOW,HIGH or FLAG=LOW,HIGH,log with a number of train.py.'
      )
    if name == 'seed':
      raise ValueError('--range=seed: give seeds one by one, --grid=seed=0,1,2.')
    bounds = Range(_number(low), _number(high), bool(log[0]), kinds[name] is int)
    wrong = not bounds.low < bounds.high < math.inf or (bounds.is_log and not bounds.low > 0)
    if wrong or (bounds.is_whole and any(x != int(x) for x in (bounds.low, bounds.high))):
      raise ValueError(
        f'--range={text}: LOW must be less than HIGH, above 0 with log, whole if the flag is.'
      )
    found[name] = bounds
  return found


def _number(text: str) -> float:
  try:
    return float(text)
  except ValueError:
    return math.nan


def _text(value: float, of: Range) -> str:
  return str(int(value)) if of.is_whole else repr(float(value))
