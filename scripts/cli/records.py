"""What config.json says that a run was asked to do, and whether a resumed run may differ."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any

from tff_adaptive.runs import warm_start

from . import resolve, settings as settings_lib


@dataclasses.dataclass(frozen=True)
class Record:
  """What is recorded of a run's settings.

  Attributes:
    settings: Flag name -> value.
    files: The user's own files by the flag that names them ('task', 'initial_weights', ...): path
      and sha256.
    run: The settings that these were made from, if any.
  """

  settings: Mapping[str, Any]
  files: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
  run: settings_lib.Settings | None = None

  def completed(self, before: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what an earlier version recorded, with the defaults of settings it did not have."""
    missing = [name for name in self.settings if name not in before]
    if self.run is None or not missing:
      return dict(before)
    defaults = resolve.resolve({**self.settings, **dict.fromkeys(missing)}).flat()
    return {**before, **{name: defaults[name] for name in missing}}

  def refused_changes(self, config: Mapping[str, Any]) -> list[str]:
    """Returns what differs from a config.json and matters, each with both values."""
    before, files = self.completed(config['settings']), config.get('files', {})
    found = []
    if before.get('target_epsilon') is not None and before.get('rounds') != self.settings['rounds']:
      found.append(
        f'--rounds was {before.get("rounds")} and is now {self.settings["rounds"]}, on which the'
        ' noise for --target_epsilon depends'
      )
    for name, now in self.settings.items():
      is_same_file = name in files and _digest(files, name) == _digest(self.files, name)
      if is_same_file and _object(before.get(name)) == _object(now):  # Elsewhere, perhaps.
        continue
      if name == 'client_state_dir' and before.get(name) and os.path.abspath(before[name]) == now:
        continue  # Earlier versions recorded it as it was given.
      if name == 'gpus_per_worker' and not before.get(name) and not now:
        continue  # None without --ray, 0 with it: the same subrounds have the same bits.
      if name not in settings_lib.HARMLESS and before.get(name) != now:
        hint = _subrounds_hint(before.get(name)) if name == 'subrounds' else ''
        found.append(f'--{name} was {before.get(name)!r} and is now {now!r}{hint}')
      elif name in files and not is_same_file:
        path = self.files[name]['path']
        kind = 'run' if os.path.isdir(path) else 'file'
        found.append(f'the {kind} of --{name}, {path!r}, was changed since')
    return found


def of(run: settings_lib.Settings) -> Record:
  """Returns the record of a run's settings.

  Raises:
    ValueError: If --initial_weights names a run without weights.
    OSError: If a file cannot be read.
  """
  files, start = run.files(), run.initial_weights
  if start is not None:
    sha256 = warm_start.sha256(start)
    files['initial_weights'] = {'path': start, 'sha256': sha256}
  return Record(run.flat(), files, run)


def _digest(files: Mapping[str, Mapping[str, str]], name: str) -> str | None:
  return files[name]['sha256'] if name in files else None


def _object(spec: Any) -> str:
  """Of FILE.py:NAME the name."""
  return str(spec).rpartition(':')[2]


def _subrounds_hint(before: int | None) -> str:
  """What to do about subrounds, which --ray and --ray_workers have defaults for."""
  if before is None:
    return ' (--ray divides a cohort: this run goes on without it)'
  return f' (--subrounds={before} goes on, with --ray and without)'
