"""Builds processes and optimizers from the registry, and counts an algorithm's costs."""

import dataclasses
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import corrections, registry, schedules
from tff_adaptive._utils import option_values, validation
from tff_adaptive.algorithms import builders, components
from tff_adaptive.client import (
  client_optimizer as client_optimizer_lib,
  local_training,
  model_adapters,
)
from tff_adaptive.corrections import probe
from tff_adaptive.registry import entries

_NO_VALUES: Mapping[str, Any] = MappingProxyType({})


def build_process(
  algorithm: registry.Algorithm | str,
  model: model_adapters.AnyModel,
  *,
  client_learning_rate: components.Rate,
  values: Mapping[str, Any] = _NO_VALUES,
  clients: corrections.RegisteredClients | None = None,
  server_optimizer: tff.learning.optimizers.Optimizer | None = None,
  training: local_training.ClientTraining | None = None,
  aggregator: components.Aggregator | None = None,
  client_weighting: components.Weighting | None = None,
) -> builders.Process:
  """Builds the process of an algorithm of the registry, or of a user's file.

  Args:
    algorithm: An entry of the registry, its name, or 'FILE.py:NAME' (see `registry.algorithm`).
    model, client_learning_rate, aggregator: See `build_drift_corrected`.
    values: The correction's hyperparameters by name. Those left out have their defaults.
    clients: Facts about all registered clients, for corrections that need them, such as SCAFFOLD.
    training: How clients train. The client optimizer, its state, `sam_rho` and `clip_norm` come
      from the algorithm's entry if they are not given here (see `registry.Algorithm.settings`). A
      default value that is given counts: `ClientTraining(optimizer=build_sgdm())` is SGD.
    server_optimizer: Any TFF optimizer, such as one of `build_server_optimizer`. None means SGD
      with rate 1, except for algorithms named after another optimizer (FedAdam), which need one.
    client_weighting: See `build_drift_corrected`. None means the algorithm's default.

  Returns:
    A `LearningProcess` or a `StatefulProcess`, like `build_drift_corrected`.

  Raises:
    ValueError: If there is no such algorithm or hyperparameter, a value is out of its range, or
      `server_optimizer` or `clients` is missing.
    TypeError: If an argument has the wrong type.
  """
  entry = registry.algorithm(algorithm)
  if server_optimizer is None and entry.server_optimizer not in (None, 'sgd'):
    raise ValueError(
      f'{entry.title} has a server optimizer, whose rate has no default: give'
      f" server_optimizer=algorithms.build_server_optimizer('{entry.server_optimizer}', 0.01), say."
    )
  correction = entries.resolve(entry.correction).configure(entry.values(values), clients)
  return builders.build_drift_corrected(
    model,
    correction,
    server_optimizer,
    client_learning_rate=client_learning_rate,
    training=_as_named(entry, training),
    aggregator=aggregator,
    client_weighting=entry.client_weighting if client_weighting is None else client_weighting,
  )


def counts(
  algorithm: registry.Algorithm | corrections.Correction | str,
  model: model_adapters.AnyModel,
  *,
  values: Mapping[str, Any] = _NO_VALUES,
  clients: corrections.RegisteredClients | None = None,
  training: local_training.ClientTraining | None = None,
) -> registry.Counts:
  """Counts a client's communication and computation in a round, for `costs.CostModel`.

  The counts are found by tracing the correction's methods. Published costs in the registry replace
  the traced bytes. An averaged client optimizer state counts as received and as sent.

  Args:
    algorithm: A correction, or an entry of the registry, its name, or 'FILE.py:NAME'.
    model, training: See `build_drift_corrected`.
    values, clients: See `build_process`.

  Raises:
    ValueError, TypeError: See `build_process`.
  """
  published: registry.Counts | None = None
  if isinstance(algorithm, corrections.Correction):
    correction = algorithm
  else:
    entry = registry.algorithm(algorithm)
    values = entry.values(values)
    correction = entries.resolve(entry.correction).configure(values, clients)
    published = entry.counts(values) if entry.counts else None
    training = _as_named(entry, training)
  training = local_training.ClientTraining() if training is None else training
  with tf.Graph().as_default():  # The graph is not used.
    weights = tuple(
      map(tf.convert_to_tensor, model_adapters.wrap(model).initial_weights().trainable)
    )
    traced, whole, averaged = probe.trace(correction, weights), probe.size(weights), 0
    if training.optimizer_state == 'average':
      averaged = probe.size(client_optimizer_lib.initial_slots(training.optimizer, weights))
  if published is None:
    published = registry.Counts(1 + traced.bytes_down / whole, 1 + traced.bytes_up / whole)
  return registry.Counts(
    down=published.down + averaged / whole,
    up=published.up + averaged / whole,
    gradients=(1 + traced.gradients) * (2 if training.sam_rho else 1),
    full_gradients=traced.full_gradients,
  )


def _as_named(
  entry: registry.Algorithm, training: local_training.ClientTraining | None
) -> local_training.ClientTraining | None:
  """Returns `training` with the settings of the algorithm's entry for all that was not given."""
  if not entry.settings:
    return training
  training = training or local_training.ClientTraining()
  of_name = dict(entry.settings)
  own: dict[str, Any] = {
    'optimizer_state': of_name.get('client_optimizer_state', 'reset'),
    'sam_rho': of_name.get('sam_rho', 0.0),
    'clip_norm': of_name.get('clip_norm'),
  }
  given = training.given or frozenset()
  changed = {name: value for name, value in own.items() if name not in given}
  if 'client_optimizer' in of_name and 'optimizer' not in given:
    pairs = (pair.partition('=') for pair in of_name.get('client_optimizer_option', ()))
    values = {name: option_values.value(text) for name, _, text in pairs}
    changed['optimizer'] = build_client_optimizer(of_name['client_optimizer'], values)
  return dataclasses.replace(training, **changed)


def build_server_optimizer(
  server_optimizer: registry.ServerOptimizer | str,
  learning_rate: components.Rate,
  values: Mapping[str, Any] = _NO_VALUES,
) -> tff.learning.optimizers.Optimizer:
  """Builds a server optimizer of the registry, or of a user's own file.

  Args:
    server_optimizer: An entry, its name, or 'FILE.py:NAME' (see `registry.server_optimizer`).
    learning_rate: A number, or a schedule: a function of the round, counted from 0. A user's
      function is always called with a number; a schedule is applied to the optimizer that it makes.
    values: Hyperparameters by name. Those left out have their defaults.

  Raises:
    ValueError: If there is no such optimizer or hyperparameter, or a value is out of its range.
    TypeError: If an argument has the wrong type, or a user's function returns no TFF optimizer.
  """
  entry = registry.server_optimizer(server_optimizer)
  options = {name: value for name, value in entry.values(values).items() if value is not None}
  rate = components.check_rate('server_learning_rate', learning_rate)
  schedule = rate if callable(rate) and entry.source is not None else None
  if schedule is not None:
    rate = getattr(schedule, 'base_rate', 1.0)
  made = entries.resolve(entry.build)(rate, **options)
  hint = 'return tff_adaptive.optimizers.build_sgdm(1.0), say'
  kind = tff.learning.optimizers.Optimizer
  validation.instance(f'the result of {entry.name}', made, kind, hint)
  if schedule is None:
    return made
  return tff.learning.optimizers.schedule_learning_rate(made, schedules.in_graph(schedule))


def build_client_optimizer(
  client_optimizer: registry.ServerOptimizer | str, values: Mapping[str, Any] = _NO_VALUES
) -> tff.learning.optimizers.Optimizer:
  """Builds a client optimizer of the registry, or of a user's own file, for `ClientTraining`.

  Args:
    client_optimizer: An entry, its name, or 'FILE.py:NAME' (see `registry.client_optimizer`).
    values: Hyperparameters by name, without the rate, which a process sets in each round.

  Raises:
    ValueError: If there is no such optimizer or hyperparameter, or a value is out of its range.
    TypeError: See `build_server_optimizer`.
  """
  return build_server_optimizer(registry.client_optimizer(client_optimizer), 1.0, values)
