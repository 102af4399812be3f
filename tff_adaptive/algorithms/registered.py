"""From an entry of the registry to a process: the one path for every algorithm."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import tensorflow_federated as tff

from tff_adaptive import algorithms, corrections, registry
from tff_adaptive.algorithms import builders, components
from tff_adaptive.client import batching as batching_lib, model_adapters
from tff_adaptive.registry import entries

_NO_VALUES: Mapping[str, Any] = MappingProxyType({})


def build(name: str, model: model_adapters.AnyModel, **options: Any) -> builders.Process:
  """Builds an algorithm by its name: `build('fed_avg', ...)` is `build_fed_avg(...)`.

  Args:
    name: A name in `registry.ALGORITHMS`.
    model: See `build_drift_corrected`.
    **options: The arguments of that builder.

  Returns:
    What the builder returns.

  Raises:
    ValueError: If there is no such algorithm, or as the builder.
    TypeError: As the builder.
  """
  builder = getattr(algorithms, f'build_{registry.algorithm(name).name}', None)
  if builder is None:
    raise ValueError(f'{name} has no builder of its own: give build_process({name!r}, ...).')
  return builder(model, **options)


def build_process(
  algorithm: registry.Algorithm | str,
  model: model_adapters.AnyModel,
  *,
  server_optimizer: tff.learning.optimizers.Optimizer,
  client_learning_rate: components.Rate,
  values: Mapping[str, Any] = _NO_VALUES,
  clients: corrections.RegisteredClients | None = None,
  client_optimizer: tff.learning.optimizers.Optimizer | None = None,
  server_schedule: components.Rate | None = None,
  client_weighting: components.Weighting | None = None,
  aggregator: components.Aggregator | None = None,
  batching: batching_lib.Batching | None = None,
  weight_decay: float = 0.0,
  clip_norm: float | None = None,
  seed: int = 0,
  xla: bool = False,
) -> builders.Process:
  """Any algorithm of the registry, or of a user's own file, with any server optimizer.

  Args:
    algorithm: An entry, or what `registry.algorithm` takes.
    model: See `build_drift_corrected`.
    server_optimizer: See `build_drift_corrected` and `build_server_optimizer`.
    client_learning_rate: eta_l, or a schedule.
    values: Hyperparameter of the correction -> value; defaults for what is not there.
    clients: The registered clients, for a correction that needs to know them.
    client_optimizer: Default SGD; `client_learning_rate` replaces its own rate.
    server_schedule: Schedule that replaces the server optimizer's rate.
    client_weighting: See `build_drift_corrected`; None: the algorithm's own.
    aggregator: See `build_drift_corrected`.
    batching: How whole-array clients are batched; None: datasets of batches.
    weight_decay: Coefficient of the weights in the local gradient.
    clip_norm: Largest 2-norm of the corrected local gradient.
    seed: Seed of shuffling and dropout.
    xla: Whether XLA compiles the local step.

  Returns:
    A `LearningProcess` or a `StatefulProcess`, as `build_drift_corrected`.

  Raises:
    ValueError: If there is no such algorithm or hyperparameter, or a value is out of its range.
    TypeError: If an argument is of another kind.
  """
  entry = registry.algorithm(algorithm) if isinstance(algorithm, str) else algorithm
  correction = entries.resolve(entry.correction).configure(entry.values(values), clients)
  if correction.is_stateful != entry.is_stateful:
    raise ValueError(
      f'the entry {entry.name} has is_stateful={entry.is_stateful}, its correction has not: give '
      'both the same.'
    )
  return builders.build_drift_corrected(
    model,
    correction,
    server_optimizer,
    client_learning_rate=client_learning_rate,
    client_optimizer=client_optimizer,
    server_schedule=server_schedule,
    client_weighting=entry.client_weighting if client_weighting is None else client_weighting,
    aggregator=aggregator,
    batching=batching,
    weight_decay=weight_decay,
    clip_norm=clip_norm,
    seed=seed,
    xla=xla,
  )


def build_server_optimizer(
  server_optimizer: registry.ServerOptimizer | str,
  learning_rate: components.Rate,
  values: Mapping[str, Any] = _NO_VALUES,
) -> tff.learning.optimizers.Optimizer:
  """A server optimizer of the registry, or of a user's own file.

  Args:
    server_optimizer: An entry, or what `registry.server_optimizer` takes.
    learning_rate: eta, or a function of the round.
    values: Hyperparameter -> value; defaults for what is not there.

  Raises:
    ValueError: If there is no such optimizer or hyperparameter, or a value is out of its range.
    TypeError: If an argument is of another kind, or a user's function returns no TFF optimizer.
  """
  entry = server_optimizer
  if isinstance(entry, str):
    entry = registry.server_optimizer(entry)
  options = {name: value for name, value in entry.values(values).items() if value is not None}
  made = entries.resolve(entry.build)(
    components.check_rate('server_learning_rate', learning_rate), **options
  )
  components.check_optimizer(
    f'the result of {entry.name}', made, 'return tff_adaptive.optimizers.build_sgdm(1.0), say'
  )
  return made
