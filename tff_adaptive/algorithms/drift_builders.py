"""Drift-corrected algorithms by name: FedProx, SCAFFOLD, SCAFFOLD/m, FedDyn, AdaBest.

Each is a client correction with any server optimizer; SGD with rate 1, the default, is the
published algorithm. Defaults are those of the registry.
"""

import tensorflow_federated as tff

from tff_adaptive import corrections, optimizers, registry
from tff_adaptive.algorithms import builders, components, stateful_process
from tff_adaptive.client import batching as batching_lib, model_adapters

_FED_PROX, _SCAFFOLD, _FED_DYN, _ADA_BEST = map(
  registry.algorithm, ('fed_prox', 'scaffold', 'fed_dyn', 'ada_best')
)


def build_fed_prox(
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  mu: float = _FED_PROX.default('mu'),
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_schedule: components.Rate | None = None,
  client_weighting: components.Weighting = 'examples',
  aggregator: components.Aggregator | None = None,
  batching: batching_lib.Batching | None = None,
  weight_decay: float = 0.0,
  clip_norm: float | None = None,
  seed: int = 0,
  xla: bool = False,
) -> tff.learning.templates.LearningProcess:
  """FedProx (Li et al., 2020): a proximal term keeps the clients near the model they received.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    mu: Weight of the proximal term, >= 0; 0 is FedAvg.
    server_optimizer: The server optimizer; None for SGD with rate 1, the published algorithm.
    client_optimizer: The client optimizer, whose own rate `client_learning_rate` replaces; None
      for SGD.
    server_schedule: Schedule that replaces the server optimizer's rate.
    client_weighting: 'examples' (n_i), 'uniform' or a function of a client's metrics.
    aggregator: A TFF aggregation factory; None for the mean.
    batching: How whole-array clients are batched; None: datasets of batches, TFF's convention.
    weight_decay: Coefficient of the weights in the local gradient, >= 0.
    clip_norm: Largest 2-norm of the corrected local gradient; None for no clipping.
    seed: Seed of shuffling and dropout, >= 0.
    xla: Whether XLA compiles the local step.

  Returns:
    The learning process.

  Raises:
    ValueError, TypeError: As `build_drift_corrected` and the correction.
  """
  return builders.build_drift_corrected(
    model,
    corrections.FedProx(mu),
    optimizers.build_sgdm(1.0) if server_optimizer is None else server_optimizer,
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


def build_scaffold(
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  num_clients: int,
  scaffold_option: int = _SCAFFOLD.default('scaffold_option'),
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_schedule: components.Rate | None = None,
  client_weighting: components.Weighting = 'uniform',
  aggregator: components.Aggregator | None = None,
  batching: batching_lib.Batching | None = None,
  weight_decay: float = 0.0,
  clip_norm: float | None = None,
  seed: int = 0,
  xla: bool = False,
) -> stateful_process.StatefulProcess:
  """SCAFFOLD (Karimireddy et al., 2020): control variates at clients and server, both exchanged.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    num_clients: N, the number of registered clients: no cohort may be larger, which is not checked.
    scaffold_option: The paper's option I (1) or II (2); see `corrections.Scaffold`.
    server_optimizer: The server optimizer; None for SGD with rate 1, the published algorithm.
    client_optimizer: The client optimizer, whose own rate `client_learning_rate` replaces; None
      for SGD.
    server_schedule: Schedule that replaces the server optimizer's rate.
    client_weighting: 'examples' (n_i), 'uniform' or a function of a client's metrics.
    aggregator: A TFF aggregation factory; None for the mean.
    batching: How whole-array clients are batched; None: datasets of batches, TFF's convention.
    weight_decay: Coefficient of the weights in the local gradient, >= 0.
    clip_norm: Largest 2-norm of the corrected local gradient; None for no clipping.
    seed: Seed of shuffling and dropout, >= 0.
    xla: Whether XLA compiles the local step.

  Returns:
    The stateful process.

  Raises:
    ValueError, TypeError: As `build_drift_corrected` and the correction.
  """
  return builders.build_drift_corrected(
    model,
    corrections.Scaffold(num_clients, scaffold_option),
    optimizers.build_sgdm(1.0) if server_optimizer is None else server_optimizer,
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


def build_scaffold_m(
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  num_clients: int,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_schedule: components.Rate | None = None,
  client_weighting: components.Weighting = 'uniform',
  aggregator: components.Aggregator | None = None,
  batching: batching_lib.Batching | None = None,
  weight_decay: float = 0.0,
  clip_norm: float | None = None,
  seed: int = 0,
  xla: bool = False,
) -> stateful_process.StatefulProcess:
  """SCAFFOLD/m (Varno et al., 2022): SCAFFOLD whose clients send half as much.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    num_clients: N, the number of registered clients: no cohort may be larger, which is not checked.
    server_optimizer: The server optimizer; None for SGD with rate 1, the published algorithm.
    client_optimizer: The client optimizer, whose own rate `client_learning_rate` replaces; None
      for SGD.
    server_schedule: Schedule that replaces the server optimizer's rate.
    client_weighting: 'examples' (n_i), 'uniform' or a function of a client's metrics.
    aggregator: A TFF aggregation factory; None for the mean.
    batching: How whole-array clients are batched; None: datasets of batches, TFF's convention.
    weight_decay: Coefficient of the weights in the local gradient, >= 0.
    clip_norm: Largest 2-norm of the corrected local gradient; None for no clipping.
    seed: Seed of shuffling and dropout, >= 0.
    xla: Whether XLA compiles the local step.

  Returns:
    The stateful process.

  Raises:
    ValueError, TypeError: As `build_drift_corrected` and the correction.
  """
  return builders.build_drift_corrected(
    model,
    corrections.ScaffoldM(num_clients),
    optimizers.build_sgdm(1.0) if server_optimizer is None else server_optimizer,
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


def build_fed_dyn(
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  num_clients: int,
  mu: float = _FED_DYN.default('mu'),
  mean_examples: float | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_schedule: components.Rate | None = None,
  client_weighting: components.Weighting = 'uniform',
  aggregator: components.Aggregator | None = None,
  batching: batching_lib.Batching | None = None,
  weight_decay: float = 0.0,
  clip_norm: float | None = None,
  seed: int = 0,
  xla: bool = False,
) -> stateful_process.StatefulProcess:
  """FedDyn (Acar et al., 2021): dynamic regularisation of the client losses.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    num_clients: N, the number of registered clients: no cohort may be larger, which is not checked.
    mu: Weight of the client's correction, >= 0.
    mean_examples: The mean number of examples of a client, which scales mu by client size:
      mu_i = mu mean_examples / n_i; None: mu_i = mu.
    server_optimizer: The server optimizer; None for SGD with rate 1, the published algorithm.
    client_optimizer: The client optimizer, whose own rate `client_learning_rate` replaces; None
      for SGD.
    server_schedule: Schedule that replaces the server optimizer's rate.
    client_weighting: 'examples' (n_i), 'uniform' or a function of a client's metrics.
    aggregator: A TFF aggregation factory; None for the mean.
    batching: How whole-array clients are batched; None: datasets of batches, TFF's convention.
    weight_decay: Coefficient of the weights in the local gradient, >= 0.
    clip_norm: Largest 2-norm of the corrected local gradient; None for no clipping.
    seed: Seed of shuffling and dropout, >= 0.
    xla: Whether XLA compiles the local step.

  Returns:
    The stateful process.

  Raises:
    ValueError, TypeError: As `build_drift_corrected` and the correction.
  """
  return builders.build_drift_corrected(
    model,
    corrections.FedDyn(mu, num_clients, mean_examples),
    optimizers.build_sgdm(1.0) if server_optimizer is None else server_optimizer,
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


def build_ada_best(
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  mu: float = _ADA_BEST.default('mu'),
  beta: float = _ADA_BEST.default('beta'),
  scale_mu: bool = _ADA_BEST.default('scale_mu'),
  beta_decay: float = _ADA_BEST.default('beta_decay'),
  plateau_rounds: int = 50,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_schedule: components.Rate | None = None,
  client_weighting: components.Weighting = 'uniform',
  aggregator: components.Aggregator | None = None,
  batching: batching_lib.Batching | None = None,
  weight_decay: float = 0.0,
  clip_norm: float | None = None,
  seed: int = 0,
  xla: bool = False,
) -> stateful_process.StatefulProcess:
  """AdaBest (Varno et al., 2022): drift estimates that fade while a client is away.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    mu: Weight of the client's correction, >= 0.
    beta: Weight of the past in the server's estimate, in [0, 1]. With a server momentum (sgdm,
      adam, yogi) take 0.2: the default diverges.
    scale_mu: Whether mu_i = mu n-bar / n_i, for unbalanced clients.
    beta_decay: Factor in (0, 1] for beta whenever ||h|| stops falling; 1 keeps beta.
    plateau_rounds: Rounds without a lower ||h|| before beta shrinks, >= 1.
    server_optimizer: The server optimizer; None for SGD with rate 1, the published algorithm.
    client_optimizer: The client optimizer, whose own rate `client_learning_rate` replaces; None
      for SGD.
    server_schedule: Schedule that replaces the server optimizer's rate.
    client_weighting: 'examples' (n_i), 'uniform' or a function of a client's metrics.
    aggregator: A TFF aggregation factory; None for the mean.
    batching: How whole-array clients are batched; None: datasets of batches, TFF's convention.
    weight_decay: Coefficient of the weights in the local gradient, >= 0.
    clip_norm: Largest 2-norm of the corrected local gradient; None for no clipping.
    seed: Seed of shuffling and dropout, >= 0.
    xla: Whether XLA compiles the local step.

  Returns:
    The stateful process.

  Raises:
    ValueError, TypeError: As `build_drift_corrected` and the correction.
  """
  return builders.build_drift_corrected(
    model,
    corrections.AdaBest(mu, beta, scale_mu, beta_decay, plateau_rounds),
    optimizers.build_sgdm(1.0) if server_optimizer is None else server_optimizer,
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
