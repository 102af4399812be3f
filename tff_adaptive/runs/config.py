"""config.json: the settings of a run, written by its first start and checked by later ones."""

import contextlib
import dataclasses
import datetime
import functools
import importlib.metadata
import json
import os
import platform
import subprocess
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from tff_adaptive._utils import atomic_files
from tff_adaptive.runs.errors import ResumeError, reading, saving

FILE = 'config.json'
FORMAT = 1
_PACKAGES = ('tff-adaptive', 'tensorflow', 'tensorflow-federated', 'numpy')
# They may be FILE.py:NAME of a user's.
REFERENCES = ('task', 'algorithm', 'server_optimizer', 'client_optimizer')
_CONTENT = {
  **{'run_id': str, 'settings': dict, 'change_no_number': list, 'files': dict, 'data': dict},
  **{'num_parameters': int, 'versions': dict, 'changes': list},
}


@dataclasses.dataclass(frozen=True)
class Record:
  """A run's settings as config.json records them.

  Attributes:
    settings: Setting -> number, string, bool, list or mapping of these, or None.
    change_no_number: The settings that do not change the trained model. A resumed run may change
      them, and reports do not label runs by them.
    files: Setting -> path and sha256 of the user's own file that it names.
    metric: The task's metric, which is the default of reports and sweeps.
    command: The command line, if any.
    may_go_on: Whether a resumed run may have another number of `rounds`.
    hints: Setting -> text that is added to the error if a resumed run changes it.
    prefix: The prefix of settings' names in messages, such as '--'.
  """

  settings: Mapping[str, Any]
  change_no_number: Collection[str] = ()
  files: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
  metric: str | None = None
  command: Collection[str] = ()
  may_go_on: bool = True
  hints: Mapping[str, str] = dataclasses.field(default_factory=dict)
  prefix: str = ''

  def refused_changes(self, config: Mapping[str, Any]) -> list[str]:
    """Describes the differences from a config.json that a resumed run may not have."""
    now, found = {'settings': self.settings, 'files': self.files}, []
    may_change = {*self.change_no_number, *config['change_no_number']}
    may_change |= {'rounds'} if self.may_go_on else set()
    for name in {**config['settings'], **self.settings}:
      if name in may_change or identity(config, name) == identity(now, name):
        continue
      flag, was, value = self.prefix + name, config['settings'].get(name), self.settings.get(name)
      if was == value:
        path = (self.files.get(name) or config['files'][name])['path']
        kind = 'run' if os.path.isdir(path) else 'file'
        found.append(f'the {kind} of {flag}, {path!r}, was changed since')
      else:
        found.append(f'{flag} was {was!r} and is now {value!r}{self.hints.get(name, "")}')
    return found

  def check(self, folder: str, run_id: str | None = None) -> dict[str, Any] | None:
    """Returns the config.json of the run to resume in a folder, or None if there is none.

    Raises:
      ResumeError: If it belongs to another run, or a setting has changed that must not.
    """
    try:
      config = read(folder)
    except FileNotFoundError:
      return None
    refused = self.refused_changes(config)
    if run_id is not None and config['run_id'] != run_id:
      refused = [f'the run_id was {config["run_id"]!r} and is now {run_id!r}']
    if refused:
      raise ResumeError(
        f'the run in {folder} has other settings: {"; ".join(refused)}. Give the former, or another'
        ' folder.'
      )
    return config

  def open(
    self, folder: str, data: Mapping[str, Any], num_parameters: int, run_id: str | None = None
  ) -> dict[str, Any]:
    """Returns the config.json of the run in a folder; writes it for a new run.

    An existing file is not changed, because the command may still be refused; see `note_changes`.

    Args:
      folder: The run's folder.
      data: A description of the data, such as the numbers of clients and examples. A resumed run
        must have the same values, except for `source`.
      num_parameters: Number of parameters of the model.
      run_id: The id of a new run; by default a random one.

    Raises:
      ResumeError: If the run there has other settings or data.
      SaveError: If the file cannot be written.
    """
    config = self.check(folder)
    if config is None:
      config = {
        'format': FORMAT,
        'run_id': uuid.uuid4().hex if run_id is None else run_id,
        'started': _now(),
        'command': list(self.command),
        'metric': self.metric,
        'settings': dict(self.settings),
        'change_no_number': [name for name in self.settings if name in self.change_no_number],
        'files': dict(self.files),
        'data': dict(data),
        'num_parameters': num_parameters,
        **_made_with(),
        'changes': [],
      }
      path = os.path.join(folder, FILE)
      with saving(path):
        os.makedirs(folder, exist_ok=True)
        with contextlib.suppress(FileExistsError):
          atomic_files.write_json(path, config, atomic_files.place_new)
          return config
      config = self.check(folder)  # Another start of the same command came first.
      assert config is not None
    for name, value in config['data'].items():
      if name != 'source' and data.get(name) != value:
        raise ResumeError(
          f'the run in {folder} was on other data: {name} was {value} and is now {data.get(name)}.'
          ' Give the former data, or another folder.'
        )
    return config

  def note_changes(self, folder: str) -> None:
    """Adds a resumed run's changes to config.json; the caller holds the checkpoint's lock.

    Raises ResumeError if the run there has other settings, or the file cannot be written.
    """
    # Read again: until the checkpoint file was held another process may have gone on with the run.
    config = self.check(folder)
    if config is None:
      return
    was = config['settings']
    changes = {k: [was.get(k), v] for k, v in self.settings.items() if was.get(k) != v}
    made_with = _made_with() if self.metric is None else {**_made_with(), 'metric': self.metric}
    changes.update({k: [config.get(k), v] for k, v in made_with.items() if config.get(k) != v})
    if changes:
      config['changes'].append({'when': _now(), **changes})
      config.update(made_with, settings=dict(self.settings), files=dict(self.files))
      path = os.path.join(folder, FILE)
      with saving(path, ResumeError):
        atomic_files.write_json(path, config)


def identity(config: Mapping[str, Any], name: str) -> Any:
  """Returns a setting's value, or the name and hash of a user's own file, to compare two runs."""
  value, file = config['settings'].get(name), config['files'].get(name)
  if file is None:
    return value
  return [str(value).rpartition(':')[2] if name in REFERENCES else None, file['sha256']]


def read(folder: str) -> dict[str, Any]:
  """Reads the config.json of a run.

  Raises:
    FileNotFoundError: If there is none.
    RunFileError: If the file cannot be read, or an earlier version wrote it.
  """
  path = os.path.join(folder, FILE)
  with reading(path), open(path, encoding='utf-8') as file:
    config = dict(json.load(file))
    if config.get('format') != FORMAT:
      found = config.get('format')
      raise ValueError(
        f'its format is {found!r}, known is {FORMAT}; the last that reads others is e20f8c7'
      )
    for name, kind in _CONTENT.items():
      if not isinstance(config[name], kind):
        raise TypeError(f'its {name} is {config[name]!r:.80}')
    rounds, seed = config['settings']['rounds'], config['settings'].get('seed')
    if type(rounds) is not int or isinstance(seed, (list, dict)):
      raise TypeError(f'its rounds are {rounds!r:.80} and its seed is {seed!r:.80}')
    files, names = config['files'].values(), config['change_no_number']
    if not all(isinstance(f, dict) for f in files) or not all(isinstance(n, str) for n in names):
      raise TypeError(f'its files are {[*files]!r:.80} and its change_no_number {names!r:.80}')
  return config


def _made_with() -> dict[str, Any]:
  return {'versions': _versions(), 'git_revision': _git_revision()}


def _now() -> str:
  return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')


def _versions() -> dict[str, str]:
  """Returns the versions of Python and of the packages on which numbers depend."""
  found = {'python': platform.python_version()}
  for package in _PACKAGES:
    try:
      found[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      found[package] = 'not installed'
  return found


@functools.cache
def _git_revision() -> str | None:
  """Returns the revision of this checkout, with '+' if files differ; None outside of git.

  It is read once in a process, because the process continues with the code that it began with.
  """
  root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
  if not os.path.exists(os.path.join(root, '.git')):
    return None

  def git(*arguments: str) -> str:
    command = ['git', '-C', root, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout

  try:
    revision = git('rev-parse', 'HEAD').strip()
    differs = git('status', '-s', '-uno').strip()
  except (OSError, subprocess.SubprocessError):
    return None
  return revision + ('+' if differs else '')
