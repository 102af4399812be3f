"""The builders: correction x server optimizer x schedule, and the published algorithms by name."""

from collections.abc import Callable
from typing import Any, Optional, Union

import tensorflow_federated as tff

from tff_adaptive import batching as batching_lib
from tff_adaptive import checks, corrections, local_models, optimizers
from tff_adaptive import client_work as client_work_lib
from tff_adaptive import xla as xla_lib
from tff_adaptive.algorithms import parts, stateful, stateless

Process = Union[tff.learning.templates.LearningProcess, stateful.StatefulProcess]


def build_drift_corrected(
  model: local_models.AnyModel,
  correction: corrections.Correction,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  client_learning_rate: parts.Rate,
  client_optimizer: Optional[tff.learning.optimizers.Optimizer] = None,
  server_schedule: Optional[Callable[[Any], Any]] = None,
  client_weighting: parts.Weighting = 'uniform',
  aggregator: Optional[parts.Aggregator] = None,
  batching: Optional[batching_lib.Batching] = None,
  weight_decay: float = 0.0,
  clip_norm: Optional[float] = None,
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
    client_optimizer: Default SGD. The corrections' formulas are those of SGD.
    server_schedule: Schedule that replaces the server optimizer's rate.
    client_weighting: 'uniform', or 'examples' for weights n_i in the mean of the updates, or a
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
      optimizer's rate cannot be set, or an aggregator that takes no weights is to weigh clients.
    TypeError: If an argument is of no known kind.
  """
  checks.instance(
    'correction',
    correction,
    corrections.Correction,
    'tff_adaptive.corrections.Correction',
    'give tff_adaptive.corrections.AdaBest(mu=0.02, beta=0.96), say',
  )
  parts.check_optimizer(
    'server_optimizer', server_optimizer, 'give tff_adaptive.optimizers.build_yogi(0.01), say'
  )
  client_learning_rate = parts.check_rate('client_learning_rate', client_learning_rate)
  if server_schedule is not None:
    server_schedule = parts.check_rate('server_schedule', server_schedule)
  parts.check_weighting(client_weighting)
  parts.check_aggregator(aggregator, client_weighting)
  local_model = local_models.wrap(model)
  if client_optimizer is None:
    initial_rate = client_learning_rate
    if callable(initial_rate):
      initial_rate = checks.at_least_zero(
        'client_learning_rate(0)', initial_rate(0), 'give a function of the round to a rate'
      )
    client_optimizer = tff.learning.optimizers.build_sgdm(initial_rate)
  parts.check_optimizer(
    'client_optimizer',
    client_optimizer,
    'give tff_adaptive.optimizers.build_sgdm(0.1), say, or None for SGD',
  )
  training = client_work_lib.LocalTraining(
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
    return stateful.compose(
      local_model,
      training,
      correction,
      client_rate=client_learning_rate,
      client_weighting=client_weighting,
      server_optimizer=server_optimizer,
      server_schedule=server_schedule,
      aggregator=aggregator,
    )
  client_work = stateless.build_client_work(
    local_model,
    training,
    correction,
    client_rate=client_learning_rate,
    client_weighting=client_weighting,
  )
  return stateless.compose(
    local_model,
    client_work,
    server_optimizer=server_optimizer,
    server_schedule=server_schedule,
    aggregator=aggregator,
  )


def build_fed_opt(
  model: local_models.AnyModel,
  client_optimizer: Optional[tff.learning.optimizers.Optimizer],
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  client_learning_rate: parts.Rate,
  client_weighting: parts.Weighting = 'examples',
  **options: Any,
) -> tff.learning.templates.LearningProcess:
  """FedOpt: Algorithm 1 of "Adaptive Federated Optimization" (Reddi et al., 2021).

  Args:
    model: See `build_drift_corrected`.
    client_optimizer: Default (None) SGD.
    server_optimizer: The server optimizer.
    client_learning_rate: eta_l, or a schedule.
    client_weighting: 'examples' (n_i), 'uniform', or a function, as for `build_drift_corrected`.
    **options: Further options of `build_drift_corrected`.
  """
  return build_drift_corrected(
    model,
    corrections.Correction(),
    server_optimizer,
    client_learning_rate=client_learning_rate,
    client_optimizer=client_optimizer,
    client_weighting=client_weighting,
    **options,
  )


def _server_rate(rate):
  """Checks the rate under the name that the user gave it by."""
  return parts.check_rate('server_learning_rate', rate)


def build_fed_avg(model, *, client_learning_rate, server_learning_rate=1.0, **options):
  """FedAvg: the server takes the mean of the client models (SGD, rate 1).

  Args:
    model: See `build_drift_corrected`.
    client_learning_rate: eta_l, or a schedule.
    server_learning_rate: eta; 1 is FedAvg.
    **options: Options of `build_fed_opt`.
  """
  server = optimizers.build_sgdm(_server_rate(server_learning_rate))
  return build_fed_opt(model, None, server, client_learning_rate=client_learning_rate, **options)


def build_fed_avgm(
  model, *, client_learning_rate, server_learning_rate=1.0, momentum=0.9, **options
):
  """FedAvgM: FedAvg with server momentum. Arguments as `build_fed_avg`."""
  server = optimizers.build_sgdm(_server_rate(server_learning_rate), momentum)
  return build_fed_opt(model, None, server, client_learning_rate=client_learning_rate, **options)


def build_fed_adagrad(
  model,
  *,
  client_learning_rate,
  server_learning_rate,
  tau=1e-3,
  beta1=0.0,
  initial_v=None,
  **options,
):
  """FedAdagrad, Algorithm 2 of the paper (beta1 = 0). Arguments as `build_fed_yogi`."""
  server = optimizers.build_adagrad(
    _server_rate(server_learning_rate), tau=tau, beta1=beta1, initial_v=initial_v
  )
  return build_fed_opt(model, None, server, client_learning_rate=client_learning_rate, **options)


def build_fed_adam(
  model,
  *,
  client_learning_rate,
  server_learning_rate,
  tau=1e-3,
  beta1=0.9,
  beta2=0.99,
  bias_correction=False,
  initial_v=None,
  **options,
):
  """FedAdam, Algorithm 2 of the paper. Arguments as `build_fed_yogi`."""
  server = optimizers.build_adam(
    _server_rate(server_learning_rate),
    tau=tau,
    beta1=beta1,
    beta2=beta2,
    bias_correction=bias_correction,
    initial_v=initial_v,
  )
  return build_fed_opt(model, None, server, client_learning_rate=client_learning_rate, **options)


def build_fed_yogi(
  model,
  *,
  client_learning_rate,
  server_learning_rate,
  tau=1e-3,
  beta1=0.9,
  beta2=0.99,
  bias_correction=False,
  initial_v=None,
  **options,
):
  """FedYogi, Algorithm 2 of "Adaptive Federated Optimization" (Reddi et al., 2021).

  Args:
    model: See `build_drift_corrected`.
    client_learning_rate: eta_l, or a schedule.
    server_learning_rate: eta.
    tau: Degree of adaptivity, > 0.
    beta1: Decay of m, in [0, 1).
    beta2: Decay of v, in [0, 1).
    bias_correction: See `optimizers.build_adam` (not in the paper).
    initial_v: v_{-1}; None is the paper's tau^2.
    **options: Options of `build_fed_opt`.
  """
  server = optimizers.build_yogi(
    _server_rate(server_learning_rate),
    tau=tau,
    beta1=beta1,
    beta2=beta2,
    bias_correction=bias_correction,
    initial_v=initial_v,
  )
  return build_fed_opt(model, None, server, client_learning_rate=client_learning_rate, **options)


def _sgd_by_default(server_optimizer):
  return optimizers.build_sgdm(1.0) if server_optimizer is None else server_optimizer


def build_fed_prox(model, *, mu, server_optimizer=None, client_weighting='examples', **options):
  """FedProx with weight mu; SGD with rate 1 at the server by default.

  Args:
    model: See `build_drift_corrected`.
    mu: Weight of the proximal term; 0 is FedAvg.
    server_optimizer: Default SGD with rate 1, the published algorithm.
    client_weighting: As for `build_drift_corrected`.
    **options: Options of `build_drift_corrected`.
  """
  return build_drift_corrected(
    model,
    corrections.FedProx(mu),
    _sgd_by_default(server_optimizer),
    client_weighting=client_weighting,
    **options,
  )


def build_scaffold(model, *, num_clients, option=2, server_optimizer=None, **options):
  """SCAFFOLD. Arguments as `build_scaffold_m`; `option` is the paper's I (1) or II (2)."""
  correction = corrections.Scaffold(num_clients, option)
  return build_drift_corrected(model, correction, _sgd_by_default(server_optimizer), **options)


def build_scaffold_m(model, *, num_clients, server_optimizer=None, **options):
  """SCAFFOLD/m of AdaBest's Algorithm 1.

  Args:
    model: See `build_drift_corrected`.
    num_clients: N, the number of registered clients.
    server_optimizer: Default SGD with rate 1, the published algorithm.
    **options: Options of `build_drift_corrected`.
  """
  correction = corrections.ScaffoldM(num_clients)
  return build_drift_corrected(model, correction, _sgd_by_default(server_optimizer), **options)


def build_fed_dyn(
  model, *, num_clients, mu=0.02, mean_examples=None, server_optimizer=None, **options
):
  """FedDyn. Arguments as `build_scaffold_m` and `corrections.FedDyn`."""
  correction = corrections.FedDyn(mu, num_clients, mean_examples)
  return build_drift_corrected(model, correction, _sgd_by_default(server_optimizer), **options)


def build_ada_best(
  model,
  *,
  mu=0.02,
  beta=0.96,
  scale_mu=False,
  plateau_decay=None,
  plateau_rounds=50,
  server_optimizer=None,
  **options,
):
  """AdaBest. Arguments as `build_scaffold_m` and `corrections.AdaBest`."""
  correction = corrections.AdaBest(mu, beta, scale_mu, plateau_decay, plateau_rounds)
  return build_drift_corrected(model, correction, _sgd_by_default(server_optimizer), **options)


BUILDERS: dict[str, Callable[..., Process]] = {
  'fed_avg': build_fed_avg,
  'fed_avgm': build_fed_avgm,
  'fed_adagrad': build_fed_adagrad,
  'fed_adam': build_fed_adam,
  'fed_yogi': build_fed_yogi,
  'fed_prox': build_fed_prox,
  'scaffold': build_scaffold,
  'scaffold_m': build_scaffold_m,
  'fed_dyn': build_fed_dyn,
  'ada_best': build_ada_best,
}


def build(name: str, model: local_models.AnyModel, **options: Any) -> Process:
  """Builds an algorithm by its name on the command line.

  Args:
    name: A key of `BUILDERS`.
    model: See `build_drift_corrected`.
    **options: Options of the builder.

  Raises:
    ValueError: If there is no such algorithm.
  """
  if name not in BUILDERS:
    raise ValueError(f'no algorithm {name!r}; there are {", ".join(BUILDERS)}')
  return BUILDERS[name](model, **options)


def is_stateful(name: str) -> bool:
  """Whether the clients of an algorithm keep a state between rounds."""
  correction = corrections.REGISTRY.get(name)
  return correction is not None and correction.is_stateful
