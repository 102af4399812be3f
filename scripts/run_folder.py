"""A run's folder: whether it can be used, and its config.json."""

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from scripts import settings as settings_lib
from tff_adaptive import files

CONFIG_FILE = 'config.json'
_PACKAGES = ('tff-adaptive', 'tensorflow', 'tensorflow-federated', 'numpy')


def check_writable(folder: str, flag: str = 'output_dir') -> None:
  """Refuses a folder that cannot be made or written to; makes nothing.

  Args:
    folder: The folder, which need not exist.
    flag: The flag that names it.

  Raises:
    ValueError: If it cannot be used.
  """
  path = os.path.abspath(folder)
  while not os.path.lexists(path):
    path = os.path.dirname(path)
  if not os.path.isdir(path):
    raise ValueError(f'--{flag}={folder}: {path} is not a folder; name another.')
  if not os.access(path, os.W_OK | os.X_OK):
    raise ValueError(f'--{flag}={folder}: {path} cannot be written to; name another folder.')


def read_config(folder: str, settings: Mapping[str, Any]) -> Optional[dict[str, Any]]:
  """Returns the config.json of the run in `folder`, or None if there is no run yet.

  Args:
    folder: The run's folder.
    settings: The present settings.

  Raises:
    ValueError: If a setting that matters has changed, or the folder holds something else.
  """
  path = os.path.join(folder, CONFIG_FILE)
  if not os.path.exists(path):
    if os.path.isdir(folder) and os.listdir(folder):
      raise ValueError(
        f'--output_dir={folder} is not empty and holds no {CONFIG_FILE}: name a new folder.'
      )
    return None
  try:
    with open(path, encoding='utf-8') as file:
      config = json.load(file)
    before = config['settings']
  except (OSError, ValueError, KeyError) as error:
    raise ValueError(f'{path} cannot be read ({error}): name a new folder.') from None
  refused = settings_lib.refused_changes(before, settings)
  if refused:
    raise ValueError(
      f'the run in {folder} has other settings: {"; ".join(refused)}. Give the former, or another'
      ' --output_dir.'
    )
  return config


def is_complete(folder: str, rounds: int) -> bool:
  """Whether the run in a folder has done all its rounds, and so many of them."""
  try:
    with open(os.path.join(folder, 'summary.json'), encoding='utf-8') as file:
      summary = json.load(file)
  except (OSError, ValueError):
    return False
  return bool(summary.get('is_complete')) and summary.get('rounds') == rounds


def check_same_data(config: Mapping[str, Any], data: Mapping[str, Any], folder: str) -> None:
  """Refuses to resume a run on other data: the numbers of clients and examples must agree."""
  for name, value in config['data'].items():
    if name != 'source' and data[name] != value:
      raise ValueError(
        f'the run in {folder} was on other data: {name} was {value} and is now {data[name]}.'
        ' Give the former --data_dir, or another --output_dir.'
      )


def new_config(
  settings: Mapping[str, Any], data: Mapping[str, Any], num_parameters: int, command: Sequence[str]
) -> dict[str, Any]:
  """Returns the content of a new run's config.json."""
  return {
    'run_id': uuid.uuid4().hex,
    'started': datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds'),
    'command': list(command),
    'settings': dict(settings),
    'data': dict(data),
    'num_parameters': num_parameters,
    'versions': versions(),
    'git_revision': git_revision(),
    'changes': [],
  }


def update_config(config: dict[str, Any], settings: Mapping[str, Any]) -> bool:
  """Notes in `config` what a resumed run changed; returns whether there is anything to note."""
  before = config['settings']
  changes = {k: [before.get(k), v] for k, v in settings.items() if before.get(k) != v}
  now = {'versions': versions(), 'git_revision': git_revision()}
  changes.update({k: [config[k], v] for k, v in now.items() if config[k] != v})
  if not changes:
    return False
  when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')
  config['changes'].append({'when': when, **changes})
  config['settings'] = dict(settings)
  config.update(now)
  return True


def write_config(folder: str, config: Mapping[str, Any]) -> None:
  """Writes config.json, and makes the folder if need be.

  Raises:
    ValueError: If it cannot be written.
  """
  try:
    os.makedirs(folder, exist_ok=True)
    files.write_json(os.path.join(folder, CONFIG_FILE), config)
  except OSError as error:
    raise ValueError(f'--output_dir={folder} cannot be written to ({error.strerror}).') from None


def versions() -> dict[str, str]:
  """Returns the versions of Python and of the packages that numbers depend on."""
  found = {'python': platform.python_version()}
  for package in _PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      found[package] = 'not installed'
  return found


def git_revision() -> Optional[str]:
  """Returns the revision of this checkout, '+' after it if files differ; None outside of git."""
  root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  if not os.path.exists(os.path.join(root, '.git')):
    return None

  def git(*arguments):
    command = ['git', '-C', root, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout

  try:
    revision = git('rev-parse', 'HEAD').strip()
    differs = git('status', '--porcelain', '--untracked-files=no').strip()
  except (OSError, subprocess.SubprocessError):
    return None
  return revision + ('+' if differs else '')
