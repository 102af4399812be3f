"""Exports a run's model: for Keras, for serving with TensorFlow, or as arrays.

usage: python scripts/export.py RUN [--flag=value ...]

RUN is the folder of a run. The command writes the folder OUTPUT with

  model.keras, model/ or model.npz   the model, with the weights that were better
  preparation.json, preparation.py   the preparation of raw inputs, if the task has one
  export.json                        the run and its metrics

  python scripts/export.py runs/digits_fed_yogi --format=keras --output=digits_model
"""

import dataclasses
import inspect
import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from tff_adaptive._utils import atomic_files, temporary_folders

from .cli import client_models, command, fields, flags

FORMATS = ('keras', 'saved_model', 'npz')
WEIGHTS = ('best', 'theta', 'theta_bar')


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
  client: str | None = fields.flag(
    'The id of a client, whose own model is exported, of algorithms such as Ditto; else the global'
    ' model is.'
  )
  output: str | None = fields.flag('The folder to write. Default RUN/export_FORMAT.')


_FLAGS = flags.define(flags.of_group(_Export))


@command.entry('export.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command. Returns 0 for success, 1 for a failure and 2 for bad input."""
  if (rest := command.parse(_FLAGS, __doc__, arguments)) is None:
    return command.DONE
  if len(rest) != 1:
    raise ValueError(f'give the folder of one run, found {len(rest)}: export.py RUN --format=keras')
  flags.check(_FLAGS, _Export)
  if _FLAGS.client is not None and _FLAGS.weights != 'best':
    raise ValueError("--client exports a client's own model: leave --weights out.")
  folder = os.path.expanduser(rest[0])
  output = _FLAGS.output or os.path.join(folder, f'export_{_FLAGS.format}')
  if os.path.lexists(output):
    raise ValueError(f'--output={output} exists already: name another folder, or remove it.')
  command.check_writable(output, f'output={output}')
  import tff_adaptive_tasks as tasks

  run = tasks.load_run(folder)
  try:
    record = export(run, _FLAGS.format, output, _FLAGS.weights, _FLAGS.client)
  except OSError as error:
    raise command.FailureError(f'--output={output}: {error}; nothing is left of it.') from error
  values = ', '.join(f'{name} {value:.4f}' for name, value in record['validation'].items())
  path = os.path.join(output, record['file'])
  command.show(f'{path}: {record["weights"]} of round {record["round"]}; validation: {values}\n')
  return command.DONE


def export(
  run: Any, file_format: str, output: str, which: str = 'best', client: str | None = None
) -> dict[str, Any]:
  """Writes a run's model to a new folder, and returns the contents of its export.json.

  Args:
    run: A run loaded by `tasks.load_run`.
    file_format: One of `FORMATS`.
    output: The folder to create. It does not exist after a failure.
    which: One of `WEIGHTS`, which --weights explains.
    client: The id of the client whose own model is exported; None for the model `which`.

  Raises:
    ValueError: If the run has no checkpoint or no such weights, its data cannot be loaded, or the
      client is unknown or has no model of its own.
    OSError: If the folder cannot be written.
  """
  from tff_adaptive import models

  task = run.task()
  model = task.build_model(run.settings['seed'])
  which = run.best(task.metric) if which == 'best' else which
  if client is not None:
    which = f'the model of client {client}'
    weights = client_models.weights_of(run, task, model, client)
  else:
    weights = run.chosen(which)
  x = model.input_spec['x']
  record = {
    'run': os.path.abspath(run.folder),
    'run_id': run.config['run_id'],
    'task': task.name,
    'source': task.source,
    'round': run.round_number,
    'weights': which,
    'weight_names': list(models.weight_names(model)),
    'input': {'shape': list(x.shape), 'dtype': x.dtype.name},
    'validation': models.build_evaluation(model)(weights, task.validation),
  }
  parent = os.path.dirname(os.path.abspath(output))
  os.makedirs(parent, exist_ok=True)
  with temporary_folders.folder('.export.', parent) as temporary:
    made = os.path.join(temporary, 'export')
    os.mkdir(made)
    models.save(model, weights, os.path.join(made, 'model'), file_format)
    record['file'] = os.listdir(made)[0]  # model.keras, model.npz, or the folder model.
    if record['file'] == 'model':  # A SavedModel, which --initial_weights does not read.
      models.save(model, weights, os.path.join(made, 'model'), 'npz')
    if task.preparation is not None:
      task.preparation.save(os.path.join(made, 'preparation.json'))
      source = inspect.getfile(type(task.preparation))
      shutil.copy(source, os.path.join(made, 'preparation.py'))
    atomic_files.write_text(os.path.join(made, 'export.json'), json.dumps(record, indent=2) + '\n')
    os.rename(made, output)
  return record


if __name__ == '__main__':
  sys.exit(main())
