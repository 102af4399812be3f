"""Loads the data, and builds the process and its evaluation from settings."""

import contextlib
import dataclasses
import functools
import uuid
from collections.abc import Sequence
from typing import Any, NamedTuple

import tff_adaptive_tasks as tasks
from tff_adaptive import (
  aggregation as aggregation_lib,
  algorithms,
  costs,
  models,
  population as population_lib,
  registry,
  training,
)
from tff_adaptive.aggregation import sizes
from tff_adaptive.corrections import base as corrections
from tff_adaptive.models import mixed_precision
from tff_adaptive.population import attacks, choosing
from tff_adaptive.runs import capacity, serialization, state_file
from tff_adaptive.training import callbacks, cohorts, personalization
from tff_adaptive_tasks import baselines

from . import (
  baseline,
  data_digest,
  fields,
  local_steps,
  records,
  repeat,
  rules,
  settings as settings_lib,
  stored_files,
  stored_model,
)
from .groups import aggregation


class Prepared(NamedTuple):
  """What is ready to train: the arguments of `training.train`, the task and the task's model."""

  arguments: dict[str, Any]
  task: tasks.Task
  model: models.Model


def prepare(settings: settings_lib.Settings, command: Sequence[str]) -> Prepared:
  """Loads data, builds the process and opens the folder, if the run has one."""
  flags = settings.what
  folder = settings.folder
  # First of all, because it sets up TensorFlow.
  ray_context = settings.runtime.build(
    settings.most_clients,
    is_compiled=bool(settings.compiled_option),
  )
  of_clients = _load_task(settings)
  if settings.output.metric is not None:
    of_clients = tasks.with_metric(of_clients, settings.output.metric)
  of_clients, parts = settings.evaluation.split(of_clients, flags.seed)
  task = of_clients
  # `of_clients` has the clients of the task, `task` those that train: these, or one in their place.
  most_examples = settings.training.max_examples_per_client
  if flags.algorithm_entry.pools_clients:
    pooled = tasks.PooledClients(of_clients.train, most_examples)
    task = dataclasses.replace(of_clients, train=pooled)
    most_examples = 0  # Of the one client.
  data = _check_data(settings, task)
  if task is not of_clients:
    data['pooled_clients'] = len(of_clients.train.client_ids)  # Then 'clients' is 1.
  if parts.unseen is not None:
    data['unseen_clients'] = len(parts.unseen)
  repeat.check_data(settings.output.config, data)
  _say_what_runs(settings, of_clients, data)
  record = dataclasses.replace(records.of(settings), command=command, metric=task.metric)
  num_clients = len(task.train.client_ids)
  how_long = dataclasses.replace(
    settings.training,
    clients_per_round=settings.training.cohort(num_clients),
    max_examples_per_client=most_examples,
  )
  of_run = dataclasses.replace(settings, training=how_long)
  model = _build_model(settings, task)
  rules.check_early_stop(settings.output.early_stop, model.metric_names)
  constant = baselines.of_task(of_clients, model)
  if constant is not None:
    settings.output.say(baseline.first_line(constant, task.metric))
  if flags.initial_weights is not None:
    start = training.initial_weights_from(flags.initial_weights, model)
    model = models.with_initial_weights(model, start)
  private = settings.aggregation.plan(how_long, num_clients, flags.seed)
  config = _training_config(of_run, task, model)
  training.older_models(config, task.train)  # Refuses what does not fit the clients.
  local_steps.check(settings, config, task.train)
  process = build_process(of_run, task, model, private)
  _say_how_large(settings, process, config, num_clients)
  # Nothing is written before this line: what was refused so far has left no trace.
  run_id = uuid.uuid4().hex
  if folder is not None:
    run_id = record.open(folder, data, model.num_parameters)['run_id']
  description = stored_model.description(task, model)
  observers: list[Any] = [
    stored_model.StoreModel(model, description, task.preparation),
    stored_files.StoreFiles(record.files),
  ]
  if ray_context is not None:
    observers.append(callbacks.RayCallback(ray_context))
  observers += settings.output.build(run_id, record.settings)
  if constant is not None:
    observers.append(baseline.Callback(constant, task.metric))
  if private is not None:
    observers.append(_account(settings, private, config))
  arguments = {
    'process': process,
    'clients': task.train,
    'evaluate_fn': build_evaluation(model, task.validation),
    'config': config,
    'output_dir': folder,
    'run_id': run_id,
    'callbacks': observers,
    'test_fn': build_evaluation(model, task.test),
    'client_evaluation': _client_evaluation(settings, of_clients, model, parts),
    'client_losses': _client_losses(config, model),
    'resume_from': settings.output.resume_from,
    'accept_lost_rows': bool(settings.output.accept_lost_rows),
    'settings': record,
  }
  return Prepared(arguments, task, model)


def _load_task(settings: settings_lib.Settings) -> tasks.Task:
  """Loads the task that the settings name, or returns the one that a program gave."""
  if settings.task_object is not None:
    return settings.task_object
  flags = settings.what
  return tasks.load(
    flags.task, data_dir=settings.output.data_dir, seed=flags.seed, **flags.task_options
  )


def in_memory(settings: settings_lib.Settings, task: tasks.Task) -> dict[str, Any]:
  """Builds the process for a loaded task. Returns arguments of `training.train` without a folder.

  The caller has set the engine (`Runtime.build`). Settings of files have no effect.
  """
  task, parts = settings.evaluation.split(task, settings.what.seed)
  _check_data(settings, task)
  how_long = dataclasses.replace(
    settings.training, clients_per_round=settings.training.cohort(len(task.train.client_ids))
  )
  of_run = dataclasses.replace(settings, training=how_long)
  model = _build_model(settings, task)
  config = _training_config(of_run, task, model)
  return {
    'process': build_process(of_run, task, model),
    'clients': task.train,
    'evaluate_fn': build_evaluation(model, task.validation),
    'config': config,
    'client_evaluation': _client_evaluation(settings, task, model, parts),
    'client_losses': _client_losses(config, model),
  }


def _build_model(settings: settings_lib.Settings, task: tasks.Task) -> models.Model:
  """Builds the task's model. Raises ValueError if there is no such --metric for it."""
  context: Any = contextlib.nullcontext()
  if settings.output.metric is not None:
    context = fields.about('metric')
  with context:
    return task.build_model(settings.what.seed)


def _say_what_runs(settings: settings_lib.Settings, task: tasks.Task, data: dict[str, Any]) -> None:
  """Prints where the data come from and how many they are, and a risk of the native engine."""
  num_clients = len(task.train.client_ids)
  settings.output.say(
    f'{task.name}: {data["source"]}; {num_clients:,} clients, {data["examples"]:,} examples'
  )
  for line in tasks.describe(task):
    settings.output.say(line)
  if settings.runtime.engine == 'native':
    settings.output.say(
      "--engine=native: TFF's worker listens on all network interfaces, and runs what anybody sends"
      ' it, while this run goes on: keep others off its ports.'
    )


def _client_evaluation(
  settings: settings_lib.Settings, task: tasks.Task, model: models.Model, parts: Any
) -> Any:
  """Returns the evaluation on each client, also of fine-tuned models if asked for, or None."""

  def trainer(epochs: int | None) -> personalization.Personalize | None:
    if epochs is None:
      return None
    return personalization.build_personalization(
      model,
      settings.client_training(task, epochs),
      settings.rates.client,
      settings.more_parts(),
    )

  return settings.evaluation.build(
    task,
    model,
    parts,
    seed=settings.what.seed,
    max_examples=settings.training.max_examples_per_client or None,
    personalize=trainer(settings.evaluation.personalization_epochs),
    train_alone=trainer(settings.evaluation.local_baseline_epochs),
  )


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
  rates = settings.rates
  # Where there is no schedule, a number: then the rate is a hyperparameter of the optimizer.
  server_rate: Any = rates.server
  if rates.server_schedule == 'constant' and not rates.server_schedule_option:
    server_rate = rates.server_learning_rate
  weighting: Any = settings.clients.client_weighting
  if weighting == 'tokens':
    weighting = task.client_weight
  if choosing.gives_weights(settings.cohort.build(weighting)):
    weighting = 'uniform'  # The rule's weights say how clients count.
  return algorithms.build_process(
    settings.what.algorithm_entry,
    model,
    values=settings.correction,
    clients=_registered(settings, task),
    server_optimizer=algorithms.build_server_optimizer(
      settings.what.server_entry, server_rate, settings.server
    ),
    client_learning_rate=rates.client,
    training=settings.client_training(task),
    aggregator=_aggregator(settings, model, privacy),
    client_weighting=weighting,
    more_parts=settings.more_parts(),
    asynchrony=settings.synchrony.build(),
  )


def _aggregator(
  settings: settings_lib.Settings, model: models.Model, privacy: aggregation.PrivacyPlan | None
) -> Any:
  """Returns the aggregation factory, with what measures norms and makes attackers' updates."""
  factory: Any = settings.aggregation.build(settings.training, model, privacy)
  rule = settings.cohort.build(settings.clients.client_weighting)
  needs_norms = rule is not None and 'norms' in choosing.needs_of(rule)
  attackers = settings.attack.build()
  if attackers is not None and attackers.attack != attacks.INNER_PRODUCT:
    attackers = None  # They make their updates by themselves.
  # Some aggregators hide the updates of single clients from the server. Of the others a ledger has
  # the norms as clients measure them, if the server need not look at updates for anything else.
  has_cosines = bool(settings.output.full_ledger)
  has_ledger = settings.output.ledger and not settings.aggregation.entry.hides_clients
  if needs_norms or (has_ledger and (has_cosines or attackers is not None)):
    factory = aggregation_lib.ClientNormsFactory(factory, cosines=has_cosines)
  if attackers is not None:
    # Outermost, because it replaces updates before any other aggregator sees them.
    factory = aggregation_lib.InnerProductFactory(attackers.strength, factory)
  return factory


def build_evaluation(model: Any, examples: Any) -> Any:
  """Returns a function that evaluates weights on `examples`, or None if `examples` is None."""
  if examples is None:
    return None
  evaluate = models.build_evaluation(model)
  return lambda weights: evaluate(weights, examples)


def _client_losses(config: training.TrainingConfig, model: models.Model) -> Any:
  """Returns the function that evaluates losses of clients; None if no rule needs it."""
  rule = config.cohort
  if rule is None or not {'losses', 'train_losses'} & set(choosing.needs_of(rule)):
    return None
  return training.build_client_losses(model)


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
  if settings.output.trace_client is not None:
    cohorts.check_traced('--trace_client', settings.output.trace_client, ids)
  rules.check_cohort(settings.training.cohort(len(ids)), len(ids), settings.what.algorithm_entry)
  if settings.clients.client_weighting == 'tokens' and task.client_weight is None:
    raise ValueError(f'--client_weighting=tokens: the task {task.name} has no client_weight.')
  data = {
    'source': task.source,
    'clients': len(ids),
    'examples': sum(map(task.train.num_examples, ids)),
    'validation_examples': len(task.validation['y']),
  }
  # The data of a known task follow from its settings, but not these.
  if task.validated_by or settings.task_object is not None:
    data['sha256'] = data_digest.of(task)
  return data


def _training_config(
  settings: settings_lib.Settings, task: tasks.Task, model: models.Model
) -> training.TrainingConfig:
  flags = settings.flat()
  names = [field.name for field in dataclasses.fields(training.TrainingConfig)]
  arguments = {name: flags[name] for name in names if name in flags}
  arguments['max_examples_per_client'] = flags['max_examples_per_client'] or None
  for name in ('stop_at_target', 'keep_best', 'ledger'):
    arguments[name] = bool(flags[name])
  arguments['metric'] = task.metric
  rule = settings.cohort.build(settings.clients.client_weighting)
  if rule is not None:
    with fields.about('cohort_option'):
      choosing.check_size(rule, arguments['clients_per_round'])
  arguments['cohort'] = rule
  arguments['attackers'] = settings.attack.build()
  local = settings.client_training(task)
  num_clients = len(task.train.client_ids)
  local_steps = None
  if local.batching is not None:
    local_steps = local.batching.local_steps
  population = settings.population.build(settings.given)
  drawn = settings.training.cohort(num_clients)
  if population is not None:
    drawn = population.cohort_to_draw(drawn)
  cost_model = costs.CostModel(
    _counts(settings, task, model, local),
    model.num_parameters,
    flags['batch_size'] or None,
    flags['client_epochs'] or 1,
    model.initial_weights[0][0].dtype.itemsize,
    local_steps,
    rounds_between=max(1.0, num_clients / drawn),
  )
  _say_if_all_is_sent(settings, cost_model)
  asynchrony = settings.synchrony.build()
  if asynchrony is not None and population is None:
    # Arrivals need a clock, even if all clients are alike and always there.
    population = population_lib.Population()
  return training.TrainingConfig(
    **arguments,
    cost_model=cost_model,
    population=population,
    asynchrony=asynchrony,
  )


def _counts(
  settings: settings_lib.Settings, task: tasks.Task, model: models.Model, local: Any
) -> registry.Counts:
  """Returns what a client receives, sends and computes; `local` is its `ClientTraining`."""
  counts = algorithms.counts(
    settings.what.algorithm_entry,
    model,
    values=settings.correction,
    clients=_registered(settings, task),
    training=local,
    more_parts=settings.more_parts(),
    aggregated_bytes=functools.partial(
      sizes.update_bytes, settings.aggregation.entry.name, settings.aggregation.option_values
    ),
  )
  if counts.uncounted:
    settings.output.say(
      f'{" and ".join(counts.uncounted)} may send less than the megabytes of the run count: a'
      ' message_bits of the part says how much.'
    )
  return counts


def _say_if_all_is_sent(settings: settings_lib.Settings, cost_model: costs.CostModel) -> None:
  """Says so if compression downwards saves nothing, because clients are away for too long."""
  if not cost_model.sends_whole_model:
    return
  settings.output.say(
    f'A client takes part once in {cost_model.rounds_between:g} rounds on average, and the changes'
    ' of so many rounds are no smaller than the model: clients receive the whole model.'
  )


def _account(
  settings: settings_lib.Settings,
  private: aggregation.PrivacyPlan,
  config: training.TrainingConfig,
) -> training.PrivacyCallback:
  """Prints the epsilon of the whole run, and returns the callback that records epsilon."""
  accountant = private.accountant
  epsilon = accountant.epsilon(config.rounds, private.delta)
  settings.output.say(
    f'Noise multiplier {accountant.noise_multiplier:g}: epsilon {epsilon:.3g} at delta'
    f' {private.delta:.2g} after {config.rounds} rounds, for the data of a client replaced; by'
    f' {accountant.method}.'
  )
  return training.PrivacyCallback(
    accountant, private.delta, config.rounds_per_evaluation, settings.aggregation.noise_seed
  )


def _say_how_large(
  settings: settings_lib.Settings,
  process: Any,
  config: training.TrainingConfig,
  num_clients: int,
) -> None:
  """Prints how large client states, if any, may grow. Raises ValueError if there is no room."""
  if settings.folder is None or not hasattr(process, 'initial_client_state'):
    return
  # States that clients returned since the last checkpoint are in memory.
  unsaved_rounds = min(config.rounds, config.rounds_per_checkpoint)
  settings.output.say(
    capacity.plan(
      min(num_clients, config.rounds * config.clients_per_round),
      serialization.Packer(process.initial_client_state).size,
      state_file.path(settings.folder),
      num_unsaved=unsaved_rounds * config.clients_per_round,
    )
  )
