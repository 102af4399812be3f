"""Groups runs that are repetitions of each other, and labels the groups."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tff_adaptive._utils import option_values
from tff_adaptive.runs import config as config_lib, names
from tff_adaptive.runs.run import Run

_LONG = 9  # Longer numbers, such as those that a search draws, have four digits in labels.


def where(runs: Sequence[Run], conditions: Sequence[tuple[str, str]]) -> list[Run]:
  """Returns the runs that fulfil all conditions, which are pairs (setting, its value as text).

  If a run's value of a setting is a list, one of its elements has to match.

  Raises:
    ValueError: If no run fulfils all conditions.
  """
  selected = list(runs)
  for name, value in conditions:
    selected = [run for run in selected if _has(run.settings.get(name), value)]
  if not selected:
    text = ' and '.join(f'{name}={value}' for name, value in conditions)
    raise ValueError(f'none of the {len(runs)} runs has {text}.')
  return selected


def group(
  runs: Sequence[Run], label_by: Sequence[str] | None = None, *, without: Iterable[str] = ()
) -> dict[str, list[Run]]:
  """Groups runs that differ only in their seed.

  Args:
    runs: Runs with any settings.
    label_by: The settings that distinguish groups. The default is all settings in which the runs
      differ, except the seed, settings that follow from other ones, and settings that do not change
      the trained model.
    without: Settings that never distinguish groups.

  Returns:
    The runs by label, in the order in which the labels first appear.

  Raises:
    ValueError: If a setting is unknown, or two runs of a group have the same seed.
  """
  groups = partition(runs, label_by, without=without)
  for label, members in groups.items():
    if label_by:
      _check_same(label, members, without)
    by_seed: dict[Any, Run] = {}
    for run in members:
      other = by_seed.setdefault(run.settings.get('seed'), run)
      if other is not run:
        raise ValueError(
          f'two runs of {label!r} have the same seed and are no repetitions: {other.folder} and'
          f' {run.folder}. Name one of their folders only.'
        )
  return groups


def _check_same(label: str, members: Sequence[Run], without: Iterable[str]) -> None:
  """Raises ValueError if runs differ in a setting that all of them have, besides the seeds."""
  names_of_settings = _distinguishing(members, {*without, 'noise_seed', 'initial_weights'})
  in_all = set.intersection(*[set(run.settings) for run in members])
  differing = [name for name in names_of_settings if name in in_all]
  if differing:
    raise ValueError(f'the runs of {label!r} differ in {", ".join(differing)}: label by it too.')


def partition(
  runs: Sequence[Run], label_by: Sequence[str] | None = None, *, without: Iterable[str] = ()
) -> dict[str, list[Run]]:
  """Groups runs as `group` does, but runs of one group may differ in settings besides the seed."""
  # With a label by the algorithm alone, runs with different server optimizers share a label.
  with_server = label_by is None or 'server_optimizer' in label_by
  if label_by is None:
    label_by = _distinguishing(runs, without)
    if not label_by and any('algorithm' in run.settings for run in runs):
      label_by = ['algorithm']
  for name in label_by:
    if not any(name in run.settings for run in runs):
      raise ValueError(f'no run has a setting called {name!r}.')
  by_key: dict[tuple[str, str], list[Run]] = {}
  for run in runs:  # Two files, or two long numbers, may have one label.
    values = [config_lib.identity(run.config, name) or None for name in label_by] or run.folder
    key = _label(run, label_by, with_server), json.dumps(values)
    by_key.setdefault(key, []).append(run)
  groups: dict[str, list[Run]] = {}
  labels = [label for label, _ in by_key]
  for label, members in zip(labels, by_key.values()):
    if labels.count(label) > 1:  # Short labels hide what differs.
      label = _full_label(members[0], label_by)
    if label in groups:  # The same file was changed between the runs.
      files = members[0].config['files']
      digests = (
        f'sha256 {config_lib.digest(files[name])[:8]}' for name in label_by if name in files
      )
      label = f'{label} ({", ".join(digests)})'
    groups.setdefault(label, []).extend(members)
  return groups


def _label(run: Run, label_by: Sequence[str], with_server: bool) -> str:
  if not label_by:  # No setting distinguishes these runs: each is a group of its own.
    return os.path.basename(os.path.abspath(run.folder))
  texts = (_text(name, run.shown, label_by, with_server) for name in label_by)
  parts = dict.fromkeys(run.renamed.get(text, text) for text in texts)
  label = ', '.join(filter(None, parts)) or '(defaults)'
  return run.renamed.get(label, label)


def _full_label(run: Run, label_by: Sequence[str]) -> str:
  """Returns a long label, with settings' names and files' paths, if the short one is not unique."""
  if not label_by:
    return run.folder
  parts = []
  for name in label_by:
    value = run.settings.get(name)
    file = run.config['files'].get(name)
    if file and name in config_lib.REFERENCES:
      value = f'{file["path"]}:{str(value).rpartition(":")[2]}'
    if isinstance(value, list):
      value = ', '.join(map(str, value)) or None
    if value is not None:
      parts.append(f'{name}={value}')
  return ', '.join(parts) or '(defaults)'


def _distinguishing(runs: Sequence[Run], without: Iterable[str] = ()) -> list[str]:
  """Returns the settings that distinguish the runs, except what follows from earlier settings."""
  left_out = {'seed', *without}
  settings: dict[str, None] = {}  # A set that keeps the order.
  for run in runs:
    left_out.update(run.config['change_no_number'])
    settings.update(dict.fromkeys(run.settings))
  distinguishing: list[str] = []
  keys = [''] * len(runs)
  for name in settings:
    if name in left_out:  # What follows from it still counts, such as an algorithm's own rates.
      continue
    # Two runs have the same key if they agree in all settings so far.
    finer = [
      key + json.dumps(config_lib.identity(run.config, name)) for key, run in zip(keys, runs)
    ]
    # A setting that splits no group further follows from those before it.
    if len(set(finer)) > len(set(keys)):
      distinguishing.append(name)
    keys = finer
  return distinguishing


def _text(
  name: str, settings: Mapping[str, Any], label_by: Sequence[str], with_server: bool
) -> str:
  """Returns the text that a setting adds to a label: NAME=VALUE, or a name or title alone."""
  value = settings.get(name)
  if value is None or value == []:
    return ''
  if name == 'algorithm' and not with_server:
    return names.algorithm(value)
  if name == 'algorithm':
    return names.composition(settings)
  is_of_composition = name == 'server_optimizer' or (with_server and name in names.OF_CLIENTS)
  if is_of_composition and 'algorithm' in settings:
    if 'algorithm' in label_by:  # Its text names the optimizers too.
      return ''
    return names.composition(settings)
  if name == 'task':
    return os.path.basename(str(value))  # For a user's FILE.py:NAME too.
  if name.endswith('_option') and isinstance(value, list):
    return ', '.join(map(str, value))
  if isinstance(value, float) and len(str(value)) > _LONG:
    return f'{name}={value:.4g}'
  return f'{name}={value}'


def _has(value: Any, wanted: str) -> bool:
  if isinstance(value, list):
    # An empty list is what 'none' stands for.
    return any(_has(v, wanted) for v in value or [None])
  if value is None:  # Its name in JSON is null.
    return wanted.lower() in ('none', 'null')
  return str(value) == wanted or bool(value == option_values.value(wanted))
