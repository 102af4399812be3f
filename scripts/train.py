"""Trains a federated optimizer on a task; `--help` says how."""

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

if not __package__:  # Run as a file: the checkout's packages, not this folder, are importable.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from scripts import flags, run_folder
from scripts import settings as settings_lib
from tff_adaptive import interrupts

BAD_INPUT = 2


def main(arguments: Sequence[str]) -> int:
  """Runs the command.

  Args:
    arguments: The program's name and its arguments.

  Returns:
    The exit code: 0 when all rounds are done, 1 when the model diverged or, in the last round,
    every client did, 2 for bad input, 128 + the signal's number when a signal ended the run.
  """
  line = 'train.py: interrupted; rounds that were done are saved.'
  with interrupts.ending_at_once(line, _reap_workers):  # But while rounds are trained.
    return _main(arguments)


def _main(arguments: Sequence[str]) -> int:
  try:
    given = flags.parse(list(arguments))
    if given is None:
      sys.stdout.write(flags.help_text())
      return 0
    settings = settings_lib.resolve(given)
    settings_lib.check_data_dir(settings)
    folder = settings['output_dir']
    run_folder.check_writable(folder)
    if settings['client_state_dir'] is not None:
      run_folder.check_writable(settings['client_state_dir'], 'client_state_dir')
    run_folder.read_config(folder, settings)
  except ValueError as error:
    return _complain(error)
  return _train(settings, arguments)


def _train(settings: Mapping[str, Any], arguments: Sequence[str]) -> int:
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  warnings.filterwarnings('ignore', 'pkg_resources is deprecated')  # From TFF's imports.
  import tasks  # From here on TensorFlow is imported, which takes seconds.
  from scripts import processes
  from tff_adaptive import client_states, execution, threads, training

  execution.remember_workers()
  if settings['device'] == 'cpu':
    execution.hide_gpus()  # From evaluation too.
  folder = settings['output_dir']
  try:
    processes.set_engine(
      settings['engine'],
      settings['clients_per_step'],
      settings['device'],
      settings['parallel_clients'] or threads.side_by_side(settings['clients_per_round']),
    )
    task = tasks.load(
      settings['task'],
      data_dir=settings['data_dir'],
      seed=settings['seed'],
      **settings_lib.options(settings, 'task_option'),
    )
    data = _check_data(settings, task)
    sys.stderr.write(
      f'{task.name}: {data["source"]}; {data["clients"]:,} clients, {data["examples"]:,} examples\n'
    )
    workers = processes.set_workers(settings)
    model = task.build_model(settings['seed'])
    process = processes.build_process(settings, task, model)
    training_config = _training_config(settings, task, model)
    _say_how_large(process, training_config, folder, data['clients'])
    config = run_folder.open_config(folder, settings, data, model.num_parameters, arguments)
  except (ValueError, execution.WorkerError) as error:  # tasks.DataError is a ValueError.
    return _complain(error)
  try:
    with interrupts.StopGuard(on_abort=[execution.reap_workers]) as stop:
      result = training.train(
        process,
        task.train,
        processes.build_evaluation(task, model),
        training_config,
        output_dir=folder,
        run_id=config['run_id'],
        on_open=lambda: run_folder.note_changes(folder, settings),
        stop=stop,
        test_fn=processes.build_test(task, model),
        workers=workers,
      )
  except (client_states.StateError, training.ResumeError, run_folder.RunFolderError) as error:
    return _complain(error)
  except (training.NonFiniteWeightsError, tasks.DataError) as error:
    return _complain(error, 1)
  except execution.WorkerError as error:
    return _complain(
      f'{error}. The rounds before are saved; start workers, and the same command goes on.', 1
    )
  finally:
    execution.reap_workers()
  _show(result, folder)
  if result.is_complete and result.summary['ends_without_update']:
    rounds = result.summary['rounds_without_update']
    return _complain(
      f'all clients diverged in {rounds} rounds, the last among them, which left the model as it'
      ' was: lower --client_learning_rate, or give --clip_norm.',
      1,
    )
  return 0 if result.is_complete else stop.exit_code


def _reap_workers() -> None:
  execution = sys.modules.get('tff_adaptive.execution.workers')  # Perhaps not imported yet.
  if execution is not None:
    execution.reap_workers()


def _check_data(settings: Mapping[str, Any], task: Any) -> dict[str, Any]:
  """Returns what config.json says of the data; ValueError if it does not fit the settings."""
  ids = task.train.client_ids
  if settings['clients_per_round'] > len(ids):
    raise ValueError(
      f'--clients_per_round must be from 1 to {len(ids)}, the clients there are; found'
      f' {settings["clients_per_round"]}: give fewer.'
    )
  sizes = [task.train.num_examples(client_id) for client_id in ids]
  for client_id, size in zip(ids, sizes):
    if size < 1:
      raise ValueError(f'client {client_id!r} has no examples: leave it out of the data.')
  return {
    'source': task.source,
    'clients': len(ids),
    'examples': sum(sizes),
    'validation_examples': len(task.validation['y']),
  }


def _training_config(settings: Mapping[str, Any], task: Any, model: Any) -> Any:
  from tff_adaptive import costs, training

  return training.TrainingConfig(
    rounds=settings['rounds'],
    clients_per_round=settings['clients_per_round'],
    seed=settings['seed'],
    max_examples_per_client=settings['max_examples_per_client'] or None,
    rounds_per_evaluation=settings['rounds_per_evaluation'],
    rounds_per_checkpoint=settings['rounds_per_checkpoint'],
    client_state_store=settings['client_state_store'] or 'memory',
    client_state_dir=settings['client_state_dir'],
    metric=task.metric,
    cost_model=costs.CostModel(
      settings['algorithm'],
      model.num_parameters,
      settings['batch_size'] or None,
      settings['client_epochs'],
      settings['scaffold_option'] or 2,
      model.initial_weights[0][0].dtype.itemsize,
    ),
  )


def _say_how_large(process: Any, config: Any, folder: str, num_clients: int) -> None:
  """Says how large the client states may grow; ValueError if they cannot fit."""
  if not hasattr(process, 'initial_client_state'):
    return
  from tff_adaptive import client_states

  plan = client_states.plan(
    min(num_clients, config.rounds * config.clients_per_round),
    client_states.num_bytes(process.initial_client_state),
    config.client_state_store,
    cache_bytes=config.client_state_cache_bytes,
    path=config.checkpoint_path(folder),
  )
  sys.stderr.write(plan.describe() + '\n')


def _show(result: Any, folder: str) -> None:
  """Writes a short table of the result and where the files are."""
  import rich.console
  import rich.table

  summary = result.summary
  means = summary['mean_last_100_rounds']
  rounds = summary['rounds']
  title = (
    f'{rounds} round{"" if rounds == 1 else "s"}, {summary["seconds_training"]:.0f} s of training'
  )
  table = rich.table.Table(title=title if result.is_complete else title + ' (not complete)')
  count = summary['evaluations_averaged']
  averaged = f'({count} evaluation{"" if count == 1 else "s"})'
  for heading in ('', 'last', f'mean of the last 100 rounds {averaged}'):
    table.add_column(heading, justify='right' if heading else 'left')
  for name, value in summary['last'].items():
    if name.startswith(('train_', 'validation_', 'inference_')):
      table.add_row(name, f'{value:.4f}', f'{means[name]:.4f}' if name in means else '')
  for name, value in summary.get('test', {}).items():
    table.add_row(name, f'{value:.4f}', '')
  rich.console.Console().print(table)
  sys.stdout.write(
    f'In {folder}: metrics.csv, summary.json, curves.png, config.json, tensorboard/, checkpoints/\n'
  )
  if summary['non_finite_clients']:
    sys.stdout.write(
      f'{summary["non_finite_clients"]} client updates were not finite and were left out.\n'
    )
  if not result.is_complete:
    sys.stdout.write('The same command goes on from here.\n')


def _complain(error: Any, code: int = BAD_INPUT) -> int:
  sys.stderr.write(f'train.py: {" ".join(str(error).split())}\n')
  return code


def main_cli() -> None:
  """The console entry point."""
  sys.exit(main(sys.argv))


if __name__ == '__main__':
  main_cli()
