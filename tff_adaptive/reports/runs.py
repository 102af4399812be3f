"""Runs as they lie in their folders, and which of them are repetitions of each other."""

import dataclasses
import itertools
import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tff_adaptive.reports import metrics_file, names
from tff_adaptive.reports import summary as summary_lib

# What a curve may run along: each is the sum over the rounds of these columns of metrics.csv.
AXES: Mapping[str, tuple[str, ...]] = MappingProxyType(
  {
    'round': (),
    'megabytes': ('megabytes_down', 'megabytes_up'),
    'seconds': ('seconds_round',),
    'virtual_seconds': ('virtual_seconds',),
  }
)

# Settings that never distinguish two curves of a figure.
_NOT_LABELS = frozenset(
  {
    'seed',
    'output_dir',
    'data_dir',
    'client_state_dir',
    'client_state_store',
    'rounds_per_evaluation',
    'rounds_per_client_evaluation',
    'client_evaluation_clients',
    'rounds_per_checkpoint',
    'keep_checkpoints',
    'resume_from',
    'log_to',
  }
)

# A setting that a search has drawn, in a label.
_LONG_NUMBER = re.compile(r'(?<==)-?\d+\.\d{8,}(e[+-]?\d+)?(?![\w.])')


class NoRoundsError(ValueError):
  """A run that has not written a row yet."""


@dataclasses.dataclass(frozen=True)
class Run:
  """One run.

  Attributes:
    folder: Where it lies.
    config: Its config.json.
    rows: Its metrics.csv: column -> number, a row a round, empty cells absent.
  """

  folder: str
  config: Mapping[str, Any]
  rows: Sequence[Mapping[str, float]]

  @property
  def settings(self) -> Mapping[str, Any]:
    """The run's settings by flag name."""
    return self.config['settings']

  def summary(self) -> dict[str, Any]:
    """The run's summary, as of the rounds that were done."""
    is_complete = bool(self.rows) and self.rows[-1]['round'] >= self.settings['rounds']
    return summary_lib.summarize(self.rows, is_complete)

  def curve(self, column: str) -> dict[int, float]:
    """Round -> value of a column, where it was measured."""
    return {int(row['round']): row[column] for row in self.rows if column in row}

  def progress(self, axis: str) -> dict[int, float]:
    """Round -> how far the run was after it, in units of an axis.

    Args:
      axis: A name in `AXES`.

    Raises:
      ValueError: If the run has no such columns.
    """
    columns = AXES[axis]
    missing = [c for c in columns if not any(c in row for row in self.rows)]
    if missing:
      raise ValueError(
        f'{self.folder} has no column {missing[0]!r} in metrics.csv: take another axis than {axis}.'
      )
    rounds = [int(row['round']) for row in self.rows]
    if not columns:
      return {t: float(t) for t in rounds}
    steps = [math.fsum(row.get(c, 0.0) for c in columns) for row in self.rows]
    return dict(zip(rounds, itertools.accumulate(steps)))


def read_run(folder: str) -> Run:
  """Reads a run's folder.

  Raises:
    NoRoundsError: If it has no rows yet.
    ValueError: If it is no run's folder.
  """
  try:
    with open(os.path.join(folder, 'config.json'), encoding='utf-8') as file:
      config = json.load(file)
    if not isinstance(config['settings'], dict) or type(config['settings']['rounds']) is not int:
      raise ValueError('config.json has no settings with a number of rounds')
    try:
      rows = metrics_file.read(os.path.join(folder, 'metrics.csv')).rows()
    except FileNotFoundError:
      rows = []
  except (OSError, ValueError, LookupError, TypeError, RecursionError) as error:
    reason = f'config.json lacks {error}' if isinstance(error, KeyError) else str(error)
    if isinstance(error, FileNotFoundError):
      reason = 'it has no config.json' if os.path.isdir(folder) else 'there is no such folder'
    raise ValueError(f'{folder} is not the folder of a run ({reason}).') from None
  if not rows:
    raise NoRoundsError(f'{folder} has no rounds yet.')
  return Run(folder, config, rows)


def read_begun(folders: Iterable[str]) -> list[Run]:
  """Reads the runs in `folders`; those without rounds yet are left out, and reported."""
  found = []
  for folder in folders:
    try:
      found.append(read_run(folder))
    except NoRoundsError as error:
      sys.stderr.write(f'Left out: {error}\n')
  return found


def without_folders(source: str) -> str:
  """A data source's description with the names of its files alone: for what is published."""
  return re.sub(r'(?<!\S)\S*/(?=\S)', '', source)


def find_runs(folders: Iterable[str]) -> list[Run]:
  """Reads runs.

  Args:
    folders: Folders of runs, or folders that hold such folders at any depth.

  Returns:
    The runs, in the order of the folders and, below one, of names. Those without rounds yet are
    left out, and reported.

  Raises:
    ValueError: If a folder holds no run, or none of the runs has rounds.
  """
  found = []
  for folder in folders:
    below = sorted(path for path, _, names in os.walk(folder) if 'config.json' in names)
    if not below:
      raise ValueError(f'there is no run in {folder}: no folder in it holds a config.json.')
    found += read_begun(below)
  if not found:
    raise NoRoundsError('none of the runs has rounds yet.')
  return found


def where(runs: Sequence[Run], conditions: Mapping[str, str]) -> list[Run]:
  """The runs whose settings have these values.

  Args:
    runs: The runs.
    conditions: Setting -> value as it is printed; of a repeated setting one of its values.

  Raises:
    ValueError: If no run is left.
  """
  found = [
    run for run in runs if all(_has(run.settings.get(k), value) for k, value in conditions.items())
  ]
  if not found:
    text = ', '.join(f'{name}={value}' for name, value in conditions.items())
    raise ValueError(f'none of the {len(runs)} runs has {text}.')
  return found


def group(
  runs: Sequence[Run], label_by: Sequence[str] | None = None, *, without: Iterable[str] = ()
) -> dict[str, list[Run]]:
  """Groups runs that differ in their seed only.

  Args:
    runs: The runs.
    label_by: The settings that distinguish groups; by default those in which the runs differ, but
      for what follows from others, the seed and what does not touch the model's course.
    without: Settings that never distinguish groups.

  Returns:
    Label -> its runs, in the order in which the labels first appear.

  Raises:
    ValueError: If a setting is unknown, or two runs of a group have the same seed.
  """
  groups = partition(runs, label_by, without=without)
  for label, members in groups.items():
    seeds = [run.settings.get('seed') for run in members]
    if len(set(seeds)) < len(seeds):
      raise ValueError(
        f'two runs of {label!r} have the same seed: they are not repetitions. Label'
        ' the runs by a setting that distinguishes them.'
      )
  return groups


def partition(
  runs: Sequence[Run], label_by: Sequence[str] | None = None, *, without: Iterable[str] = ()
) -> dict[str, list[Run]]:
  """As `group`, of runs that may differ in other things than their seed too."""
  without = set(without)
  with_server = label_by is None or 'server_optimizer' in label_by
  if label_by is None:
    label_by = [n for n in _distinguishing(runs, without) if n not in without]
    if not label_by:
      label_by = ['algorithm'] if any('algorithm' in run.settings for run in runs) else []
  for name in label_by:
    if not any(name in run.settings for run in runs):
      raise ValueError(f'no run has a setting called {name!r}.')
  groups: dict[str, list[Run]] = {}
  for run in runs:
    label = ', '.join(
      filter(None, (_part(name, run.settings, label_by, with_server) for name in label_by))
    )
    if not label_by:  # A program's runs of which it says nothing: each is one of its own.
      label = os.path.basename(os.path.abspath(run.folder))
    groups.setdefault(label or '(defaults)', []).append(run)
  short = [_LONG_NUMBER.sub(lambda m: f'{float(m[0]):.4g}', label) for label in groups]
  return dict(zip(short, groups.values())) if len(set(short)) == len(groups) else groups


def _distinguishing(runs: Sequence[Run], without: Iterable[str] = ()) -> list[str]:
  """Returns settings that distinguish the runs, without those that follow from earlier ones."""
  chosen: list[str] = []
  keys = [''] * len(runs)
  for name in dict.fromkeys([*without, *(name for run in runs for name in run.settings)]):
    if name in _NOT_LABELS:
      continue
    finer = [key + json.dumps(run.settings.get(name)) for key, run in zip(keys, runs)]
    if len(set(finer)) > len(set(keys)):
      chosen.append(name)
    keys = finer
  return chosen


def _part(
  name: str, settings: Mapping[str, Any], label_by: Sequence[str], with_server: bool
) -> str:
  """Returns what a setting adds to a label: names stand for themselves."""
  value = settings.get(name)
  if value is None or value == []:
    return ''
  if name == 'algorithm':
    return names.composition(settings) if with_server else names.algorithm(value)
  if name == 'server_optimizer' and 'algorithm' in settings:
    return '' if 'algorithm' in label_by else names.composition(settings)
  if name == 'task':
    return os.path.basename(str(value))  # Of a user's FILE.py:NAME too.
  if name.endswith('_option'):
    return ', '.join(value) if isinstance(value, list) else f'{name}={value}'
  return f'{name}={value}'


def _has(value: Any, wanted: str) -> bool:
  values = value if isinstance(value, list) else [value]
  return any(str(v) == wanted or _number(v) == _number(wanted) for v in values)


def _number(value: Any) -> Any:
  """The number that a value is, or an object equal to nothing else."""
  try:
    return float(value)
  except (TypeError, ValueError):
    return object()
