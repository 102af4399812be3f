"""The general builders: correction x server optimizer x schedule."""

from typing import TypeAlias

import tensorflow_federated as tff

from tff_adaptive import corrections
from tff_adaptive._utils import validation
from tff_adaptive.algorithms import components, learning_process, stateful_process
from tff_adaptive.client import (
  batching as batching_lib,
  local_training,
  model_adapters,
  xla as xla_lib,
)

Process: TypeAlias = tff.learning.templates.LearningProcess | stateful_process.StatefulProcess


def build_drift_corrected(
  model: model_adapters.AnyModel,
  correction: corrections.Correction,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  client_learning_rate: components.Rate,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_schedule: components.Rate | None = None,
  client_weighting: components.Weighting = 'uniform',
  aggregator: components.Aggregator | None = None,
  batching: batching_lib.Batching | None = None,
  weight_decay: float = 0.0,
  clip_norm: float | None = None,
  seed: int = 0,
  xla: bool = False,
) -> Process:
  """Any client correction with any server optimizer.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    correction: The client correction.
    server_optimizer: Descends along the aggregated pseudo-gradient (plus h, where the correction
      says so). SGD with rate 1 gives the published drift-corrected algorithms.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    client_optimizer: Default SGD. The corrections' formulas are those of SGD. Its own rate is
      replaced by `client_learning_rate`.
    server_schedule: Schedule that replaces the server optimizer's rate.
    client_weighting: 'uniform', or 'examples' for weights n_i in the mean of the updates (the rows
      of a client's batches: not what a `VariableModel` says in `BatchOutput.num_examples`), or a
      function of a client's unfinalized training metrics (for a model of this project name ->
      float32 [..., 2], sum and count), as TFF's `client_weighting` is of its outputs.
    aggregator: A TFF aggregation factory (clipping, compression, privacy ...); default the mean.
      One that takes no weights wants client_weighting 'uniform', and counts a client that diverged
      as an update of zero: it cannot leave it out.
    batching: How whole-array clients are batched; None: datasets of batches, TFF's convention.
    weight_decay: Coefficient of the weights in the local gradient.
    clip_norm: Largest 2-norm of the corrected local gradient, before weight decay.
    seed: Seed of shuffling and dropout.
    xla: Whether XLA compiles the local step; for GPUs, and for models of this project.

  Returns:
    A `LearningProcess` for a correction that keeps nothing at the clients, else a
    `StatefulProcess`.

  Raises:
    ValueError: If an option is out of its range, XLA cannot compile the model, the client
      optimizer's rate cannot be set, nor the server's with a `server_schedule`, or an aggregator
      that takes no weights is to weigh clients.
    TypeError: If an argument is of no known kind, or the correction has a server's part or a
      client's state but `is_stateful = False`.
  """
  validation.instance(
    'correction',
    correction,
    corrections.Correction,
    'tff_adaptive.corrections.Correction',
    'give tff_adaptive.corrections.FedProx(mu=0.01), say',
  )
  _check_methods(correction)
  components.check_optimizer(
    'server_optimizer', server_optimizer, 'give tff_adaptive.optimizers.build_yogi(0.01), say'
  )
  client_learning_rate = components.check_rate('client_learning_rate', client_learning_rate)
  if server_schedule is not None:
    server_schedule = components.check_rate('server_schedule', server_schedule)
  components.check_weighting(client_weighting)
  components.check_aggregator(aggregator, client_weighting)
  local_model = model_adapters.wrap(model)
  if client_optimizer is None:
    initial_rate = client_learning_rate
    if callable(initial_rate):
      initial_rate = validation.at_least_zero(
        'client_learning_rate(0)', initial_rate(0), 'give a function of the round to a rate'
      )
    client_optimizer = tff.learning.optimizers.build_sgdm(initial_rate)
  components.check_optimizer(
    'client_optimizer',
    client_optimizer,
    'give tff_adaptive.optimizers.build_sgdm(0.1), say, or None for SGD',
  )
  training = local_training.LocalTraining(
    client_optimizer, batching, weight_decay, clip_norm, seed, xla
  )
  if xla:
    xla_lib.check(model, (batching and batching.batch_size) or 8)
  if correction.is_stateful:
    if batching is None and (
      getattr(correction, 'mean_examples', None) is not None
      or getattr(correction, 'scale_mu', False)
    ):
      raise ValueError(
        'scaling mu by client size needs the number of examples before training: give batching='
      )
    return stateful_process.compose(
      local_model,
      training,
      correction,
      client_learning_rate=client_learning_rate,
      client_weighting=client_weighting,
      server_optimizer=server_optimizer,
      server_schedule=server_schedule,
      aggregator=aggregator,
    )
  client_work = learning_process.build_client_work(
    local_model,
    training,
    correction,
    client_learning_rate=client_learning_rate,
    client_weighting=client_weighting,
  )
  return learning_process.compose(
    local_model,
    client_work,
    server_optimizer=server_optimizer,
    server_schedule=server_schedule,
    aggregator=aggregator,
  )


def _check_methods(correction: corrections.Correction) -> None:
  """Refuses a correction with methods that a process without states would never call."""
  if correction.is_stateful:
    return
  base, own = corrections.Correction, type(correction)
  unused = ('client_state', 'client_update', 'server_state', 'broadcast', 'server_update')
  for name in unused:
    if getattr(own, name) is not getattr(base, name):
      raise TypeError(
        f'{own.__name__}.{name} would never be called, for {own.__name__} has is_stateful = False: '
        'give it is_stateful = True (clients may keep the empty state all the same).'
      )


def build_fed_opt(
  model: model_adapters.AnyModel,
  client_optimizer: tff.learning.optimizers.Optimizer | None,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  client_learning_rate: components.Rate,
  server_schedule: components.Rate | None = None,
  client_weighting: components.Weighting = 'examples',
  aggregator: components.Aggregator | None = None,
  batching: batching_lib.Batching | None = None,
  weight_decay: float = 0.0,
  clip_norm: float | None = None,
  seed: int = 0,
  xla: bool = False,
) -> tff.learning.templates.LearningProcess:
  """FedOpt: Algorithm 1 of "Adaptive Federated Optimization" (Reddi et al., 2021).

  Args:
    model: See `build_drift_corrected`, as for all arguments.
    client_optimizer: The client optimizer, whose own rate `client_learning_rate` replaces; None
      for SGD.
    server_optimizer: The server optimizer.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    server_schedule: Schedule that replaces the server optimizer's rate.
    client_weighting: 'examples' (n_i), 'uniform' or a function of a client's metrics.
    aggregator: A TFF aggregation factory; None for the mean.
    batching: How whole-array clients are batched; None: datasets of batches, TFF's convention.
    weight_decay: Coefficient of the weights in the local gradient, >= 0.
    clip_norm: Largest 2-norm of the local gradient; None for no clipping.
    seed: Seed of shuffling and dropout, >= 0.
    xla: Whether XLA compiles the local step.

  Returns:
    The learning process.

  Raises:
    ValueError, TypeError: As `build_drift_corrected`.
  """
  return build_drift_corrected(
    model,
    corrections.Correction(),
    server_optimizer,
    client_learning_rate=client_learning_rate,
    client_optimizer=client_optimizer,
    server_schedule=server_schedule,
    client_weighting=client_weighting,
    aggregator=aggregator,
    batching=batching,
    weight_decay=weight_decay,
    clip_norm=clip_norm,
    seed=seed,
    xla=xla,
  )
