"""From settings to what is trained: the process and its evaluation."""

from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive import aggregation, algorithms, client, engine, models
from tff_adaptive.corrections import base as corrections
from tff_adaptive.models import mixed_precision

from . import privacy as privacy_lib, settings as settings_lib


def build_process(
  settings: settings_lib.Settings,
  task: Any,
  model: Any,
  privacy: privacy_lib.Plan | None = None,
) -> Any:
  """Builds the process that the settings describe.

  Args:
    settings: What is asked for.
    task: The `tasks.Task`.
    model: Its model.
    privacy: Its noise, where there is any: `privacy.plan`.

  Returns:
    A `tff.learning.templates.LearningProcess` or an `algorithms.StatefulProcess`.

  Raises:
    ValueError: If a value is out of its range.
  """
  if settings.mixed_precision is not None:
    model = mixed_precision.convert(model, settings.mixed_precision)
  is_plain = settings.server_schedule == 'constant' and not settings.server_schedule_option
  return algorithms.build_process(
    settings.algorithm_entry,
    model,
    values=settings.correction,
    clients=_registered(settings, task),
    server_optimizer=algorithms.build_server_optimizer(
      settings.server_entry,
      settings.server_learning_rate if is_plain else settings.server_rate_schedule,
      settings.server,
    ),
    client_learning_rate=settings.client_rate_schedule,
    training=client_training(settings, task, settings.client_epochs),
    aggregator=_aggregator(settings, model, privacy),
    client_weighting=(
      task.client_weight if settings.client_weighting == 'tokens' else settings.client_weighting
    ),
  )


def client_training(
  settings: settings_lib.Settings, task: Any, epochs: int
) -> client.ClientTraining:
  """Returns how a client trains for so many epochs.

  Raises:
    ValueError: If a value is out of its range.
  """
  batching = client.Batching(
    settings.batch_size or None,
    epochs,
    fill_last=settings.fill_last_batch,
    unit_starts=task.unit_starts,
    step_limits=settings.stragglers == 'partial',
    shuffle_buffer=settings.shuffle_buffer,
  )
  return client.ClientTraining(
    batching=batching,
    weight_decay=settings.weight_decay,
    clip_norm=settings.clip_norm,
    seed=settings.seed,
    xla=bool(settings.xla),
  )


def build_evaluation(task: Any, model: Any) -> Callable[[Any], Mapping[str, float]]:
  """Returns the function that evaluates weights on the task's validation data."""
  evaluate = models.build_evaluation(model)
  return lambda weights: evaluate(weights, task.validation)


def build_test(task: Any, model: Any) -> Callable[[Any], Mapping[str, float]] | None:
  """Returns the function that evaluates weights on the task's test data; None without them."""
  if task.test is None:
    return None
  evaluate = models.build_evaluation(model)
  return lambda weights: evaluate(weights, task.test)


def set_engine(settings: settings_lib.Settings, parallel_clients: int) -> None:
  """Makes the engine of the settings the one that runs TFF computations.

  Before TensorFlow's first operation, so that the graph engine can choose its threads.

  Args:
    settings: What is asked for.
    parallel_clients: See `engine.GraphContext`.

  Raises:
    ValueError: If there is no such device.
  """
  if settings.engine == 'graph':
    engine.set_graph_context(parallel_clients, settings.clients_per_step, settings.device or 'auto')
  else:
    engine.set_native_context()


def _aggregator(
  settings: settings_lib.Settings, model: Any, privacy: privacy_lib.Plan | None
) -> aggregation.Factory | None:
  """The TFF aggregation factory; None for the mean."""
  if settings.aggregator == 'mean':
    return None
  options = dict(settings.aggregator_options)
  if privacy is not None:
    options['noise_multiplier'] = privacy.accountant.noise_multiplier
  cohort = aggregation.Cohort(
    settings.clients_per_round,
    model.initial_weights[0],
    settings.client_weighting != 'uniform',
    settings.seed,
  )
  return aggregation.build_aggregator(settings.aggregator_entry, options, cohort)


def _registered(settings: settings_lib.Settings, task: Any) -> Any:
  """What corrections need to know of the clients that there are."""
  sizes = [task.train.num_examples(client_id) for client_id in task.train.client_ids]
  most = settings.max_examples_per_client or max(sizes)
  return corrections.RegisteredClients(
    len(sizes), sum(min(size, most) for size in sizes) / len(sizes)
  )
