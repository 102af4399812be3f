"""Trains centralised baselines: all clients' examples in one place, one optimizer.

usage: python scripts/train_centralized.py [--flag=value ...]

The baseline that federated results are held against (the row "centralised" of "Adaptive Federated
Optimization"). Every optimizer is trained with every learning rate, each in a folder of its own in
--output_dir; at the end a table, also in OUTPUT_DIR/centralized.md. Optimizers are those of
Algorithm 2, applied to minibatch gradients. A round in the files is an epoch. The same command
again skips what is complete and goes on with the rest; Ctrl-C ends after saving.

  python scripts/train_centralized.py --optimizer=adam --epochs=20
  python scripts/train_centralized.py --task=emnist_cr --data_dir=DIR \\
      --optimizer=adagrad,adam,yogi,sgdm,sgd --learning_rate=0.001,0.01,0.1

Tasks are those of scripts/train.py. All of a task's training examples are held in memory: Stack
Overflow whole does not fit on most machines.
"""

import dataclasses
import os
import sys
from collections.abc import Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from absl import flags as absl_flags

from tff_adaptive._utils import user_code, validation
from tff_adaptive.runs import config as config_file, summary

from .cli import (
  command,
  fields,
  options,
  run_folder,
  run_table,
  settings,
  signals,
  tensorflow_start,
)
from .cli.groups import output, what

# Where the user gives no rate: safe ones for small networks, not tuned for any task.
_RATES = {'adagrad': 0.01, 'adam': 0.001, 'yogi': 0.001, 'sgdm': 0.01, 'sgd': 0.1}
_ADAPTIVE = ('adagrad', 'adam', 'yogi')

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_string('task', 'digits', 'The task.', flag_values=_FLAGS)
absl_flags.DEFINE_multi_string(
  'task_option', [], "A task's own option, NAME=VALUE.", flag_values=_FLAGS
)
absl_flags.DEFINE_list(
  'optimizer', list(_RATES), 'adagrad, adam, yogi, sgdm or sgd, or several.', flag_values=_FLAGS
)
absl_flags.DEFINE_list(
  'learning_rate',
  None,
  'Rates, each of which is tried with each optimizer. Default: '
  + ', '.join(f'{name} {rate:g}' for name, rate in _RATES.items())
  + ', which are not tuned for any task.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_float(
  'tau', 1e-3, 'Degree of adaptivity of adagrad, adam, yogi; > 0.', flag_values=_FLAGS
)
absl_flags.DEFINE_integer('epochs', 100, 'Passes over the training data.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('batch_size', 100, 'Examples a step.', flag_values=_FLAGS)
absl_flags.DEFINE_integer(
  'epochs_per_evaluation', 1, 'Epochs between evaluations.', flag_values=_FLAGS
)
absl_flags.DEFINE_integer('seed', 0, 'Seed of weights, shuffling, dropout.', flag_values=_FLAGS)
absl_flags.DEFINE_string('data_dir', None, 'Folder with data files.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'output_dir',
  None,
  "Where the runs' folders go. Default: runs/TASK_centralized.",
  flag_values=_FLAGS,
)


@command.entry('train_centralized.py', 'interrupted; epochs that were done are saved.')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run diverged, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  jobs = _jobs()
  for job in jobs:  # Of finished runs too: the table is to hold what was asked for.
    run_folder.check_writable(job['output_dir'])
    run_folder.read_config(job['output_dir'], _record(job))
  pending = [job for job in jobs if not summary.is_complete(job['output_dir'], job['rounds'])]
  failed, stopped = _train_all(pending, arguments) if pending else ([], 0)
  if stopped:
    return stopped
  folders = [job['output_dir'] for job in jobs]
  is_written = run_table.write(
    os.path.join(os.path.dirname(folders[0]), 'centralized.md'),
    folders,
    note='Diverged: ' + ', '.join(failed) if failed else '',
  )
  if failed:
    return command.FAILED
  return command.DONE if is_written else command.BAD_INPUT


def _check_flags() -> None:
  """ValueError if a flag is bad."""
  for flag in ('optimizer', 'learning_rate'):
    if _FLAGS[flag].value == []:
      raise ValueError(f'--{flag}= is empty: give one or more, or leave it out.')
  what.check_task(_FLAGS.task)
  for name in _FLAGS.optimizer:
    fields.check_name('optimizer', name, _RATES)
  for flag in ('epochs', 'batch_size', 'epochs_per_evaluation'):
    hint = 'give 1 or more'
    validation.whole_number(f'--{flag}', _FLAGS[flag].value, 1, hint, fields.INT31)
  settings.check('seed', _FLAGS.seed)
  validation.above_zero('--tau', _FLAGS.tau, 'give a degree of adaptivity such as 0.001')
  if _FLAGS['tau'].present and not {*_ADAPTIVE} & {*_FLAGS.optimizer}:
    raise ValueError(
      f'--tau has no meaning for --optimizer={",".join(_FLAGS.optimizer)}: leave it out, or give'
      f' one of {", ".join(_ADAPTIVE)}.'
    )
  options.parse('task_option', _FLAGS.task_option)
  output.check_data_dir(_FLAGS.task, _FLAGS.data_dir)


def _jobs() -> list[dict[str, Any]]:
  """The settings of each run, checked."""
  _check_flags()
  name = _FLAGS.task.rpartition(':')[2]
  parent = _FLAGS.output_dir or os.path.join('runs', f'{name}_centralized')
  jobs = []
  for optimizer in _FLAGS.optimizer:
    for text in _FLAGS.learning_rate or [str(_RATES[optimizer])]:
      rate = _rate(text)
      jobs.append(
        {
          'task': _FLAGS.task,
          'task_option': list(_FLAGS.task_option),
          'algorithm': 'centralized',
          'optimizer': optimizer,
          'learning_rate': rate,
          'tau': _FLAGS.tau if optimizer in _ADAPTIVE else None,
          'rounds': _FLAGS.epochs,
          'batch_size': _FLAGS.batch_size,
          'rounds_per_evaluation': _FLAGS.epochs_per_evaluation,
          'seed': _FLAGS.seed,
          'data_dir': _FLAGS.data_dir and os.path.abspath(_FLAGS.data_dir),
          'output_dir': os.path.join(parent, f'{optimizer}_{rate:g}'),
        }
      )
  folders = [job['output_dir'] for job in jobs]
  for folder in folders:
    if folders.count(folder) > 1:
      raise ValueError(
        f'two runs would share the folder {folder}: give each optimizer once, and rates that differ'
        ' in their first six digits.'
      )
  return jobs


def _record(job: dict[str, Any]) -> config_file.Record:
  """What config.json says of a run: a task of the user's own with its file, as of train.py."""
  record = config_file.Record(job, settings.CHANGE_NO_NUMBER, prefix='--', place='--output_dir')
  if not user_code.is_reference(job['task']):
    return record
  _, source = user_code.load(job['task'])
  files = {'task': {'path': source.path, 'sha256': source.sha256}}
  return dataclasses.replace(record, files=files)


def _rate(text: str) -> float:
  try:
    rate = float(text)
  except ValueError:
    raise ValueError(f'--learning_rate={text}: give numbers such as 0.01,0.1.') from None
  validation.above_zero('--learning_rate', rate, 'give a rate such as 0.1')
  return rate


def _train_all(
  pending: Sequence[dict[str, Any]], arguments: Sequence[str]
) -> tuple[list[str], int]:
  """Trains; returns the folders of runs that diverged, and the exit code of a signal or 0."""
  tensorflow_start.quietly()
  tensorflow_start.load()
  import tensorflow as tf  # From here on it takes seconds.

  import tff_adaptive_tasks as tasks
  from tff_adaptive import engine, runs
  from tff_adaptive.kernels import library

  tf.get_logger().setLevel('ERROR')  # Each run is a graph of its own: it warns of retracing.
  engine.remember_workers()  # One that TFF starts ends with this process.
  first, failed = pending[0], []
  task_options = options.parse('task_option', first['task_option'])
  if task_options.get('lstm') == 'compiled':
    library.load()
  task = tasks.load(first['task'], data_dir=first['data_dir'], seed=first['seed'], **task_options)
  examples = task.train.load_all()
  with signals.StopGuard(on_abort=[engine.reap_workers]) as stop:
    for job in pending:
      command.say(job['output_dir'])
      try:
        result = _train(job, task, examples, arguments, stop)
      except runs.NonFiniteWeightsError as error:
        failed.append(job['output_dir'])
        command.complain('train_centralized.py', error)
        continue
      if not result.is_complete:
        command.say('Stopped; the same command goes on from here.')
        return failed, stop.exit_code
  return failed, 0


def _train(
  job: dict[str, Any], task: Any, examples: Any, arguments: Sequence[str], stop: Any
) -> Any:
  """Trains one run; returns the `training.TrainingResult`."""
  from tff_adaptive import algorithms, training
  from tff_adaptive.training import centralized

  from .cli import build

  folder, seed = job['output_dir'], job['seed']
  record = dataclasses.replace(_record(job), command=arguments, metric=task.metric)
  model = task.build_model(seed)
  data = {
    'source': task.source,
    'examples': len(examples['y']),
    'validation_examples': len(task.validation['y']),
  }
  size = model.num_parameters
  config = record.open(folder, data, size)
  values = {} if job['tau'] is None else {'tau': job['tau']}
  optimizer = algorithms.build_server_optimizer(job['optimizer'], job['learning_rate'], values)
  return training.train(
    centralized.CentralizedTraining(
      model,
      optimizer,
      batch_size=job['batch_size'],
      seed=seed,
      unit_starts=task.unit_starts,
    ),
    centralized.OneClient(examples),
    build.build_evaluation(model, task.validation),
    training.TrainingConfig(
      rounds=job['rounds'],
      clients_per_round=1,
      seed=seed,
      rounds_per_evaluation=job['rounds_per_evaluation'],
      rounds_per_checkpoint=1,
      metric=task.metric,
    ),
    output_dir=folder,
    run_id=config['run_id'],
    stop=stop,
    test_fn=None if task.test is None else build.build_evaluation(model, task.test),
    settings=record,
  )


if __name__ == '__main__':
  sys.exit(main())
