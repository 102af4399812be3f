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
    self,
    task: Any,
    model: Any,
    parts: 'tasks.ClientSplit',
    *,
    seed: int,
    max_examples: int | None,
    personalize: Any = None,
    train_alone: Any = None,
  ) -> 'client_evaluation.ClientEvaluation | None':
    """Returns the evaluation on each client; None without --rounds_per_client_evaluation.

    Args:
      task: The task, which may have clients with test data.
      model: The model to evaluate.
      parts: The result of `split`.
      seed: Says which clients are evaluated if there are many.
      max_examples: The most examples that a client trains on, and is fine-tuned on; None for all.
      personalize: The result of `personalization.build_personalization`, if asked for.
      train_alone: The same for clients that train alone, from the initial model.
    """
    from tff_adaptive.training import client_evaluation

    if self.rounds_per_client_evaluation is None:
      return None
    groups = {'train': client_evaluation.Group(parts.train, max_examples=max_examples)}
    # Of each group: the clients to evaluate on, and the clients with data to fine-tune on.
    for name, clients, tuning in (
      ('heldout', parts.heldout, parts.train),
      ('unseen', parts.unseen, parts.unseen_rest),
      ('test', task.test_clients, None),
    ):
      if clients is not None:
        groups[name] = client_evaluation.Group(clients, tuning, max_tuning_examples=max_examples)
    return client_evaluation.ClientEvaluation(
      model,
      groups,
      rounds_per_evaluation=self.rounds_per_client_evaluation,
      most_clients=self._most_clients(),
      personalize=personalize,
      train_alone=train_alone,
      seed=seed,
    )

  def _most_clients(self) -> int | None:
    """Returns the most clients of a group to evaluate; None for all."""
    if self.client_evaluation_clients is None:
      return _MOST_CLIENTS
    return self.client_evaluation_clients or None
