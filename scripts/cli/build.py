"""From settings to what is trained: the process and its evaluation."""

from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive import algorithms, models
from tff_adaptive.corrections import base as corrections
from tff_adaptive.models import mixed_precision

from . import settings as settings_lib
from .groups import aggregation


def build_process(
  settings: settings_lib.Settings,
  task: Any,
  model: Any,
  privacy: aggregation.PrivacyPlan | None = None,
) -> Any:
  """Builds the process that the settings describe.

  Args:
    settings: What is asked for.
    task: The `tasks.Task`.
    model: Its model.
    privacy: Its noise, where there is any.

  Returns:
    A `tff.learning.templates.LearningProcess` or an `algorithms.StatefulProcess`.

  Raises:
    ValueError: If a value is out of its range.
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
  )


def build_evaluation(model: Any, examples: Any) -> Callable[[Any], Mapping[str, float]]:
  """Returns the function that evaluates weights on examples."""
  evaluate = models.build_evaluation(model)
  return lambda weights: evaluate(weights, examples)


def _registered(settings: settings_lib.Settings, task: Any) -> Any:
  """What corrections need to know of the clients that there are."""
  sizes = [task.train.num_examples(client_id) for client_id in task.train.client_ids]
  most = settings.training.max_examples_per_client or max(sizes)
  return corrections.RegisteredClients(
    len(sizes), sum(min(size, most) for size in sizes) / len(sizes)
  )
