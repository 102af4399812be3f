"""Settings of held-out clients and examples, and of evaluation on each client."""

import dataclasses
from typing import TYPE_CHECKING, Any

from tff_adaptive._utils import validation

from .. import fields

if TYPE_CHECKING:
  import tff_adaptive_tasks as tasks
  from tff_adaptive.training import client_evaluation

_MOST_CLIENTS = 1000


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientEvaluation(fields.Group):
  """The settings of held-out data and of evaluation on each client; see `--help`."""

  TITLE = 'Evaluation by client'

  heldout_clients: float = fields.number(
    'Share of the clients that never train; at least one client if above 0.',
    validation.in_unit_interval,
    0.0,
  )
  heldout_examples: float = fields.number(
    "Share of each client's examples that it does not train on.", validation.in_unit_interval, 0.0
  )
  rounds_per_client_evaluation: int | None = fields.count(
    'Rounds between evaluations on each client. Default: none are made.', changes_numbers=False
  )
  client_evaluation_clients: int | None = fields.count(
    'The most clients to evaluate, of those that train and of those that never do; 0 for all.'
    ' Default 1000.',
    zero='all',
    needs='rounds_per_client_evaluation',
    changes_numbers=False,
  )
  personalization_epochs: int | None = fields.count(
    "Evaluate also after this number of epochs of fine-tuning on a client's training examples."
    ' Default none.',
    high=2**20 - 1,
    needs='rounds_per_client_evaluation',
    changes_numbers=False,
  )

  local_baseline_epochs: int | None = fields.count(
    'Evaluate also models that each client trains alone, from the initial model, for this number of'
    ' epochs on its training examples: does a client gain by taking part? Default none.',
    high=2**20 - 1,
    needs='rounds_per_client_evaluation',
    changes_numbers=False,
  )

  def check(self, settings: 'fields.Settings') -> None:
    """Raises ValueError if a flag that trains on each client lacks --heldout_examples."""
    for name, training in (
      ('personalization_epochs', 'fine-tuning'),
      ('local_baseline_epochs', 'training alone'),
    ):
      if getattr(self, name) is not None and not self.heldout_examples:
        raise ValueError(
          f'--{name} needs examples that {training} has not seen: give --heldout_examples=0.2, say.'
        )

  def split(self, task: Any, seed: int) -> 'tuple[Any, tasks.ClientSplit]':
    """Returns the task with the clients and examples to train on, and the `ClientSplit`."""
    import tff_adaptive_tasks as tasks

    parts = tasks.split_clients(
      task.train,
      seed=seed,
      heldout_clients=self.heldout_clients,
      heldout_examples=self.heldout_examples,
      unit_starts=task.unit_starts,
    )
    return dataclasses.replace(task, train=parts.train), parts

  def build(
    self, settings: 'fields.Settings', task: Any, model: Any, parts: 'tasks.ClientSplit'
  ) -> 'client_evaluation.ClientEvaluation | None':
    """Returns the evaluation on each client; None without --rounds_per_client_evaluation."""
    from tff_adaptive.training import client_evaluation, personalization

    if self.rounds_per_client_evaluation is None:
      return None
    most = self.client_evaluation_clients
    # Fine-tuning, too, uses at most this many examples of a client.
    trained = settings.training.max_examples_per_client or None
    groups = {'train': client_evaluation.Group(parts.train, max_examples=trained)}
    for name, clients, own in (
      ('heldout', parts.heldout, parts.train),
      ('unseen', parts.unseen, parts.unseen_rest),
      ('test', task.test_clients, None),
    ):
      if clients is not None:
        groups[name] = client_evaluation.Group(clients, own, max_tuning_examples=trained)

    def trainer(epochs: int | None) -> 'personalization.Personalize | None':
      if epochs is None:
        return None
      training = settings.client_training(task, epochs)
      return personalization.build_personalization(
        model, training, settings.rates.client, settings.more_parts()
      )

    return client_evaluation.ClientEvaluation(
      model,
      groups,
      rounds_per_evaluation=self.rounds_per_client_evaluation,
      most_clients=_MOST_CLIENTS if most is None else most or None,
      personalize=trainer(self.personalization_epochs),
      train_alone=trainer(self.local_baseline_epochs),
      seed=settings.what.seed,
    )
