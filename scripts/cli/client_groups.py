"""Who is held out of a run, and how clients are evaluated one by one."""

from typing import Any

import tff_adaptive_tasks as tasks
from tff_adaptive.training import client_evaluation, personalization

from . import build, settings as settings_lib

_MOST_CLIENTS = 1000


def split(settings: settings_lib.Settings, task: Any) -> tuple[Any, tasks.ClientSplit]:
  """Returns the task with the clients and examples that train, and all parts of its clients.

  Raises:
    tasks.DataError: If nothing would be left to train on, or nothing is held out.
  """
  return tasks.split_task(
    task,
    seed=settings.seed,
    heldout_clients=settings.heldout_clients,
    heldout_examples=settings.heldout_examples,
  )


def build_evaluation(
  settings: settings_lib.Settings, task: Any, model: Any, parts: tasks.ClientSplit
) -> client_evaluation.ClientEvaluation | None:
  """Returns what evaluates each client by itself; None if that was not asked for."""
  if settings.rounds_per_client_evaluation is None:
    return None
  most = settings.client_evaluation_clients
  trained = settings.max_examples_per_client or None  # Fine-tuning, too, has no more of a client.
  groups = {'train': client_evaluation.Group(parts.train, max_examples=trained)}
  for name, clients, own in (
    ('heldout', parts.heldout, parts.train),
    ('unseen', parts.unseen, parts.unseen_rest),
  ):
    if clients is not None:
      groups[name] = client_evaluation.Group(clients, own, max_tuning_examples=trained)
  return client_evaluation.ClientEvaluation(
    model,
    groups,
    rounds_per_evaluation=settings.rounds_per_client_evaluation,
    most_clients=_MOST_CLIENTS if most is None else most or None,
    personalize=_personalize(settings, task, model),
    seed=settings.seed,
  )


def _personalize(
  settings: settings_lib.Settings, task: Any, model: Any
) -> personalization.Personalize | None:
  if settings.personalization_epochs is None:
    return None
  training = build.client_training(settings, task, settings.personalization_epochs)
  return personalization.build_personalization(model, training, settings.client_rate_schedule)
