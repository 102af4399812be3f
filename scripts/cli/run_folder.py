"""A run's folder: whether it can be used, and its config.json."""

import datetime
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive._utils import atomic_files, provenance
from tff_adaptive.training import run_config

from . import records

CONFIG_FILE = 'config.json'
# What a resumed run needs of it.
_CONTENT = {'settings': dict, 'data': dict, 'run_id': str, 'changes': list, 'versions': dict}


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


class RunFolderError(ValueError):
  """A run's folder that cannot be used as asked."""


def read_config(folder: str, record: records.Record) -> dict[str, Any] | None:
  """Returns the config.json of the run in `folder`, or None if there is no run yet.

  Args:
    folder: The run's folder.
    record: The present settings.

  Raises:
    RunFolderError: If a setting that matters has changed, or the folder holds something else.
  """
  path = os.path.join(folder, CONFIG_FILE)
  if not os.path.exists(path):
    # What a start that was killed left behind of config.json is hidden.
    if os.path.isdir(folder) and any(not name.startswith('.') for name in os.listdir(folder)):
      raise RunFolderError(
        f'--output_dir={folder} is not empty and holds no {CONFIG_FILE}: name a new folder.'
      )
    return None
  config = _load(path)
  refused = record.refused_changes(config)
  if refused:
    raise RunFolderError(
      f'the run in {folder} has other settings: {"; ".join(refused)}. Give the former, or another'
      ' --output_dir.'
    )
  return config


def _load(path: str) -> dict[str, Any]:
  """Returns the content of a config.json that has what is needed of it."""
  try:
    with open(path, encoding='utf-8') as file:
      config = json.load(file)
    for name, kind in _CONTENT.items():
      if not isinstance(config[name], kind):
        raise TypeError(f'its {name} is {config[name]!r:.80}')
    for name, source in config.get('files', {}).items():
      if not isinstance(source['path'] + source['sha256'], str):
        raise TypeError(f'its file of {name} is {source!r:.80}')
  except KeyError as error:
    raise RunFolderError(f'{path} cannot be read (it has no {error}): name a new folder.') from None
  except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
    raise RunFolderError(f'{path} cannot be read ({error}): name a new folder.') from None
  return dict(config)


def is_begun(folder: str) -> bool:
  """Whether there is a run in a folder."""
  return os.path.exists(os.path.join(folder, CONFIG_FILE))


def is_complete(folder: str, rounds: int) -> bool:
  """Whether the run in a folder has done all its rounds, and so many of them."""
  try:
    with open(os.path.join(folder, 'summary.json'), encoding='utf-8') as file:
      summary = json.load(file)
    return bool(summary['is_complete']) and summary['rounds'] == rounds
  except (OSError, ValueError, KeyError, TypeError, RecursionError):
    return False


def open_config(
  folder: str,
  record: records.Record,
  data: Mapping[str, Any],
  num_parameters: int,
  command: Sequence[str],
  metric: str | None = None,
) -> dict[str, Any]:
  """Returns the config.json of the run in `folder`; makes it for a new run.

  One that is there stays as it is, so that a command that is refused later changes nothing: see
  `note_changes`.

  Args:
    folder: The run's folder.
    record: The present settings.
    data: What is to be recorded of the data; the numbers in it must not change. Other data of the
      same numbers are not noticed.
    num_parameters: Of the model.
    command: The command line.
    metric: By which the task is judged: reports and sweeps take it where none is named.

  Raises:
    RunFolderError: If the run there has other settings or data, or nothing can be written.
  """
  config = read_config(folder, record)
  if config is None:
    config = _new_config(record, data, num_parameters, command, metric)
    if _create_config(folder, config):
      return config
    # Another start of the same command came first.
    config = read_config(folder, record)
    assert config is not None
  _check_same_data(config, data, folder)
  return config


def note_changes(folder: str, record: records.Record) -> None:
  """Notes in config.json what a resumed run changes; the caller holds the run's checkpoint file.

  Args:
    folder: The run's folder.
    record: The present settings.

  Raises:
    RunFolderError: If the run there has other settings, or nothing can be written.
  """
  # Read again: until the checkpoint file was held another process may have gone on with the run.
  config = read_config(folder, record)
  if config is not None and _update_config(config, record):
    try:
      atomic_files.write_json(os.path.join(folder, CONFIG_FILE), config)
    except OSError as error:
      raise _cannot_write(folder, error) from None


def _check_same_data(config: Mapping[str, Any], data: Mapping[str, Any], folder: str) -> None:
  """Refuses to resume a run on other data: the numbers of clients and examples must agree."""
  for name, value in config['data'].items():
    if name != 'source' and data.get(name) != value:
      raise RunFolderError(
        f'the run in {folder} was on other data: {name} was {value} and is now {data.get(name)}.'
        ' Give the former --data_dir, or another --output_dir.'
      )


def _new_config(
  record: records.Record,
  data: Mapping[str, Any],
  num_parameters: int,
  command: Sequence[str],
  metric: str | None,
) -> dict[str, Any]:
  """Returns the content of a new run's config.json."""
  files = {'files': dict(record.files)} if record.files else {}
  judged = {} if metric is None else {'metric': metric}
  more = {'command': list(command), **files, **judged}
  return run_config.new(record.settings, data, num_parameters, run_id=uuid.uuid4().hex, **more)


def _update_config(config: dict[str, Any], record: records.Record) -> bool:
  """Notes in `config` what a resumed run changed; returns whether there is anything to note."""
  settings, before = record.settings, record.completed(config['settings'])
  changes = {k: [before.get(k), v] for k, v in settings.items() if before.get(k) != v}
  now = {'versions': provenance.versions(), 'git_revision': provenance.git_revision()}
  changes.update({k: [config.get(k), v] for k, v in now.items() if config.get(k) != v})
  if not changes:
    return False
  when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')
  config['changes'].append({'when': when, **changes})
  config['settings'] = dict(settings)
  config.update(now)
  return True


def _create_config(folder: str, config: Mapping[str, Any]) -> bool:
  """Writes a new run's config.json, whole; False if another process made one meanwhile."""
  try:
    return run_config.create(folder, config)
  except OSError as error:
    raise _cannot_write(folder, error) from None


def _cannot_write(folder: str, error: OSError) -> RunFolderError:
  return RunFolderError(f'--output_dir={folder} cannot be written to ({error.strerror}).')
