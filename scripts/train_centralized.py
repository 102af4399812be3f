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

import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

if not __package__:  # Run as a file: the checkout's packages, not this folder, are importable.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from absl import flags as absl_flags

from scripts import command, run_folder, run_table
from scripts import settings as settings_lib
from tasks import catalog
from tff_adaptive import checks, interrupts, names

# Where the user gives no rate: safe ones for small networks, not tuned for any task.
_RATES = {'adagrad': 0.01, 'adam': 0.001, 'yogi': 0.001, 'sgdm': 0.01, 'sgd': 0.1}

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


def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run diverged, 2 for bad input, 128 + signal if stopped."""
  line = 'train_centralized.py: interrupted; epochs that were done are saved.'
  with interrupts.ending_at_once(line):  # But while epochs are trained.
    return _main(arguments)


def _main(arguments: Sequence[str]) -> int:
  try:
    if not command.read(_FLAGS, __doc__, arguments):
      return 0
    jobs = _jobs()
    for job in jobs:  # Of finished runs too: the table is to hold what was asked for.
      run_folder.check_writable(job['output_dir'])
      run_folder.read_config(job['output_dir'], job)
    pending = [job for job in jobs if not run_folder.is_complete(job['output_dir'], job['rounds'])]
    return _train_all(jobs, pending, arguments)
  except ValueError as error:  # tasks.DataError is a ValueError.
    return _complain(error)


def _complain(error: Any, code: int = 2) -> int:
  sys.stderr.write(f'train_centralized.py: {" ".join(str(error).split())}\n')
  return code


def _jobs() -> list[dict[str, Any]]:
  """The settings of each run, checked."""
  for flag, value, valid in (
    ('task', _FLAGS.task, catalog.names()),
    *(('optimizer', name, _RATES) for name in _FLAGS.optimizer),
  ):
    if value not in valid:
      raise ValueError(f'--{flag}: {names.unknown(flag, value, valid)}')
  for flag in ('epochs', 'batch_size', 'epochs_per_evaluation'):
    checks.whole_number(f'--{flag}', _FLAGS[flag].value, 1, 'give 1 or more')
  checks.whole_number('--seed', _FLAGS.seed, 0, 'give a whole number such as 0')
  checks.above_zero('--tau', _FLAGS.tau, 'give a degree of adaptivity such as 0.001')
  parent = _FLAGS.output_dir or os.path.join('runs', f'{_FLAGS.task}_centralized')
  jobs = []
  for optimizer in _FLAGS.optimizer:
    for text in _FLAGS.learning_rate or [str(_RATES[optimizer])]:
      try:
        rate = float(text)
      except ValueError:
        raise ValueError(f'--learning_rate={text}: give numbers such as 0.01,0.1.') from None
      checks.above_zero('--learning_rate', rate, 'give a rate such as 0.1')
      jobs.append(
        {
          'task': _FLAGS.task,
          'task_option': list(_FLAGS.task_option),
          'algorithm': 'centralized',
          'optimizer': optimizer,
          'learning_rate': rate,
          'tau': _FLAGS.tau if optimizer in ('adagrad', 'adam', 'yogi') else None,
          'rounds': _FLAGS.epochs,
          'batch_size': _FLAGS.batch_size,
          'rounds_per_evaluation': _FLAGS.epochs_per_evaluation,
          'seed': _FLAGS.seed,
          'data_dir': _FLAGS.data_dir,
          'output_dir': os.path.join(parent, f'{optimizer}_{rate:g}'),
        }
      )
  settings_lib.options(jobs[0], 'task_option')
  folders = [job['output_dir'] for job in jobs]
  for folder in folders:
    if folders.count(folder) > 1:
      raise ValueError(
        f'two runs would share the folder {folder}: give each optimizer once, and rates that differ'
        ' in their first six digits.'
      )
  return jobs


def _train_all(jobs, pending, arguments) -> int:
  failed = []
  if pending:
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
    warnings.filterwarnings('ignore', 'pkg_resources is deprecated')  # From TFF's imports.
    import tensorflow as tf  # From here on it takes seconds.

    import tasks
    from tff_adaptive import execution, training

    tf.get_logger().setLevel('ERROR')  # Each run is a graph of its own: it warns of retracing.
    execution.remember_workers()  # One that TFF starts ends with this process.
    first = pending[0]
    task = tasks.load(
      first['task'],
      data_dir=first['data_dir'],
      seed=first['seed'],
      **settings_lib.options(first, 'task_option'),
    )
    examples = task.train.load_all()
    with interrupts.StopGuard(on_abort=[execution.reap_workers]) as stop:
      for settings in pending:
        sys.stderr.write(f'{settings["output_dir"]}\n')
        try:
          result = _train(settings, task, examples, arguments, stop)
        except training.NonFiniteWeightsError as error:
          failed.append(settings['output_dir'])
          _complain(error)
          continue
        if not result.is_complete:
          sys.stderr.write('Stopped; the same command goes on from here.\n')
          return stop.exit_code
  folders = [job['output_dir'] for job in jobs]
  is_written = run_table.write(
    os.path.join(os.path.dirname(folders[0]), 'centralized.md'),
    folders,
    note='Diverged: ' + ', '.join(failed) if failed else '',
  )
  return 1 if failed else 0 if is_written else 2


def _train(settings, task, examples, arguments, stop):
  from scripts import processes
  from tff_adaptive import centralized, optimizers, training

  folder, seed = settings['output_dir'], settings['seed']
  model = task.build_model(seed)
  data = {
    'source': task.source,
    'examples': len(examples['y']),
    'validation_examples': len(task.validation['y']),
  }
  config = run_folder.open_config(folder, settings, data, model.num_parameters, arguments)
  name, rate = settings['optimizer'], settings['learning_rate']
  if settings['tau'] is not None:
    optimizer = getattr(optimizers, f'build_{name}')(rate, tau=settings['tau'])
  else:
    optimizer = optimizers.build_sgdm(rate, momentum=0.9 if name == 'sgdm' else 0.0)
  return training.train(
    centralized.CentralizedTraining(
      model,
      optimizer,
      batch_size=settings['batch_size'],
      seed=seed,
      unit_starts=task.unit_starts,
    ),
    centralized.OneClient(examples),
    processes.build_evaluation(task, model),
    training.TrainingConfig(
      rounds=settings['rounds'],
      clients_per_round=1,
      seed=seed,
      rounds_per_evaluation=settings['rounds_per_evaluation'],
      rounds_per_checkpoint=1,
      metric=task.metric,
    ),
    output_dir=folder,
    run_id=config['run_id'],
    on_open=lambda: run_folder.note_changes(folder, settings),
    stop=stop,
    test_fn=processes.build_test(task, model),
  )


def main_cli() -> None:
  """Console entry point."""
  sys.exit(main(sys.argv))


if __name__ == '__main__':
  main_cli()
