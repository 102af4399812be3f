"""Trains what `Settings` describe, in this process."""

import dataclasses
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_adaptive.training import callbacks

from . import (
  command as command_lib,
  flags,
  records,
  run_folder,
  settings as settings_lib,
  signals,
  tensorflow_start,
  user_files,
)
from .groups import aggregation, output, what


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What a run came to.

  Attributes:
    result: The `training.TrainingResult`.
    exit_code: 0 when all rounds are done, 128 + the signal's number when a signal ended the run.
  """

  result: Any
  exit_code: int


class _Watch(callbacks.Callback):
  """Knows whether a run has begun; asks for its end at a round before its last.

  What fails after the beginning is no bad input. The same command goes on from such a round.
  """

  def __init__(self, last_round: int | None):
    self._last_round = math.inf if last_round is None else last_round
    self.has_begun = False
    self.request: Callable[[], None] | None = None

  def begin(self, run: callbacks.RunInfo) -> None:
    """Asks at once if the run is there already."""
    self.has_begun = True
    if run.first_round > self._last_round:
      self._stop()

  def round_end(self, row: Mapping[str, Any]) -> None:
    """Asks after that round."""
    if row['round'] >= self._last_round:
      self._stop()

  def _stop(self) -> None:
    assert self.request is not None
    self.request()


def check(settings: settings_lib.Settings) -> None:
  """Checks folders and the run that may be in them; imports no TensorFlow, writes nothing.

  Raises:
    ValueError: With one line, if the run cannot be done as asked.
  """
  output.check_data_dir(settings.what.task, settings.output.data_dir)
  settings.what.check_files()
  run_folder.check_writable(settings.output.output_dir)
  if settings.clients.client_state_dir is not None:
    run_folder.check_writable(settings.clients.client_state_dir, 'client_state_dir')
  settings.population.build(settings.given)
  run_folder.read_config(settings.output.output_dir, records.of(settings))


def run(
  settings: settings_lib.Settings,
  command: Sequence[str] | None = None,
  last_round: int | None = None,
) -> Outcome:
  """Trains to the end, or until a signal asks for the end; goes on with the run in the folder.

  Args:
    settings: What to do.
    command: The command line, for config.json; default: one that gives the same settings.
    last_round: Where to end for now, saved as after a signal; default: where the settings say.

  Raises:
    ValueError: If it cannot be begun: bad data, a folder in use or of another run.
    command.FailureError: If it began and failed; what was saved before is resumed.
  """
  check(settings)
  tensorflow_start.quietly()
  tensorflow_start.load()
  from tff_adaptive import engine, runs, training

  engine.remember_workers()
  try:
    arguments = _prepare(settings, command or ['train.py', *flags.command_line(settings.given)])
  except engine.WorkerError as error:
    raise ValueError(str(error)) from None
  except Exception as error:
    if (line := user_files.explained(settings, error)) is None:
      raise
    raise ValueError(line) from error
  watch = _Watch(last_round)
  arguments['callbacks'].append(watch)
  try:
    with signals.StopGuard(on_abort=[engine.reap_workers]) as stop:
      watch.request = stop.request
      result = training.train(stop=stop, **arguments)
  except runs.SaveError as error:
    raise command_lib.FailureError(error) from error
  except (runs.StateError, runs.ResumeError) as error:
    if watch.has_begun:
      raise command_lib.FailureError(error) from error
    raise
  except engine.WorkerError as error:
    raise command_lib.FailureError(
      f'{error}. The rounds before are saved; the same command goes on, with any number of workers.'
    ) from None
  except runs.NonFiniteWeightsError as error:
    raise command_lib.DivergedError(error) from error
  except Exception as error:
    line = user_files.explained(settings, error)
    if line is None and not isinstance(error, (ValueError, OSError)):  # Also tasks.DataError.
      raise
    raise command_lib.FailureError(line or error) from error
  finally:
    engine.reap_workers()
  return Outcome(result, 0 if result.is_complete else stop.exit_code)


def check_result(result: Any) -> None:
  """DivergedError if the course came to nothing: what is saved is saved."""
  if not result.is_complete:
    return
  summary = result.summary
  if summary['ends_without_update']:
    rounds = summary['rounds_without_update']
    raise command_lib.DivergedError(
      f'all clients diverged in {rounds} rounds, the last among them, which left the model as it'
      ' was: lower --client_learning_rate, or give --clip_norm.'
    )
  for name, value in {**summary['last'], **summary.get('test', {})}.items():
    if name.startswith(('validation_', 'test_')) and not math.isfinite(value):
      raise command_lib.DivergedError(
        f'{name} is {value} after the last round: the model or the data are not sound. Look at'
        ' metrics.csv; a lower --client_learning_rate or --clip_norm may help.'
      )


def reap_workers() -> None:
  """Ends the workers that TFF may have started, if it has been imported."""
  native = sys.modules.get('tff_adaptive.engine.native')
  if native is not None:
    native.reap_workers()


def _prepare(settings: settings_lib.Settings, command: Sequence[str]) -> dict[str, Any]:
  """Loads the data, builds the process, opens the folder: the arguments of `training.train`."""
  import tff_adaptive_tasks as tasks
  from tff_adaptive import models, training
  from tff_adaptive.training import cohorts, ray_callback

  from . import build

  chosen, folder = settings.what, settings.output.output_dir
  ray_context = settings.runtime.build(
    settings.training.clients_per_round,
    is_compiled=chosen.task_options.get('lstm') == 'compiled',
  )
  task = tasks.load(
    chosen.task, data_dir=settings.output.data_dir, seed=chosen.seed, **chosen.task_options
  )
  task, parts = settings.evaluation.split(task, chosen.seed)
  data = _check_data(settings, task)
  if parts.unseen is not None:
    data['unseen_clients'] = len(parts.unseen)
  command_lib.say(
    f'{task.name}: {data["source"]}; {data["clients"]:,} clients, {data["examples"]:,} examples'
  )
  if hint := settings.runtime.lstm_hint(chosen.task, chosen.task_options):
    command_lib.say(hint)
  model = task.build_model(chosen.seed)
  if chosen.initial_weights is not None:
    start = training.initial_weights_from(chosen.initial_weights, model)
    model = models.with_initial_weights(model, start)
  private = settings.aggregation.plan(settings, data['clients'])
  process = build.build_process(settings, task, model, private)
  config = _training_config(settings, task, model)
  _say_how_large(process, config, folder, data['clients'])
  cohorts.simulate(config, task.train)  # Refuses what does not fit the clients.
  record = dataclasses.replace(records.of(settings), command=command, metric=task.metric)
  saved = record.open(folder, data, model.num_parameters)
  return {
    'process': process,
    'clients': task.train,
    'evaluate_fn': build.build_evaluation(model, task.validation),
    'config': config,
    'output_dir': folder,
    'run_id': saved['run_id'],
    'callbacks': [
      *([] if ray_context is None else [ray_callback.RayCallback(ray_context)]),
      *settings.output.build(saved['run_id'], settings.flat()),
      *([] if private is None else [_account(private, config)]),
    ],
    'test_fn': None if task.test is None else build.build_evaluation(model, task.test),
    'client_evaluation': settings.evaluation.build(settings, task, model, parts),
    'resume_from': settings.output.resume_from,
    'settings': record,
  }


def _check_data(settings: settings_lib.Settings, task: Any) -> dict[str, Any]:
  """Returns what config.json says of the data; ValueError if it does not fit the settings."""
  ids = task.train.client_ids
  what.check_cohort(settings.training.clients_per_round, len(ids))
  if settings.clients.client_weighting == 'tokens' and task.client_weight is None:
    raise ValueError(f'--client_weighting=tokens: the task {task.name} has no client_weight.')
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


def _training_config(settings: settings_lib.Settings, task: Any, model: Any) -> Any:
  from tff_adaptive import costs, training

  local, written = settings.training, settings.output
  return training.TrainingConfig(
    rounds=local.rounds,
    clients_per_round=local.clients_per_round,
    seed=settings.what.seed,
    max_examples_per_client=local.max_examples_per_client or None,
    rounds_per_evaluation=written.rounds_per_evaluation,
    rounds_per_checkpoint=written.rounds_per_checkpoint,
    keep_checkpoints=written.keep_checkpoints,
    client_state_store=settings.clients.client_state_store or 'memory',
    client_state_dir=settings.clients.client_state_dir,
    metric=task.metric,
    cost_model=costs.CostModel(
      settings.what.algorithm_entry.counts(settings.correction),
      model.num_parameters,
      local.batch_size or None,
      local.client_epochs,
      model.initial_weights[0][0].dtype.itemsize,
    ),
    population=settings.population.build(settings.given),
    target=written.target,
  )


def _account(private: aggregation.PrivacyPlan, config: Any) -> Any:
  """Says how private the run will be; returns the callback that records it."""
  from tff_adaptive import training

  found = private.accountant.epsilons(config.rounds, private.delta)
  command_lib.say(
    f'Noise multiplier {private.accountant.noise_multiplier:g}: epsilon {found["epsilon"]:.3g} at'
    f' delta {private.delta:.2g} after {config.rounds} rounds, for the data of a client replaced.'
  )
  return training.PrivacyCallback(private.accountant, private.delta, config.rounds_per_evaluation)


def _say_how_large(process: Any, config: Any, folder: str, num_clients: int) -> None:
  """Says how large the client states may grow; ValueError if they cannot fit."""
  if not hasattr(process, 'initial_client_state'):
    return
  from tff_adaptive.runs import capacity, serialization, sharded_store

  path = config.checkpoint_path(folder)
  command_lib.say(
    capacity.plan(
      min(num_clients, config.rounds * config.clients_per_round),
      serialization.Packer(process.initial_client_state).size,
      sharded_store.kind(path, config.client_state_store),
      path,
      cache_bytes=config.client_state_cache_bytes,
      keep_checkpoints=config.keep_checkpoints,
    )
  )
