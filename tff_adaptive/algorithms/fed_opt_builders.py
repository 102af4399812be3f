"""FedOpt by name: FedAvg, FedAvgM, FedAdagrad, FedAdam, FedYogi.

Algorithm 1 of "Adaptive Federated Optimization" (Reddi et al., ICLR 2021) with one server optimizer
each. Defaults are those of the registry.
"""

import tensorflow_federated as tff

from tff_adaptive import optimizers, registry
from tff_adaptive.algorithms import builders, components
from tff_adaptive.client import batching as batching_lib, model_adapters

_SGDM, _ADAGRAD, _ADAM, _YOGI = map(registry.server_optimizer, ('sgdm', 'adagrad', 'adam', 'yogi'))


def build_fed_avg(
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  server_learning_rate: components.Rate = 1.0,
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
  """FedAvg (McMahan et al., 2017): the server takes the mean of the client models.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    server_learning_rate: eta of the server's SGD; 1 is FedAvg, or a schedule.
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
    ValueError, TypeError: As `build_drift_corrected` and `optimizers.build_sgdm`.
  """
  server = optimizers.build_sgdm(
    components.check_rate('server_learning_rate', server_learning_rate)
  )
  return builders.build_fed_opt(
    model,
    client_optimizer,
    server,
    client_learning_rate=client_learning_rate,
    server_schedule=server_schedule,
    client_weighting=client_weighting,
    aggregator=aggregator,
    batching=batching,
    weight_decay=weight_decay,
    clip_norm=clip_norm,
    seed=seed,
    xla=xla,
  )


def build_fed_avgm(
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  server_learning_rate: components.Rate = 1.0,
  momentum: float = _SGDM.default('momentum'),
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
  """FedAvgM (Hsu et al., 2019): FedAvg with momentum at the server.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    server_learning_rate: eta of the server's SGD with momentum, or a schedule.
    momentum: Decay of the server's m, in [0, 1).
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
    ValueError, TypeError: As `build_drift_corrected` and `optimizers.build_sgdm`.
  """
  server = optimizers.build_sgdm(
    components.check_rate('server_learning_rate', server_learning_rate), momentum=momentum
  )
  return builders.build_fed_opt(
    model,
    client_optimizer,
    server,
    client_learning_rate=client_learning_rate,
    server_schedule=server_schedule,
    client_weighting=client_weighting,
    aggregator=aggregator,
    batching=batching,
    weight_decay=weight_decay,
    clip_norm=clip_norm,
    seed=seed,
    xla=xla,
  )


def build_fed_adagrad(
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  server_learning_rate: components.Rate,
  tau: float = _ADAGRAD.default('tau'),
  beta1: float = _ADAGRAD.default('beta1'),
  initial_v: float | None = _ADAGRAD.default('initial_v'),
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
  """FedAdagrad: Algorithm 2 of "Adaptive Federated Optimization" with Adagrad at the server.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    server_learning_rate: eta, or a schedule.
    tau: Degree of adaptivity, > 0: the smaller, the more the steps adapt.
    beta1: Decay of m, in [0, 1).
    initial_v: v_{-1}, >= 0; None is the paper's tau^2.
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
    ValueError, TypeError: As `build_drift_corrected` and `optimizers.build_adagrad`.
  """
  server = optimizers.build_adagrad(
    components.check_rate('server_learning_rate', server_learning_rate),
    tau=tau,
    beta1=beta1,
    initial_v=initial_v,
  )
  return builders.build_fed_opt(
    model,
    client_optimizer,
    server,
    client_learning_rate=client_learning_rate,
    server_schedule=server_schedule,
    client_weighting=client_weighting,
    aggregator=aggregator,
    batching=batching,
    weight_decay=weight_decay,
    clip_norm=clip_norm,
    seed=seed,
    xla=xla,
  )


def build_fed_adam(
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  server_learning_rate: components.Rate,
  tau: float = _ADAM.default('tau'),
  beta1: float = _ADAM.default('beta1'),
  beta2: float = _ADAM.default('beta2'),
  bias_correction: bool = _ADAM.default('bias_correction'),
  initial_v: float | None = _ADAM.default('initial_v'),
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
  """FedAdam: Algorithm 2 of "Adaptive Federated Optimization" with Adam at the server.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    server_learning_rate: eta, or a schedule.
    tau: Degree of adaptivity, > 0: the smaller, the more the steps adapt.
    beta1: Decay of m, in [0, 1).
    beta2: Decay of v, in [0, 1).
    bias_correction: Whether the rate is corrected for the bias of m and v, as in the paper's
      published code; see `optimizers.build_adam`.
    initial_v: v_{-1}, >= 0; None is the paper's tau^2.
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
    ValueError, TypeError: As `build_drift_corrected` and `optimizers.build_adam`.
  """
  server = optimizers.build_adam(
    components.check_rate('server_learning_rate', server_learning_rate),
    tau=tau,
    beta1=beta1,
    beta2=beta2,
    bias_correction=bias_correction,
    initial_v=initial_v,
  )
  return builders.build_fed_opt(
    model,
    client_optimizer,
    server,
    client_learning_rate=client_learning_rate,
    server_schedule=server_schedule,
    client_weighting=client_weighting,
    aggregator=aggregator,
    batching=batching,
    weight_decay=weight_decay,
    clip_norm=clip_norm,
    seed=seed,
    xla=xla,
  )


def build_fed_yogi(
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  server_learning_rate: components.Rate,
  tau: float = _YOGI.default('tau'),
  beta1: float = _YOGI.default('beta1'),
  beta2: float = _YOGI.default('beta2'),
  bias_correction: bool = _YOGI.default('bias_correction'),
  initial_v: float | None = _YOGI.default('initial_v'),
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
  """FedYogi: Algorithm 2 of "Adaptive Federated Optimization" with Yogi at the server.

  Args:
    model: A `tff_adaptive.models.Model`, a `tff.learning.models.FunctionalModel`, or a function
      that returns a new `tff.learning.models.VariableModel`.
    client_learning_rate: eta_l, or a schedule: a function of the round, counted from 0.
    server_learning_rate: eta, or a schedule.
    tau: Degree of adaptivity, > 0: the smaller, the more the steps adapt.
    beta1: Decay of m, in [0, 1).
    beta2: Decay of v, in [0, 1).
    bias_correction: Whether the rate is corrected for the bias of m and v, as in the paper's
      published code; see `optimizers.build_adam`.
    initial_v: v_{-1}, >= 0; None is the paper's tau^2.
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
    ValueError, TypeError: As `build_drift_corrected` and `optimizers.build_yogi`.
  """
  server = optimizers.build_yogi(
    components.check_rate('server_learning_rate', server_learning_rate),
    tau=tau,
    beta1=beta1,
    beta2=beta2,
    bias_correction=bias_correction,
    initial_v=initial_v,
  )
  return builders.build_fed_opt(
    model,
    client_optimizer,
    server,
    client_learning_rate=client_learning_rate,
    server_schedule=server_schedule,
    client_weighting=client_weighting,
    aggregator=aggregator,
    batching=batching,
    weight_decay=weight_decay,
    clip_norm=clip_norm,
    seed=seed,
    xla=xla,
  )
