"""Whether clients take as many local steps in a round as their algorithm needs."""

from typing import Any

from tff_adaptive import training
from tff_adaptive.registry import described
from tff_adaptive.training import client_source

from . import settings as settings_lib


def check(settings: settings_lib.Settings, config: training.TrainingConfig, clients: Any) -> None:
  """Says how many clients have one local step a round, if their algorithm needs more.

  Args:
    settings: Those of the run.
    config: With the cost model, which knows the steps.
    clients: The clients that train.

  Raises:
    ValueError: If all clients have one.
  """
  parts = described.classes_of(settings.what.algorithm_entry)
  missing = next(filter(None, (part.one_step for part in parts)), '')
  if not missing or config.cost_model is None:
    return
  source = client_source.ClientSource(clients, config.max_examples_per_client)
  sizes = map(source.num_examples, clients.client_ids)
  steps = [config.cost_model.local_steps(examples) for examples in sizes]
  few = steps.count(1)
  why = f'with {settings.what.algorithm} a client with one local step a round {missing}'
  hint = 'give smaller batches (--batch_size) or more passes (--client_epochs).'
  if few == len(steps):
    raise ValueError(f'{why}, and all {few} clients have one: {hint}')
  if few:
    settings.output.say(f'{few} of {len(steps)} clients have one local step; {why}: {hint}')
