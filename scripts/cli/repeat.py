"""Repeats a run from its config.json, or says what has changed since: train.py's --config."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import user_code, user_files, value_text
from tff_adaptive.runs import config as config_lib, revision
from tff_adaptive.training import initial_weights

from . import command, resolve, settings as settings_lib

# What a repeated run does not take over, because it says how a run was shown or resumed.
OF_ONE_START = (
  *('config', 'accept_other_versions', 'output_dir', 'json', 'quiet'),
  *('resume_from', 'accept_lost_rows'),
)
# What runs of earlier releases, which did not record which settings were given, are begun with.
_FIRST = ('task', 'task_option', 'algorithm')
_MOST_TURNS = 5  # Each gives settings whose defaults depend on those of the turn before.


def with_config(given: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the values of flags with those of the run that --config names; `given` without it.

  Raises:
    ValueError: If the run's files, or versions of packages, are not those of the run, or a given
      flag would change its numbers. The message has one line.
  """
  if given.get('config') is None:
    return dict(given)
  folder, config = _read(given['config'])
  _refuse_changes(given)
  _check_versions(folder, config, bool(given.get('accept_other_versions')))
  recorded = _recorded(config)
  recorded.update(_files(folder, config, recorded))
  values = given_for(recorded, config.get('given', _FIRST))
  return {**values, 'output_dir': f'{folder}_repeated', **given}


def check_data(path: str | None, data: Mapping[str, Any]) -> None:
  """Raises ValueError if data differ in number from those of the run that --config names.

  Args:
    path: The value of --config, or None.
    data: The entry `data` of config.json.
  """
  if path is None:
    return
  folder, config = _read(path)
  for name, was in config['data'].items():
    if name != 'source' and name in data and data[name] != was:
      raise ValueError(
        f'--config: the data have changed since the run in {folder}: {name} was {was} and is now'
        f' {data[name]}; give the former data.'
      )


def _read(path: str) -> tuple[str, dict[str, Any]]:
  """Returns the folder and the config.json of a run, which the path of either names."""
  folder = os.path.abspath(path)
  if os.path.basename(folder) == config_lib.FILE:
    folder = os.path.dirname(folder)
  if not os.path.isdir(folder) or not os.path.lexists(os.path.join(folder, config_lib.FILE)):
    raise ValueError(
      f'--config={path}: there is no such file; name the {config_lib.FILE} in the folder of a run.'
    )
  return folder, config_lib.read(folder)


def _refuse_changes(given: Mapping[str, Any]) -> None:
  """Raises ValueError for a flag that would change the numbers of the repeated run."""
  for name in given:
    if name not in settings_lib.CHANGE_NO_NUMBER:
      raise ValueError(
        f'--{name} does not go with --config, which repeats a run with its own settings: leave it'
        ' out, or give all flags without --config.'
      )


def _check_versions(folder: str, config: Mapping[str, Any], accepts_others: bool) -> None:
  """Raises ValueError if the run was made with other versions, unless they are accepted."""
  now = config_lib.versions()
  changed = []
  for name, was in config['versions'].items():
    if now.get(name) != was:
      changed.append(f'{name} was {was} and is now {now.get(name)}')
  if changed and not accepts_others:
    raise ValueError(
      f'--config: the versions are not those of the run in {folder}: {"; ".join(changed)}. Repeat'
      ' it with the former versions, or give --accept_other_versions: the last bits may differ.'
    )
  was_revision = config.get('git_revision')
  if was_revision != revision.git_revision():
    command.say(
      f'The run in {folder} was made at git revision {was_revision}; this is'
      f' {revision.git_revision()}.'
    )


def _recorded(config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings of a run that its repetition takes over."""
  settings = config['settings']
  known = {*resolve.resolve().flat()}
  if 'task' not in settings or 'task_option' not in settings:
    raise ValueError(
      '--config: the run was made by a program, with a task or settings that only the program has:'
      ' repeat it there.'
    )
  recorded = {}
  for name, value in settings.items():
    if name in OF_ONE_START:
      continue
    if name in known:
      recorded[name] = value
    elif value is not None and value != []:
      raise ValueError(
        f'--config: the run has the setting {name}={value_text.in_text(value)}, which this version'
        ' does not know: repeat it with the version that made it.'
      )
  return recorded


def _files(folder: str, config: Mapping[str, Any], recorded: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the settings that name files, with paths that hold from this folder too.

  A Python file that is gone or has changed is replaced by the run's own copy.
  """
  changed: dict[str, Any] = {}
  for key, entry in config['files'].items():
    if user_files.is_python(entry):
      continue
    _check_file(key, entry)
    if recorded.get(key) is not None:
      changed[key] = os.path.abspath(entry['path'])
  for flag, value in recorded.items():
    if isinstance(value, str) and flag in config_lib.REFERENCES:
      changed.setdefault(flag, _with_paths(flag, value, folder, config['files']))
  return changed


def _check_file(flag: str, entry: Mapping[str, Any]) -> None:
  """Raises ValueError if a file of data, or initial weights, is gone or has changed."""
  path = entry['path']
  if not os.path.exists(path):
    raise ValueError(f'--config: the file of --{flag}, {path!r}, is gone: put it back.')
  if initial_weights.sha256(path) != entry['sha256']:
    raise ValueError(
      f'--config: the file of --{flag}, {path!r}, has changed since the run: give the former one.'
    )


def _with_paths(flag: str, value: str, folder: str, files: Mapping[str, Any]) -> str:
  """Returns a value with, in place of each FILE.py, the path of the file that the run used."""
  pieces = [value]
  if flag == 'algorithm':  # A chain may have several parts of the user's.
    pieces = registry.pieces(value)
  number = 0
  for position, piece in enumerate(list(pieces)):
    if not user_code.is_reference(piece):
      continue
    number += 1
    key = flag
    if number > 1:
      key = f'{flag}_{number}'
    name = piece.rpartition(':')[2]
    if key not in files:
      raise ValueError(f'--config: the {config_lib.FILE} has no entry on the file of --{flag}.')
    path = _usable(folder, key, files[key], name)
    pieces[position] = f'{path}:{name}'
  return '+'.join(pieces)


def _usable(folder: str, key: str, entry: Mapping[str, Any], name: str) -> str:
  """Returns the path of a user's file as the run used it: the file itself, or the run's copy."""
  try:
    file = user_files.as_used(folder, key, entry, name)
  except ValueError as error:
    raise ValueError(f'--config: the file of --{key}: {error}') from None
  if file.change:
    command.say(f'{entry["path"]!r} {file.change}: the copy in {folder} is used.')
  return file.path


def given_for(recorded: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
  """Returns the values to give so that the settings are those recorded.

  What follows from other settings is not given, because a flag may be refused beside others even
  with the value that it has by default.

  Args:
    recorded: The values of all settings.
    names: Those that were given. A default that is another one now is given too.
  """
  given = {name: recorded[name] for name in names if recorded.get(name) not in (None, [])}
  differing: list[str] = []
  for _ in range(_MOST_TURNS):
    flat = resolve.resolve(given).flat()
    differing = [name for name, value in recorded.items() if not _is_same(flat[name], value)]
    if not differing:
      return given
    missing = {name: recorded[name] for name in differing if recorded[name] is not None}
    if all(given.get(name) == value for name, value in missing.items()):
      break
    given.update(missing)
  raise ValueError(
    f'--config: {", ".join(differing)} cannot have the recorded values in this version: repeat the'
    ' run with the version that made it.'
  )


def _is_same(value: Any, recorded: Any) -> bool:
  """Returns whether two values mean the same: 0 GPUs of a worker are recorded as None."""
  if value is None or recorded is None:
    return not value and not recorded
  return bool(value == recorded)
