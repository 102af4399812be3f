"""Trains centralised baselines: all clients' examples in one place, one optimizer.

usage: python scripts/train_centralized.py [--flag=value ...]

This is the baseline for federated results (the row "centralised" of "Adaptive Federated
Optimization"). Every optimizer is trained with every learning rate, each in a folder in
--output_dir. The table at the end is also in OUTPUT_DIR/centralized.md. The optimizers are those of
Algorithm 2, applied to minibatch gradients. A round in the files is an epoch of one client, which
has all examples and keeps the optimizer's state. Ctrl-C saves the runs and ends them. The same
command skips complete runs and continues the others.

  python scripts/train_centralized.py --optimizer=adam --epochs=20
  python scripts/train_centralized.py --task=emnist_cr --data_dir=DIR \\
      --optimizer=adagrad,adam,yogi,sgdm,sgd --learning_rate=0.001,0.01,0.1

The tasks are those of scripts/train.py. All training examples of a task are held in memory; those
of Stack Overflow do not fit on most machines.
"""

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from tff_adaptive._utils import atomic_files, option_values, user_code, validation
from tff_adaptive.reports import scores, tables
from tff_adaptive.runs import config, groups, run as run_lib, summary
from tff_adaptive_tasks import catalog

from .cli import command, fields, flags, records, run, settings, signals, tensorflow_start

# The default learning rates. They are safe for small networks, and not tuned for any task.
_RATES = {'adagrad': 0.01, 'adam': 0.001, 'yogi': 0.001, 'sgdm': 0.01, 'sgd': 0.1}
_ADAPTIVE = ('adagrad', 'adam', 'yogi')


@dataclasses.dataclass(frozen=True)
class _Baselines(fields.Group):
  """The flags that only this command has; `define_with_task` adds those of the task."""

  TITLE = 'Baselines'

  optimizer: str = fields.flag(
    'adagrad, adam, yogi, sgdm or sgd, or several: adam,sgd.', ','.join(_RATES)
  )
  learning_rate: str | None = fields.flag(
    'A rate, or several: 0.01,0.1; each is tried with each optimizer. Default: '
    + ', '.join(f'{name} {rate:g}' for name, rate in _RATES.items())
    + ', which are not tuned for any task.'
  )
  tau: float = fields.number(
    'Degree of adaptivity of adagrad, adam, yogi; > 0.', validation.above_zero, 1e-3
  )
  epochs: int = fields.count('Passes over the training data.', 100)
  batch_size: int | None = fields.count("Examples a step. Default: the task's.")
  epochs_per_evaluation: int = fields.count('Epochs between evaluations.', 1)
  output_dir: str | None = fields.flag(
    "Where the runs' folders go. Default: runs/TASK_centralized."
  )


_FLAGS = flags.define_with_task(_Baselines)


@command.entry('train_centralized.py', 'interrupted; epochs that were done are saved.')
def main(arguments: Sequence[str]) -> int:
  """Runs the command. Returns 0, 1 if a run diverged, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  options = flags.check_with_task(_FLAGS, _Baselines)
  runs = _runs()
  for folder, record in runs.items():  # Finished runs too, because the table shows them.
    records.check_folder(folder, record)
  pending = {at: r for at, r in runs.items() if not summary.is_complete(at, _FLAGS.epochs)}
  failed, stopped = _train_all(pending, options, arguments) if pending else ([], 0)
  if stopped:
    command.say('Stopped; the same command resumes from here.')
    return stopped
  begun = [folder for folder in runs if os.path.exists(os.path.join(folder, config.FILE))]
  if begun:
    found = scores.evaluated(run_lib.find_runs(begun))
    table = tables.comparison_table(groups.group(found), tables.default_metric(found)).markdown()
    if failed:
      table += f'\nDiverged: {", ".join(failed)}\n'
    atomic_files.write_text(os.path.join(os.path.dirname(begun[0]), 'centralized.md'), table)
    command.show(table)
  return command.FAILED if failed else command.DONE


def _runs() -> dict[str, config.Record]:
  """Returns config.json's record of each run by its folder. Raises ValueError for bad flags."""
  optimizers = [name.strip() for name in _FLAGS.optimizer.split(',')]
  for name in optimizers:
    fields.check_name('optimizer', name, _RATES)
  if _FLAGS['tau'].present and not {*_ADAPTIVE} & {*optimizers}:
    raise ValueError(
      f'--tau has no meaning for --optimizer={",".join(optimizers)}: leave it out, or give one of'
      f' {", ".join(_ADAPTIVE)}.'
    )
  own = user_code.is_reference(_FLAGS.task)
  files = {'task': user_code.load(_FLAGS.task)[1].record()} if own else {}
  parent = _FLAGS.output_dir or f'runs/{_FLAGS.task.rpartition(":")[2]}_centralized'
  common = {
    'task': _FLAGS.task,
    'task_option': list(_FLAGS.task_option),
    'algorithm': 'centralized',
    'rounds': _FLAGS.epochs,
    'batch_size': _FLAGS.batch_size or catalog.sizes('' if own else _FLAGS.task)['batch_size'],
    'rounds_per_evaluation': _FLAGS.epochs_per_evaluation,
    'seed': _FLAGS.seed,
    'data_dir': _FLAGS.data_dir and os.path.abspath(_FLAGS.data_dir),
  }
  found: dict[str, config.Record] = {}
  for optimizer in optimizers:
    rates = str(_RATES[optimizer]) if _FLAGS.learning_rate is None else _FLAGS.learning_rate
    for value in map(option_values.value, rates.split(',')):
      with fields.about('learning_rate'):
        rate = validation.above_zero('--learning_rate', value, 'give rates such as 0.01,0.1')
      folder = os.path.join(parent, f'{optimizer}_{rate:g}')
      if folder in found:
        raise ValueError(
          f'two runs would share the folder {folder}: give each optimizer once, and rates that'
          ' differ in their first six digits.'
        )
      tau = _FLAGS.tau if optimizer in _ADAPTIVE else None
      varied = dict(optimizer=optimizer, learning_rate=rate, output_dir=folder, tau=tau)
      found[folder] = config.Record(common | varied, settings.CHANGE_NO_NUMBER, files, prefix='--')
  return found


def _train_all(
  pending: Mapping[str, config.Record], options: Mapping[str, Any], arguments: Sequence[str]
) -> tuple[list[str], int]:
  """Trains the runs. Returns the folders of diverged runs, and 0 or the exit code of a signal."""
  tensorflow_start.load()  # It takes seconds.
  import tensorflow as tf

  import tff_adaptive_tasks as tasks
  from tff_adaptive import engine, runs
  from tff_adaptive.kernels import library

  tf.get_logger().setLevel('ERROR')  # No warnings of retracing: each run is a new graph.
  engine.set_graph_context()
  failed: list[str] = []
  if options.get('lstm') == 'compiled':
    library.load()
  task = flags.load_task(_FLAGS, options)
  examples = task.train.load_all()
  clients = tasks.InMemoryClientData({'all': (examples['x'], examples['y'])})
  with signals.StopGuard() as stop:
    for folder, record in pending.items():
      command.say(folder)
      record = dataclasses.replace(record, command=arguments, metric=task.metric)
      try:
        result = _train(record, task, clients, stop)
        run.check_result(result)
      except (runs.NonFiniteWeightsError, command.DivergedError) as error:
        failed.append(folder)
        command.complain('train_centralized.py', error)
      else:
        if not result.is_complete:
          return failed, stop.exit_code
  return failed, 0


def _train(record: config.Record, task: Any, clients: Any, stop: Any) -> Any:
  """Trains one run and returns its `training.TrainingResult`."""
  from tff_adaptive import algorithms, client, corrections, training

  from .cli import build

  job, model = record.settings, task.build_model(_FLAGS.seed)
  values = {} if job['tau'] is None else {'tau': job['tau']}
  how = client.ClientTraining(
    algorithms.build_server_optimizer(job['optimizer'], job['learning_rate'], values),
    client.Batching(job['batch_size'], unit_starts=task.unit_starts),
    optimizer_state='keep',  # From epoch to epoch.
    seed=_FLAGS.seed,
  )
  data = {'source': task.source, 'examples': clients.num_examples('all')}
  data['validation_examples'] = len(task.validation['y'])
  return training.train(
    algorithms.build_drift_corrected(
      model, corrections.Correction(), client_learning_rate=job['learning_rate'], training=how
    ),
    clients,
    build.build_evaluation(model, task.validation),
    training.TrainingConfig(
      rounds=_FLAGS.epochs,
      clients_per_round=1,
      seed=_FLAGS.seed,
      rounds_per_evaluation=_FLAGS.epochs_per_evaluation,
      rounds_per_checkpoint=1,
      metric=task.metric,
    ),
    output_dir=job['output_dir'],
    run_id=record.open(job['output_dir'], data, model.num_parameters)['run_id'],
    stop=stop,
    test_fn=build.build_evaluation(model, task.test),
    settings=record,
  )


if __name__ == '__main__':
  sys.exit(main())
