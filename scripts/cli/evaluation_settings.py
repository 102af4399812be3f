"""The flags of held-out clients and of evaluation by client: fields and checks."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import validation

from . import fields

GROUP = 'Evaluation by client'


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
  """The settings of evaluation by client; see `--help` for what each means."""

  heldout_clients: float = fields.flag(
    GROUP,
    'The share of the clients that never train; at least one if above 0.',
    0.0,
    validation.in_unit_interval,
    'give a share such as 0.1',
  )
  heldout_examples: float = fields.flag(
    GROUP,
    "The share of each client's examples that is not trained on.",
    0.0,
    validation.in_unit_interval,
    'give a share such as 0.2',
  )
  rounds_per_client_evaluation: int | None = fields.flag(
    GROUP,
    'Rounds from one evaluation of each client by itself to the next. Default none.',
    None,
    fields.from_(1),
    fields.ONE,
    changes_numbers=False,
  )
  client_evaluation_clients: int | None = fields.flag(
    GROUP,
    'Evaluate at most so many clients of those that train, and of those that never do; 0 for all.'
    ' Default 1000.',
    None,
    fields.from_(0),
    'give 0 for all',
    changes_numbers=False,
  )
  personalization_epochs: int | None = fields.flag(
    GROUP,
    "Evaluate on held-out examples also after so many epochs of fine-tuning on a client's others."
    ' Default none.',
    None,
    fields.from_(1, 2**20 - 1),
    fields.ONE,
    changes_numbers=False,
  )


def check(given: Mapping[str, Any]) -> None:
  """Refuses what asks for nothing, or cannot be done.

  Args:
    given: Flag name -> value.

  Raises:
    ValueError: In one line that names the flag and the hint.
  """
  for name in ('client_evaluation_clients', 'personalization_epochs'):
    if given[name] is not None and given['rounds_per_client_evaluation'] is None:
      raise ValueError(f'--{name} is for --rounds_per_client_evaluation: give it too.')
  if given['personalization_epochs'] is not None and not given['heldout_examples']:
    raise ValueError(
      '--personalization_epochs wants examples that fine-tuning has not seen: give'
      ' --heldout_examples=0.2, say.'
    )
