"""Handles config.json: a run's first start writes its settings, and later starts check them."""

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import uuid
from collections.abc import Collection, Mapping
from typing import Any

from tff_adaptive._utils import atomic_files, user_code, value_text
from tff_adaptive.runs import revision
from tff_adaptive.runs.errors import ResumeError, reading, saving

FILE = 'config.json'
FORMAT = 1
_PACKAGES = ('tff-adaptive', 'tensorflow', 'tensorflow-federated', 'numpy')
# Settings that may name an object in a user's file, as FILE.py:NAME.
REFERENCES = (
  *('task', 'algorithm', 'server_optimizer', 'client_optimizer', 'cohort', 'aggregator'),
  *('availability', 'speed', 'staleness', 'client_schedule', 'server_schedule'),
)
# What every reader of config.json may rely on: `read` refuses a file without it.
_CONTENT = {
  'run_id': str,
  'settings': dict,
  'change_no_number': list,
  'files': dict,
  'data': dict,
  'num_parameters': int,
  'versions': dict,
  'changes': list,
}


@dataclasses.dataclass(frozen=True)
class Record:
  """A run's settings as config.json records them.

  Attributes:
    settings: Values by setting: numbers, strings, bools or None, or lists or mappings of these.
    change_no_number: The settings that do not change the trained model. A resumed run may change
      them, and reports do not label runs by them.
    files: Mappings by setting, with the `path` and `sha256` of the user's file that the setting
      names. A Python file has `modules` too, the SHA-256 of each of the user's modules that it
      imports, by path; `copy`, where in the run's folder its copy is, if there is one; and, for an
      algorithm or optimizer, the `name` that reports show.
    metric: The metric of the task, by which reports and sweeps compare runs by default.
    command: The words of the command line; empty if there is none.
    given: The names of the settings that were given; the others have values that follow from them.
    may_go_on: Whether a resumed run may change the setting `rounds`.
    hints: Texts by setting, each added to the error if a resumed run changes its setting.
    prefix: The prefix of settings' names in messages, such as '--'.
  """

  settings: Mapping[str, Any]
  change_no_number: Collection[str] = ()
  files: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
  metric: str | None = None
  command: Collection[str] = ()
  given: Collection[str] = ()
  may_go_on: bool = True
  hints: Mapping[str, str] = dataclasses.field(default_factory=dict)
  prefix: str = ''

  def refused_changes(self, config: Mapping[str, Any]) -> list[str]:
    """Returns a message for each setting, or its file, that differs from `config` but must not."""
    now = {'settings': self.settings, 'files': self.files}
    may_change = {*self.change_no_number, *config['change_no_number']}
    if self.may_go_on:
      may_change.add('rounds')
    refusals = []
    # In the order of the file, with settings that are new after them.
    for name in {**config['settings'], **self.settings}:
      if name in may_change or _is_same(config, now, name):
        continue
      flag = self.prefix + name
      was = config['settings'].get(name)
      value = self.settings.get(name)
      if was == value:  # The same path, but another content.
        file = _changed(flag, config['files'].get(name), self.files.get(name))
        refusals.append(f'{file} has changed since')
      else:
        change = f'{flag} was {value_text.in_text(was)} and is now {value_text.in_text(value)}'
        refusals.append(change + self.hints.get(name, ''))
    return refusals

  def check(self, folder: str, run_id: str | None = None) -> dict[str, Any] | None:
    """Checks that a folder's run can be resumed. Returns its config.json; None if there is no run.

    Raises:
      ResumeError: If a given `run_id` or a fixed setting differs, or the file is damaged.
    """
    try:
      config = read(folder)
    except FileNotFoundError:
      return None
    refused = self.refused_changes(config)
    # Another id means another run in this folder: to list its settings would mislead.
    if run_id is not None and config['run_id'] != run_id:
      refused = [f'the run_id was {config["run_id"]!r} and is now {run_id!r}']
    if refused:
      raise ResumeError(
        f'the run in {folder} has other settings: {"; ".join(refused)}. Give the former values,'
        ' or another folder.'
      )
    return config

  def open(
    self, folder: str, data: Mapping[str, Any], num_parameters: int, run_id: str | None = None
  ) -> dict[str, Any]:
    """Returns the config.json of the run in a folder; writes it for a new run.

    An existing file is changed only by `note_changes`, because this start may still be refused.

    Args:
      folder: The run's folder.
      data: A description of the data, such as the numbers of clients and examples. A resumed run
        must have the same values, except for `source`.
      num_parameters: Number of parameters of the model.
      run_id: The id of a new run; None draws a random one.

    Raises:
      ResumeError: If the run in the folder has other settings or data.
      SaveError: If the file cannot be written.
    """
    config = self.check(folder)
    if config is None:
      if run_id is None:
        run_id = uuid.uuid4().hex
      config = {
        'format': FORMAT,
        'run_id': run_id,
        'started': _now(),
        'command': list(self.command),
        'given': list(self.given),
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
        # Two starts of one command at a time must agree on the run's id.
        with contextlib.suppress(FileExistsError):
          atomic_files.write_json(path, config, atomic_files.place_new)
          return config
      config = self.check(folder)  # Another start of the same command came first.
      assert config is not None
    # What a run of an earlier release did not record is not compared.
    for name, value in config['data'].items():
      if name != 'source' and data.get(name) != value:
        raise ResumeError(
          f'the run in {folder} was on other data: {name} was {value} and is now {data.get(name)}.'
          ' Give the former data, or another folder.'
        )
    return config

  def note_changes(self, folder: str) -> None:
    """Writes a resumed run's new settings and versions to config.json, and a list of the changes.

    The state file must be locked. Raises ResumeError if the run cannot be resumed (see `check`) or
    the file cannot be written.
    """
    # Read again, because another process may have resumed the run before this one had the lock.
    config = self.check(folder)
    if config is None:
      return
    made_with = _made_with()
    if self.metric is not None:  # Programs need not name one, and then keep what was recorded.
      made_with['metric'] = self.metric
    changes = {
      **_differences(config['settings'], self.settings),
      **_differences(config, made_with),
    }
    if changes:
      config['changes'].append({'when': _now(), **changes})
      config.update(
        made_with,
        given=list(self.given),
        settings=dict(self.settings),
        files=dict(self.files),
      )
      path = os.path.join(folder, FILE)
      with saving(path, ResumeError):
        atomic_files.write_json(path, config)


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[Any]]:
  """Returns the old and the new value, by name, of what has another value now."""
  return {
    name: [before.get(name), value] for name, value in now.items() if before.get(name) != value
  }


def identity(config: Mapping[str, Any], name: str) -> Any:
  """Returns a setting's key to compare runs by: its value, or NAME and hash of a user's file."""
  value = config['settings'].get(name)
  file = config['files'].get(name)
  if file is None:
    return value
  if name in REFERENCES and user_code.is_reference(str(value)):
    return [str(value).rpartition(':')[2], digest(file)]
  # The path does not count: a file that was only moved is the same setting.
  return [None, digest(file)]


def digest(file: Mapping[str, Any]) -> str:
  """Returns a digest of an entry of `files`: of the user's file and of the modules it imports."""
  modules = file.get('modules')
  if not modules:
    return str(file['sha256'])
  # Sorted, because the order of imports changes nothing.
  text = json.dumps([file['sha256'], modules], sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()


def _is_same(before: Mapping[str, Any], now: Mapping[str, Any], name: str) -> bool:
  """Returns whether a setting and its file are the same in two records."""
  file = before['files'].get(name)
  new_file = now['files'].get(name)
  if file is not None and new_file is not None and 'modules' not in file:
    # A run of 0.2.0, which recorded no modules.
    now = {**now, 'files': {name: {**new_file, 'modules': {}}}}
  return bool(identity(before, name) == identity(now, name))


def _changed(flag: str, before: Mapping[str, Any] | None, now: Mapping[str, Any] | None) -> str:
  """Returns words for the file of a setting that has changed, or for a module it imports."""
  entry = now or before or {}
  path = entry['path']
  if before and now and before['sha256'] == now['sha256']:
    modules = before.get('modules', {})
    new_modules = now.get('modules', {})
    for module in sorted({**modules, **new_modules}):
      if modules.get(module) != new_modules.get(module):
        return f'{module!r}, which the file of {flag}, {path!r}, imports,'
  kind = 'run' if os.path.isdir(path) else 'file'
  return f'the {kind} of {flag}, {path!r},'


def read(folder: str) -> dict[str, Any]:
  """Reads the config.json of a run.

  Raises:
    FileNotFoundError: If the folder has no config.json.
    RunFileError: If the file cannot be read, is damaged, or has the format of another version.
  """
  path = os.path.join(folder, FILE)
  with reading(path), open(path, encoding='utf-8') as file:
    config = dict(json.load(file))
    version = config.get('format')
    if version != FORMAT:
      raise ValueError(
        f'its format is {version!r}, this version reads {FORMAT}; use the version that wrote it'
      )
    for name, kind in _CONTENT.items():
      if not isinstance(config[name], kind):
        raise TypeError(f'its {name} is {config[name]!r:.80}')
    rounds = config['settings']['rounds']
    seed = config['settings'].get('seed')
    # Not `isinstance`: true and false are ints to Python.
    if type(rounds) is not int or isinstance(seed, (list, dict)):
      raise TypeError(f'its rounds are {rounds!r:.80} and its seed is {seed!r:.80}')
    files = list(config['files'].values())
    names = config['change_no_number']
    if not all(map(_is_file, files)) or not all(isinstance(name, str) for name in names):
      raise TypeError(f'its files are {files!r:.80} and its change_no_number {names!r:.80}')
  return config


def _is_file(entry: Any) -> bool:
  """Returns whether an entry of `files` has the form that it must have."""
  return isinstance(entry, dict) and isinstance(entry.get('modules', {}), dict)


def _made_with() -> dict[str, Any]:
  return {'versions': versions(), 'git_revision': revision.git_revision()}


def _now() -> str:
  return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')


def versions() -> dict[str, str]:
  """Returns the versions of Python and of the packages on which a run's numbers depend."""
  by_package = {'python': platform.python_version()}
  for package in _PACKAGES:
    try:
      by_package[package] = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      by_package[package] = 'not installed'
  return by_package
