"""Settings of local training: rounds, batches, rates, and weights of clients."""

import dataclasses
import functools

from tff_adaptive import schedules
from tff_adaptive._utils import user_code, validation
from tff_adaptive.registry import user_parts

from .. import fields, options
from . import synchrony


@dataclasses.dataclass(frozen=True, kw_only=True)
class Training(fields.Group):
  """The settings of rounds, epochs and batches; see `--help`."""

  TITLE = 'How long'

  rounds: int = fields.count("Number of rounds. Default the task's.")
  clients_per_round: int = fields.count("Clients drawn each round. Default the task's.")
  participation: float | None = fields.number(
    'Share of the clients that is drawn each round, in place of --clients_per_round.',
    validation.in_half_open_unit_interval,
    instead_of='clients_per_round',
  )
  buffer_size: int | None = fields.count(
    'With --synchrony=buffered: the number of updates in a server step, in place of'
    ' --clients_per_round.',
    needs=synchrony.BUFFERED,
    instead_of='clients_per_round',
  )
  client_epochs: int = fields.count(
    "Epochs that a client trains in a round. Default the task's.", high=2**20 - 1
  )
  local_steps: int | None = fields.count(
    'Local steps of every client in a round, in place of --client_epochs. A client makes as many'
    " passes over its examples as that takes. Default the task's.",
    high=2**20,
    instead_of='client_epochs',
  )
  random_local_steps: bool | None = fields.flag(
    'Draw the number of local steps in each round, the same for all clients. --local_steps is the'
    ' mean (geometric, as in Scaffnew).',
    needs='local_steps',
  )
  with_replacement: bool | None = fields.flag(
    'Draw each example of a batch from all examples of the client.'
  )
  continue_batches: bool | None = fields.flag(
    'Begin a round with the batch after the last one of the previous round, in the same pass over'
    " a client's data, as FLamby does. Default the task's.",
    needs='local_steps',
  )
  batch_size: int = fields.count(
    "Examples in a local step; 0 for all at once. Default the task's.",
    zero='all examples at once',
    high=2**20,
  )
  fill_last_batch: bool = fields.flag(
    "Fill the last batch by drawing again from the client's examples, as AdaBest's experiments do."
    " Default the task's."
  )
  max_examples_per_client: int = fields.count(
    "The most examples of a client, from the first on; 0 for all. Default the task's.", zero='all'
  )

  def cohort(self, num_clients: int) -> int:
    """Returns the number of clients of a round, given the number of all clients."""
    if self.participation is None:
      return self.buffer_size or self.clients_per_round
    return max(1, round(self.participation * num_clients))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rates(fields.Group):
  """The learning rates and their schedules; see `--help`."""

  TITLE = 'Rates'

  client_learning_rate: float = fields.number(
    "Client rate eta_l. Default: the task's (FedAvg's for most corrections) or the optimizer's.",
    validation.at_least_zero,
  )
  server_learning_rate: float = fields.number(
    "Server rate eta. Default: the task's or the optimizer's own; 1 for a correction with SGD.",
    validation.at_least_zero,
  )
  client_schedule: str = fields.flag(
    'Schedule of the client rate by round: one of the list above, or FILE.py:NAME. Default'
    " the task's."
  )
  client_schedule_option: tuple[str, ...] = fields.flag(
    'Option of the client schedule, NAME=VALUE; see the schedules above. May be repeated.', []
  )
  server_schedule: str = fields.flag(
    'Schedule of the server rate by round, in the same form. Default constant.'
  )
  server_schedule_option: tuple[str, ...] = fields.flag(
    'Option of the server schedule, in the same form.', []
  )

  def sources(self) -> dict[str, user_code.UserCode]:
    """See `fields.Group.sources`."""
    names = {flag: getattr(self, flag) for flag in ('client_schedule', 'server_schedule')}
    return {
      flag: user_code.load(name)[1] for flag, name in names.items() if user_code.is_reference(name)
    }

  @property
  def client(self) -> schedules.Schedule:
    """The schedule of the client learning rate."""
    return self._schedule('client')

  @property
  def server(self) -> schedules.Schedule:
    """The schedule of the server learning rate."""
    return self._schedule('server')

  def check(self) -> None:
    """Raises ValueError for schedules or options that are unknown or out of range."""
    for side in ('client', 'server'):
      # Where no default is known, a rule says that the rate has to be given.
      if getattr(self, f'{side}_learning_rate') is not None:
        self._schedule(side)

  def _schedule(self, side: str) -> schedules.Schedule:
    name = getattr(self, f'{side}_schedule')
    rate = getattr(self, f'{side}_learning_rate')
    pairs = getattr(self, f'{side}_schedule_option')
    if user_code.is_reference(name):  # The file may have changed since the last call.
      return _built.__wrapped__(side, name, rate, pairs)
    return _built(side, name, rate, pairs)


@functools.cache
def _built(side: str, name: str, rate: float, pairs: tuple[str, ...]) -> schedules.Schedule:
  """Returns the schedule of a side's rate, which is built, and checked, once."""
  with fields.about(f'{side}_schedule'):
    given = options.parse(f'{side}_schedule_option', pairs)
    if not user_code.is_reference(name):
      return schedules.build(name, rate, **given)
    part = user_parts.load(name, 'a function of the base rate that returns a schedule')
    schedule = part.definition(rate, **part.values(given))
    if not callable(schedule):
      raise ValueError(f'{part.name} makes no schedule: return a function of the round, from 0.')
    return schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clients(fields.Group):
  """The settings of clients' weights, regularisation and states; see `--help`."""

  TITLE = 'Clients'

  client_weighting: str = fields.flag(
    'Weight of a client: examples, uniform, or tokens (shakespeare and stackoverflow_nwp). Default'
    " the task's, or uniform if the algorithm's paper has it."
  )
  weight_decay: float = fields.number(
    "Weight decay of the clients. Default the task's.", validation.at_least_zero
  )
  clip_norm: float | None = fields.number(
    'Clips corrected local gradients to this 2-norm. Default none.', validation.above_zero
  )
