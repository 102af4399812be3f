"""Loads the data, and builds the process and its evaluation from settings."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import tff_adaptive_tasks as tasks
from tff_adaptive import algorithms, costs, models, population as population_lib, training
from tff_adaptive.corrections import base as corrections
from tff_adaptive.models import mixed_precision
from tff_adaptive.runs import capacity, serialization, state_file
from tff_adaptive.training import callbacks
from tff_adaptive_tasks import baselines

from . import baseline, command as command_lib, fields, records, settings as settings_lib
from .groups import aggregation, what


def prepare(settings: settings_lib.Settings, command: Sequence[str]) -> dict[str, Any]:
  """Loads data, builds the process and opens the folder. Returns arguments of `training.train`."""
  chosen, folder = settings.what, settings.output.output_dir
  ray_context = settings.runtime.build(
    settings.most_clients, is_compiled=chosen.task_options.get('lstm') == 'compiled'
  )
  task = tasks.load(
    chosen.task, data_dir=settings.output.data_dir, seed=chosen.seed, **chosen.task_options
  )
  if settings.output.metric is not None:
    task = tasks.with_metric(task, settings.output.metric)
  task, parts = settings.evaluation.split(task, chosen.seed)
  as_given, of_clients = settings, task
  most_examples = settings.training.max_examples_per_client
  if settings.what.algorithm_entry.pools_clients:
    pooled = tasks.PooledClients(task.train, most_examples)
    task = dataclasses.replace(task, train=pooled)
    most_examples = 0  # Of the one client.
  data = _check_data(settings, task)
  num_task_clients = len(of_clients.train.client_ids)
  if task is not of_clients:
    data['pooled_clients'] = num_task_clients  # Then 'clients' is 1.
  if parts.unseen is not None:
    data['unseen_clients'] = len(parts.unseen)
  command_lib.say(
    f'{task.name}: {data["source"]}; {num_task_clients:,} clients, {data["examples"]:,} examples'
  )
  if settings.runtime.engine == 'native':
    command_lib.say(
      "--engine=native: TFF's worker listens on all network interfaces, and runs what anybody sends"
      ' it, while this run goes on: keep others off its ports.'
    )
  record = dataclasses.replace(records.of(settings), command=command, metric=task.metric)
  num_clients = len(task.train.client_ids)
  how_long = dataclasses.replace(
    settings.training,
    clients_per_round=settings.training.cohort(num_clients),
    max_examples_per_client=most_examples,
  )
  settings = dataclasses.replace(settings, training=how_long)
  with fields.about('metric') if settings.output.metric else contextlib.nullcontext():
    model = task.build_model(chosen.seed)
  constant = baselines.of_task(of_clients, model)
  if constant is not None:
    command_lib.say(baseline.first_line(constant, task.metric))
  if chosen.initial_weights is not None:
    start = training.initial_weights_from(chosen.initial_weights, model)
    model = models.with_initial_weights(model, start)
  private = settings.aggregation.plan(settings, num_clients)
  config = _training_config(settings, task, model)
  training.older_models(config, task.train)  # Refuses what does not fit the clients.
  process = build_process(settings, task, model, private)
  _say_how_large(process, config, folder, num_clients)
  saved = record.open(folder, data, model.num_parameters)
  return {
    'process': process,
    'clients': task.train,
    'evaluate_fn': build_evaluation(model, task.validation),
    'config': config,
    'output_dir': folder,
    'run_id': saved['run_id'],
    'callbacks': [
      *([] if ray_context is None else [callbacks.RayCallback(ray_context)]),
      *settings.output.build(saved['run_id'], record.settings),
      *([] if constant is None else [baseline.Callback(constant, task.metric)]),
      *([] if private is None else [_account(private, config, settings.aggregation.noise_seed)]),
    ],
    'test_fn': build_evaluation(model, task.test),
    'client_evaluation': settings.evaluation.build(as_given, of_clients, model, parts),
    'resume_from': settings.output.resume_from,
    'accept_lost_rows': bool(settings.output.accept_lost_rows),
    'settings': record,
  }


def build_process(
  settings: settings_lib.Settings,
  task: tasks.Task,
  model: models.Model,
  privacy: aggregation.PrivacyPlan | None = None,
) -> Any:
  """Builds the training process: `StatefulProcess` if clients keep a state, else `LearningProcess`.

  `privacy` is the result of `Aggregation.plan`.
  """
  if settings.runtime.mixed_precision is not None:
    model = mixed_precision.convert(model, settings.runtime.mixed_precision)
  rates, weighting = settings.rates, settings.clients.client_weighting
  is_plain = rates.server_schedule == 'constant' and not rates.server_schedule_option
  return algorithms.build_process(
    settings.what.algorithm_entry,
    model,
    values=settings.correction,
    clients=_registered(settings, task),
    server_optimizer=algorithms.build_server_optimizer(
      settings.what.server_entry,
      rates.server_learning_rate if is_plain else rates.server,
      settings.server,
    ),
    client_learning_rate=rates.client,
    training=settings.client_training(task),
    aggregator=settings.aggregation.build(settings, model, privacy),
    client_weighting=task.client_weight if weighting == 'tokens' else weighting,
    more_parts=settings.more_parts(),
    asynchrony=settings.synchrony.build(),
  )


def build_evaluation(model: Any, examples: Any) -> Any:
  """Returns a function that evaluates weights on `examples`, or None if `examples` is None."""
  if examples is None:
    return None
  evaluate = models.build_evaluation(model)
  return lambda weights: evaluate(weights, examples)


def _registered(settings: settings_lib.Settings, task: tasks.Task) -> corrections.RegisteredClients:
  """Returns the number of clients and their mean number of examples, which corrections may need."""
  sizes = [task.train.num_examples(client_id) for client_id in task.train.client_ids]
  most = settings.training.max_examples_per_client or max(sizes)
  return corrections.RegisteredClients(
    len(sizes), sum(min(size, most) for size in sizes) / len(sizes)
  )


def _check_data(settings: settings_lib.Settings, task: tasks.Task) -> dict[str, Any]:
  """Returns config.json's entry on the data. Raises ValueError if settings do not suit the data."""
  ids = task.train.client_ids
  what.check_cohort(settings.training.cohort(len(ids)), len(ids), settings.what.algorithm_entry)
  if settings.clients.client_weighting == 'tokens' and task.client_weight is None:
    raise ValueError(f'--client_weighting=tokens: the task {task.name} has no client_weight.')
  return {
    'source': task.source,
    'clients': len(ids),
    'examples': sum(map(task.train.num_examples, ids)),
    'validation_examples': len(task.validation['y']),
  }


def _training_config(
  settings: settings_lib.Settings, task: tasks.Task, model: models.Model
) -> training.TrainingConfig:
  flat = settings.flat()
  own = {
    f.name: flat[f.name] for f in dataclasses.fields(training.TrainingConfig) if f.name in flat
  }
  own['max_examples_per_client'] = own['max_examples_per_client'] or None
  own['stop_at_target'] = bool(own['stop_at_target'])
  local = settings.client_training(task)
  cost_model = costs.CostModel(
    algorithms.counts(
      settings.what.algorithm_entry,
      model,
      values=settings.correction,
      clients=_registered(settings, task),
      training=local,
      more_parts=settings.more_parts(),
    ),
    model.num_parameters,
    flat['batch_size'] or None,
    flat['client_epochs'] or 1,
    model.initial_weights[0][0].dtype.itemsize,
    local.batching.local_steps if local.batching else None,
  )
  asynchrony = settings.synchrony.build()
  population = settings.population.build(settings.given)
  if asynchrony is not None and population is None:
    population = population_lib.Population()
  own.update(cost_model=cost_model, population=population, asynchrony=asynchrony)
  own['metric'] = task.metric
  return training.TrainingConfig(**own)


def _account(
  private: aggregation.PrivacyPlan, config: training.TrainingConfig, noise_seed: int | None
) -> training.PrivacyCallback:
  """Prints the epsilon of the whole run, and returns the callback that records epsilon."""
  accountant, every = private.accountant, config.rounds_per_evaluation
  epsilon = accountant.epsilon(config.rounds, private.delta)
  command_lib.say(
    f'Noise multiplier {accountant.noise_multiplier:g}: epsilon {epsilon:.3g} at delta'
    f' {private.delta:.2g} after {config.rounds} rounds, for the data of a client replaced; by'
    f' {accountant.method}.'
  )
  return training.PrivacyCallback(accountant, private.delta, every, noise_seed)


def _say_how_large(
  process: Any, config: training.TrainingConfig, folder: str, num_clients: int
) -> None:
  """Prints how large client states, if any, may grow. Raises ValueError if there is no room."""
  if not hasattr(process, 'initial_client_state'):
    return
  command_lib.say(
    capacity.plan(
      min(num_clients, config.rounds * config.clients_per_round),
      serialization.Packer(process.initial_client_state).size,
      state_file.path(folder),
      num_unsaved=min(config.rounds, config.rounds_per_checkpoint) * config.clients_per_round,
    )
  )
