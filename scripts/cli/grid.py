"""Every combination of some flags' values: the runs of a sweep."""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from . import flags, records, resolve, run_folder
from .settings import Settings

Axes = Mapping[str, Sequence[str]]


def axes(texts: Sequence[str]) -> dict[str, list[str]]:
  """Reads --grid.

  Args:
    texts: FLAG=VALUE,VALUE each.

  Returns:
    Flag -> its values, as texts.

  Raises:
    ValueError: If there is none, one is no flag of a run or comes twice.
  """
  found: dict[str, list[str]] = {}
  known = flags.names()
  for text in texts:
    name, equals, values = text.partition('=')
    if name not in known or not equals or not all(values.split(',')):
      raise ValueError(f'--grid={text}: write it as FLAG=VALUE,VALUE with a flag of train.py.')
    if name == 'output_dir':
      raise ValueError('--grid=output_dir: the sweep names the folders itself.')
    if name in found:
      raise ValueError('give --grid at least once, and each flag in one --grid only.')
    found[name] = values.split(',')
  if not found:
    raise ValueError('give --grid at least once, and each flag in one --grid only.')
  return found


def jobs(output_dir: str, varied: Axes, given: Mapping[str, Any]) -> list[Settings]:
  """Returns the settings of each run, the last flag varying fastest.

  Args:
    output_dir: The folder in which each run has its own.
    varied: Flag -> its values, as texts.
    given: Flag name -> value of what all runs share; flags that may be repeated add up.

  Raises:
    ValueError: If a run's settings are bad, its folder holds another run, or two are the same.
  """
  found = []
  for values in itertools.product(*varied.values()):
    point = dict(zip(varied, values))
    own = flags.parse(['', *(f'--{name}={value}' for name, value in point.items())]) or {}
    merged = dict(given)
    for name, value in own.items():
      merged[name] = [*merged.get(name, []), *value] if isinstance(value, list) else value
    label = ','.join(f'{name}={value}' for name, value in point.items())
    folder = os.path.join(output_dir, label.replace(os.sep, '_'))
    run = resolve.resolve(merged, output_dir=folder)
    run_folder.check_writable(folder)
    run_folder.read_config(folder, records.of(run))
    found.append(run)
  _check_different(found)
  return found


def _check_different(found: Sequence[Settings]) -> None:
  """ValueError if two runs are the same, as of seed=0,00."""
  seen: dict[str, str] = {}
  for run in found:
    key = json.dumps({**run.flat(), 'output_dir': None}, sort_keys=True)
    if key in seen:
      raise ValueError(
        f'--grid: {seen[key]} and {run.output_dir} are the same run; give each value once.'
      )
    seen[key] = run.output_dir
