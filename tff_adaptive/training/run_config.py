"""config.json: what a run was asked to do, made once, by the first start in a new folder."""

import dataclasses
import datetime
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive._utils import atomic_files, provenance
from tff_adaptive.runs.errors import ResumeError, saving
from tff_adaptive.training.config import TrainingConfig

FILE = 'config.json'
# Which of a program's settings a resumed run may change: they do not touch the model's course.
_HARMLESS = frozenset(
  {
    'rounds',
    'rounds_per_evaluation',
    'rounds_per_checkpoint',
    'keep_checkpoints',
    'client_state_store',
    'client_state_dir',
    'client_state_cache_bytes',
    'metric',
    'target',
  }
)
_MOST_COUNTED = 100_000  # Of more clients the examples are not counted: one by one it takes long.
_COST_MODEL = 'cost_model'
_PROGRAM = 'training.train'  # What `made_by` says of a file that no command made.


def new(
  settings: Mapping[str, Any],
  data: Mapping[str, Any],
  num_parameters: int,
  *,
  run_id: str,
  **more: Any,
) -> dict[str, Any]:
  """Returns the content of a new run's config.json.

  Args:
    settings: Setting -> value.
    data: What is to be recorded of the data.
    num_parameters: Of the model.
    run_id: As the checkpoint has it.
    **more: What else is to be recorded.
  """
  return {
    'run_id': run_id,
    'started': datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds'),
    **more,
    'settings': dict(settings),
    'data': dict(data),
    'num_parameters': num_parameters,
    'versions': provenance.versions(),
    'git_revision': provenance.git_revision(),
    'changes': [],
  }


def create(folder: str, config: Mapping[str, Any]) -> bool:
  """Writes a new run's config.json, whole; False if another process made one meanwhile.

  Where files cannot have links, an empty file is left if it is killed at the wrong instant.

  Raises:
    OSError: If it cannot be written.
  """
  os.makedirs(folder, exist_ok=True)
  try:
    atomic_files.write_json(os.path.join(folder, FILE), config, _name)
  except FileExistsError:
    return False
  return True


def _name(temporary: str, path: str) -> None:
  """Gives a file its name; FileExistsError if there is one, which stays: unlike with a renaming."""
  try:
    os.link(temporary, path)
  except FileExistsError:
    raise
  except OSError:  # A file system without links: whoever makes an empty file may fill it.
    open(path, 'xb').close()
    try:
      os.replace(temporary, path)
    except BaseException:
      os.unlink(path)
      raise


def of_program(config: TrainingConfig, settings: Mapping[str, Any] | None) -> dict[str, Any]:
  """Returns the settings of a run that a program makes.

  Args:
    config: The run's configuration.
    settings: What the program says of the run: name -> number, text, truth value or list.

  Raises:
    ValueError: If a setting cannot be recorded, or has the name of one in `config`.
  """
  found = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
  del found[_COST_MODEL]
  if config.client_state_dir is not None:  # The file is read from other folders too.
    found['client_state_dir'] = os.path.abspath(config.client_state_dir)
  found['population'] = config.population and config.population.record()
  if config.population is not None and config.cost_model is not None:
    # Who finishes in time depends on it; without a population it only counts.
    model = dataclasses.asdict(config.cost_model)
    found[_COST_MODEL] = json.loads(json.dumps(model, default=int))  # NumPy's integers.
  for name, value in (settings or {}).items():
    if name in found:
      raise ValueError(f'settings has {name!r}, which `config` says already: leave it out.')
    try:
      found[str(name)] = json.loads(json.dumps(value))
    except (TypeError, ValueError):
      raise ValueError(
        f'settings[{name!r}] is {value!r:.80}; give numbers, texts, truth values or lists of them.'
      ) from None
  return found


def check(folder: str, settings: Mapping[str, Any], run_id: str) -> None:
  """Refuses to go on with a program's run under other settings; other files are let be.

  Raises:
    ResumeError: If a setting that matters has changed.
  """
  before = _read(folder)
  if before.get('made_by') != _PROGRAM or before.get('run_id') != run_id:
    return  # Of another run the checkpoint is refused.
  was = before['settings']
  settings = dict(settings)
  if _COST_MODEL not in was:  # Of an earlier version.
    settings.pop(_COST_MODEL, None)
  names = [n for n in {**was, **settings} if n not in _HARMLESS and was.get(n) != settings.get(n)]
  if names:
    changes = '; '.join(f'{n} was {was.get(n)!r} and is now {settings.get(n)!r}' for n in names)
    raise ResumeError(
      f'the run in {folder} has other settings: {changes}. Give the former, or another folder.'
    )


def keep(
  folder: str,
  settings: Mapping[str, Any],
  run_id: str,
  clients: Any,
  weights: Sequence[Any],
) -> None:
  """Writes a program's config.json; notes in it what a resumed run changes.

  One that a command made is let be. The caller holds the run's checkpoint file.

  Args:
    folder: The run's folder.
    settings: As `of_program` returns them.
    run_id: Of the run.
    clients: The clients' data.
    weights: The model's trainable weights.

  Raises:
    SaveError: If it cannot be written.
  """
  before = _read(folder)
  path = os.path.join(folder, FILE)
  with saving(path):
    if not before:
      data: dict[str, Any] = {'clients': len(clients.client_ids)}
      if data['clients'] <= _MOST_COUNTED:
        data['examples'] = sum(
          int(clients.num_examples(client_id)) for client_id in clients.client_ids
        )
      size = sum(int(w.size if hasattr(w, 'size') else w.shape.num_elements()) for w in weights)
      create(folder, new(settings, data, size, run_id=run_id, made_by=_PROGRAM))
    elif before.get('made_by') == _PROGRAM and before['settings'] != settings:
      was = before['settings']
      changes = {k: [was.get(k), v] for k, v in settings.items() if was.get(k) != v}
      when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec='seconds')
      before['changes'].append({'when': when, **changes})
      before['settings'] = dict(settings)
      atomic_files.write_json(path, before)


def _read(folder: str) -> dict[str, Any]:
  """The content of a config.json; nothing, if there is none or it is no mapping."""
  try:
    with open(os.path.join(folder, FILE), encoding='utf-8') as file:
      config = json.load(file)
  except (FileNotFoundError, IsADirectoryError):  # A folder in its place is refused elsewhere.
    return {}
  except (OSError, ValueError, RecursionError) as error:
    path = os.path.join(folder, FILE)
    raise ResumeError(
      f'{path} cannot be read ({error}): restore it, or name a new folder.'
    ) from None
  is_whole = isinstance(config, dict) and isinstance(config.get('settings'), dict)
  return config if is_whole else {'settings': {}}
