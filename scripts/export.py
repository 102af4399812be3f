"""Exports a run's model: for Keras, for serving with TensorFlow, for devices, or as arrays.

usage: {export} RUN [--flag=value ...]

RUN is the folder of a run, or a copy of it on another machine; the data are not needed. The command
writes the folder OUTPUT with

  model.keras, model/, model.tflite or model.npz   the model, with the weights that were better
  preparation.json, preparation.py   the preparation of raw inputs, if the task has one
  export.json                        the run and its metrics

  {export} runs/digits_fed_yogi --format=keras --output=digits_model
"""

import contextlib
import dataclasses
import importlib
import inspect
import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

if not __package__:  # Run as a file, which is in no package.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  __package__ = 'scripts'
  importlib.import_module('scripts._entry').begin()

from tff_adaptive._utils import atomic_files, temporary_folders

from .cli import client_models, command, fields, flags, tensorflow_start

FORMATS = ('keras', 'saved_model', 'npz', 'tflite')
WEIGHTS = ('best', 'theta', 'theta_bar')
CHECKPOINTS = ('last', 'best')
# Beside these stands model.npz, from which --initial_weights starts.
_WITH_ARRAYS = ('model', 'model.tflite')


@dataclasses.dataclass(frozen=True)
class _Export(fields.Group):
  """The flags of export.py."""

  TITLE = 'Export'

  format: str = fields.flag(f'One of: {", ".join(FORMATS)}.', 'keras', choices=FORMATS)
  weights: str = fields.flag(
    "theta, the global model; theta_bar, the mean of the clients' models; or best, the one with the"
    ' better metric at the last evaluation.',
    'best',
    choices=WEIGHTS,
  )
  which: str = fields.flag(
    'last, the weights of the last checkpoint; or best, those of the best evaluation, of a run with'
    ' --keep_best.',
    'last',
    choices=CHECKPOINTS,
  )
  client: str | None = fields.flag(
    'The id of a client, whose own model is exported, of algorithms such as Ditto; else the global'
    ' model is.'
  )
  output: str | None = fields.flag('The folder to write. Default RUN/export_FORMAT.')


_FLAGS = flags.define(flags.of_group(_Export))


@dataclasses.dataclass(frozen=True)
class _Source:
  """What an export is made of.

  Attributes:
    model: What `models.save` takes.
    description: The task's name, the source of its data and its metric.
    copy_preparation: A function that writes the files of the preparation, if any, to a folder.
    evaluate: A function from 'theta' or 'theta_bar' to a round and the metrics of these weights.
  """

  model: Any
  description: Mapping[str, Any]
  copy_preparation: Callable[[str], None]
  evaluate: Callable[[str], tuple[int, Mapping[str, float]]]


@command.entry('export.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command. Returns 0 for success, 1 for a failure and 2 for bad input."""
  rest = command.parse(_FLAGS, __doc__, arguments)
  if rest is None:
    return command.DONE
  if len(rest) != 1:
    raise ValueError(f'give the folder of one run, found {len(rest)}: export.py RUN --format=keras')
  flags.check(_FLAGS, _Export)
  if _FLAGS.client is not None and _FLAGS.weights != 'best':
    raise ValueError("--client exports a client's own model: leave --weights out.")
  if _FLAGS.which == 'best' and (_FLAGS.client is not None or _FLAGS.weights != 'best'):
    raise ValueError(
      '--which=best exports the weights that --keep_best kept: leave --weights and --client out.'
    )
  folder = os.path.expanduser(rest[0])
  output = _FLAGS.output or os.path.join(folder, f'export_{_FLAGS.format}')
  # A broken link is in the way, too.
  if os.path.lexists(output):
    raise ValueError(f'--output={output} exists already: name another folder, or remove it.')
  command.check_writable(output, f'output={output}')
  import tff_adaptive_tasks as tasks

  run = tasks.load_run(folder)
  tensorflow_start.load_tensorflow()
  try:
    record = export(run, _FLAGS.format, output, _FLAGS.weights, _FLAGS.client, _FLAGS.which)
  except OSError as error:
    raise command.FailureError(f'--output={output}: {error}; nothing is left of it.') from error
  values = ', '.join(f'{name} {value:.4f}' for name, value in record['validation'].items())
  if not values:
    values = "none, because the run's task is not here"
  path = os.path.join(output, record['file'])
  command.show(f'{path}: {record["weights"]} of round {record["round"]}; validation: {values}\n')
  return command.DONE


def export(
  run: Any,
  file_format: str,
  output: str,
  which: str = 'best',
  client: str | None = None,
  checkpoint: str = 'last',
) -> dict[str, Any]:
  """Writes a run's model to a new folder, and returns the contents of its export.json.

  The run's folder has all that this needs. A folder of release 0.2.0 or before needs the run's task
  with its data, and so does the format 'keras' for a model with Keras layers of one's own.

  Args:
    run: A run loaded by `tasks.load_run`.
    file_format: One of `FORMATS`.
    output: The folder to create. It does not exist after a failure.
    which: One of `WEIGHTS`, which --weights explains.
    client: The id of the client whose own model is exported; None for the model `which`.
    checkpoint: 'last', or 'best' for what --keep_best kept.

  Raises:
    ValueError: If the run has no checkpoint or no such weights, what its folder lacks cannot be
      loaded, or the client is unknown or has no model of its own.
    OSError: If the folder cannot be written.
  """
  if client is not None:
    source, weights = _of_client(run, client)
    which = f'the model of client {client}'
  elif checkpoint == 'best':
    source, weights = _of_best_evaluation(run)
    which = 'the best weights'
  else:
    source = _source(run)
    if which == 'best':
      which = run.best(source.description['metric'])
    weights = run.chosen(which)
  if file_format == 'keras':
    source = _with_own_layers(run, source, weights)
  record = _record(run, source, which)
  parent = os.path.dirname(os.path.abspath(output))
  os.makedirs(parent, exist_ok=True)
  # Beside the output, because a folder can be renamed within one file system only.
  with temporary_folders.folder('.export.', parent) as temporary:
    folder = os.path.join(temporary, 'export')
    os.mkdir(folder)
    record['file'] = _write_model(source.model, weights, folder, file_format)
    source.copy_preparation(folder)
    path = os.path.join(folder, 'export.json')
    atomic_files.write_text(path, json.dumps(record, indent=2) + '\n')
    # In one step, so that a failure leaves no part of the folder.
    os.rename(folder, output)
  return record


def _source(run: Any) -> _Source:
  """Returns what is stored in a run's folder, or what its task gives if nothing is."""
  from .cli import stored_model

  stored = stored_model.of_run(run.folder)
  if stored is not None:
    return _Source(stored, stored.description, stored.copy_preparation, run.evaluation)
  try:
    return _of_task(run)
  except ValueError as error:
    raise ValueError(
      f'{run.folder} stores no model, as release 0.2.0 and before did not, so that its export needs'
      f' the task and its data: {error}'
    ) from None


def _of_task(run: Any) -> _Source:
  """Returns what the run's task gives. Raises ValueError if the task or its data are not here."""
  from tff_adaptive import models

  from .cli import stored_model

  task = run.task()
  model = task.build_model(run.settings['seed'])

  def copy_preparation(folder: str) -> None:
    if task.preparation is not None:
      task.preparation.save(os.path.join(folder, 'preparation.json'))
      shutil.copy(inspect.getfile(type(task.preparation)), os.path.join(folder, 'preparation.py'))

  def evaluate(which: str) -> tuple[int, Mapping[str, float]]:
    metrics = models.build_evaluation(model)(run.chosen(which), task.validation)
    return run.round_number, metrics

  return _Source(model, stored_model.description(task, model), copy_preparation, evaluate)


def _of_best_evaluation(run: Any) -> tuple[_Source, Any]:
  """Returns what is stored in a run's folder, and the weights that --keep_best kept."""
  from tff_adaptive.training import stopping

  path = os.path.join(run.folder, 'checkpoints', stopping.BEST_FILE)
  kept_best = stopping.read_best(path)
  if kept_best is None:
    raise ValueError(
      f'--which=best: {path} is not there or damaged: train with --keep_best, or leave --which out.'
    )
  best, weights = kept_best

  def evaluate(which: str) -> tuple[int, Mapping[str, float]]:
    del which
    return best.round_number, {best.column: best.value}

  return dataclasses.replace(_source(run), evaluate=evaluate), weights


def _of_client(run: Any, client: str) -> tuple[_Source, Any]:
  """Returns what is stored in a run's folder, and the weights of a client's own model.

  The validation metrics are those of the client's model, if the run's task can be loaded here, and
  are left out otherwise.
  """
  from tff_adaptive import models
  from tff_adaptive.client import model_adapters

  from .cli import stored_model

  task: Any = None
  with contextlib.suppress(ValueError):  # Its data need not be here.
    task = run.task()
  source = _source(run)
  named = stored_model.named_weights(source.model)
  if named is None:  # A run of an earlier release, whose model says less.
    source = _of_task(run)
    named = model_adapters.wrap(source.model).named_weights()
  initial, _ = source.model.initial_weights
  weights = client_models.weights_of(run, named, initial, client)
  if weights is None:
    client_models.check_known(run, task, client)
    weights = client_models.global_of(run)

  def evaluate(which: str) -> tuple[int, Mapping[str, float]]:
    del which
    metrics: Mapping[str, float] = {}
    if task is not None:
      model = task.build_model(run.settings['seed'])
      metrics = models.build_evaluation(model)(weights, task.validation)
    return run.round_number, metrics

  return dataclasses.replace(source, evaluate=evaluate), weights


def _with_own_layers(run: Any, source: _Source, weights: Sequence[Any]) -> _Source:
  """Returns the source with the task's model if Keras cannot load the stored one."""
  if not getattr(source.model, 'has_keras', False):
    return source
  try:
    # A trial: Keras may not know layers of one's own.
    source.model.to_keras(weights)
  except ValueError as refusal:
    try:
      model = _of_task(run).model
    except ValueError as error:
      # Either may end with a full stop of its own.
      why, what = (str(reason).rstrip('.') for reason in (refusal, error))
      raise ValueError(
        f'--format=keras: {why}. This model needs the code of the task and its data: {what}.'
        ' --format=saved_model does without them'
      ) from None
    return dataclasses.replace(source, model=model)
  return source


def _record(run: Any, source: _Source, which: str) -> dict[str, Any]:
  """Returns the contents of export.json, without the file's name."""
  from tff_adaptive import models

  x = source.model.input_spec['x']
  evaluated_round, metrics = source.evaluate(which)
  round_number = run.round_number
  if which == 'the best weights':  # Those of an evaluation, not of the last checkpoint.
    round_number = evaluated_round
  return {
    'run': os.path.abspath(run.folder),
    'run_id': run.config['run_id'],
    'task': source.description['task'],
    'source': source.description['source'],
    'round': round_number,
    'weights': which,
    'weight_names': list(models.weight_names(source.model)),
    'input': {'shape': list(x.shape), 'dtype': x.dtype.name},
    'validation_round': evaluated_round,
    'validation': dict(metrics),
  }


def _write_model(model: Any, weights: Sequence[Any], folder: str, file_format: str) -> str:
  """Writes a model to an empty folder, and returns the name of its file or folder."""
  from tff_adaptive import models

  # The ending follows from the format: model.keras, model.npz, ...
  path = models.save(model, weights, os.path.join(folder, 'model'), file_format)
  name = os.path.basename(path)
  if name in _WITH_ARRAYS:
    models.save(model, weights, os.path.join(folder, 'model'), 'npz')
  return name


if __name__ == '__main__':
  sys.exit(main())
