"""Builds processes and optimizers from the registry, and counts an algorithm's costs."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import corrections, registry, schedules
from tff_adaptive._utils import option_values, validation
from tff_adaptive.algorithms import builders, components
from tff_adaptive.asynchrony.settings import Buffered
from tff_adaptive.client import (
  client_optimizer as client_optimizer_lib,
  local_training,
  model_adapters,
)
from tff_adaptive.corrections import messages, optimizer_slots, probe
from tff_adaptive.registry import entries

_NO_VALUES: Mapping[str, Any] = MappingProxyType({})
_REGULARIZATION = ('sam_rho', 'clip_norm', 'weight_decay')  # The arguments of `regularization`.


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
  more_parts: Sequence[corrections.Correction] | None = None,
  asynchrony: Buffered | None = None,
) -> builders.Process:
  """Builds the process of an algorithm of the registry, of a user's file, or of a chain by name.

  This is the way to build any algorithm. For a correction of your own that is no algorithm by name
  there is `build_drift_corrected`, and for ten algorithms there is a typed builder, such as
  `build_fed_yogi`.

      process = tff_adaptive.build_process(
        'scaffold', model, client_learning_rate=0.1,
        clients=tff_adaptive.corrections.RegisteredClients(num_clients=100, mean_examples=50.0))

  Args:
    algorithm: An entry of the registry, its name, 'FILE.py:NAME', or a chain of these, such as
      'scaffold+sam' (see `registry.algorithm`).
    model, client_learning_rate, aggregator, asynchrony: See `build_drift_corrected`.
    values: The correction's hyperparameters by name. Those left out have their defaults.
    clients: Facts about all registered clients, for corrections that need them, such as SCAFFOLD.
    training: How clients train. The client optimizer and its state come from the algorithm's entry
      if they are None here (see `registry.Algorithm.settings`).
    server_optimizer: Any TFF optimizer, such as one of `build_server_optimizer`. None means SGD
      with rate 1, except for algorithms named after another optimizer (FedAdam), which need one.
    client_weighting: See `build_drift_corrected`. None means the algorithm's default.
    more_parts: Parts that follow the algorithm's own in the chain. None means those that its name
      stands for, such as FedSAM's `corrections.Sam(0.05)` and DiLoCo's `corrections.Clip(1.0)`.

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
      f'{entry.title} has a server optimizer, whose rate has no default: give build_process the'
      ' argument'
      f" server_optimizer=algorithms.build_server_optimizer('{entry.server_optimizer}', 0.01), say."
    )
  if client_weighting is None:
    client_weighting = entry.client_weighting
  return builders.build_drift_corrected(
    model,
    _chain(entry, values, clients, more_parts),
    server_optimizer,
    client_learning_rate=client_learning_rate,
    training=_as_named(entry, training),
    aggregator=aggregator,
    client_weighting=client_weighting,
    asynchrony=asynchrony,
  )


def counts(
  algorithm: registry.Algorithm | corrections.Correction | str,
  model: model_adapters.AnyModel,
  *,
  values: Mapping[str, Any] = _NO_VALUES,
  clients: corrections.RegisteredClients | None = None,
  training: local_training.ClientTraining | None = None,
  more_parts: Sequence[corrections.Correction] | None = None,
  aggregated_bytes: Callable[[Sequence[int], int], int] | None = None,
) -> registry.Counts:
  """Counts a client's communication and computation in a round, for `costs.CostModel`.

  The counts are found by tracing the correction's methods. Published costs in the registry replace
  the traced bytes. An averaged client optimizer state counts as received and as sent.

  Args:
    algorithm: A correction, or an entry of the registry, its name, or 'FILE.py:NAME'.
    model, training: See `build_drift_corrected`.
    values, clients, more_parts: See `build_process`.
    aggregated_bytes: Returns the bytes that the update has in the aggregator that is used, from the
      sizes of its tensors and the bytes of an element; by default the tensors' own.

  Raises:
    ValueError, TypeError: See `build_process`.
  """
  published: registry.Counts | None = None
  if isinstance(algorithm, corrections.Correction):
    correction = corrections.chain(algorithm, *(more_parts or ()))
  else:
    entry = registry.algorithm(algorithm)
    values = entry.values(values)
    correction = _chain(entry, values, clients, more_parts)
    if entry.counts:
      published = entry.counts(values)
    training = _as_named(entry, training)
  if training is None:
    training = local_training.ClientTraining()
  local_model = model_adapters.wrap(model)
  named_weights = local_model.named_weights()
  training = training.resolved(named_weights)
  correction = correction.resolved(named_weights)
  with tf.Graph().as_default():  # The graph is not used.
    weights = tuple(map(tf.convert_to_tensor, local_model.initial_weights().trainable))
    traced = probe.trace(correction, weights)
    whole = probe.size(weights)
    averaged = 0
    state = training.optimizer_state or 'reset'
    if optimizer_slots.averages(state, correction.optimizer_slots):
      assert training.optimizer is not None
      slots = client_optimizer_lib.first_slots(training.optimizer, state, correction, weights)
      averaged = probe.size(slots.averaged)
  if published is None or _sends_less(correction):
    down = (traced.bytes_of_weights + traced.bytes_down) / whole
    up = (traced.bytes_update + traced.bytes_up) / whole
    published = registry.Counts(down, up)
  # Where the server sends changes: what a client receives of one round's, and at most.
  down_whole = None
  anew: float = 0
  if traced.bytes_of_changes is not None:
    down_whole = published.down + averaged / whole
    anew = (traced.bytes_exchanged + averaged) / whole
    of_changes = (traced.bytes_of_changes + traced.bytes_exchanged) / whole
    published = dataclasses.replace(published, down=of_changes)
  saved = 0
  if aggregated_bytes is not None:
    # `unsent` is () if all weights are sent.
    is_sent = [not is_unsent for is_unsent in correction.unsent] or [True] * len(weights)
    sizes = [w.shape.num_elements() for w, sent in zip(weights, is_sent) if sent]
    width = weights[0].dtype.size
    # What the aggregator saves of the update's bytes; uploads do not pass it.
    saved = width * sum(sizes) - aggregated_bytes(sizes, width)
  return registry.Counts(
    down=published.down + averaged / whole,
    up=published.up + (averaged - saved) / whole,
    gradients=traced.gradients,
    full_gradients=traced.full_gradients,
    uncounted=traced.uncounted,
    down_whole=down_whole,
    down_anew=anew,
  )


def _sends_less(correction: corrections.Correction) -> bool:
  """Returns whether a part lets a client send or receive less than the whole model."""
  if messages.is_compressed(correction) or correction.compresses_down or any(correction.unsent):
    return True
  return any(part.message_bits(1) is not None for part in correction.parts)


def _chain(
  entry: registry.Algorithm,
  values: Mapping[str, Any],
  clients: corrections.RegisteredClients | None,
  more_parts: Sequence[corrections.Correction] | None,
) -> corrections.Correction:
  """Returns an algorithm's correction with the parts that follow it; see `build_process`."""
  first_part = entries.resolve(entry.correction).configure(entry.values(values), clients)
  if more_parts is None:
    more_parts = regularization(**{k: v for k, v in entry.settings.items() if k in _REGULARIZATION})
  return corrections.chain(first_part, *more_parts)


def regularization(
  sam_rho: float = 0.0, clip_norm: float | None = None, weight_decay: float = 0.0
) -> list[corrections.Correction]:
  """Returns the parts for these options of local training, in the order in which they act.

  Args:
    sam_rho: The radius of sharpness-aware minimization; 0 for none.
    clip_norm: The largest 2-norm of a corrected gradient; None for no clipping.
    weight_decay: The factor of the weights that are added to the clipped gradient; 0 for none.
  """
  # SAM makes the gradient, clipping limits the corrected one, and the decay is added last so that
  # clipping does not weaken it.
  parts: list[corrections.Correction] = []
  if sam_rho:
    parts.append(corrections.Sam(sam_rho))
  if clip_norm is not None:
    parts.append(corrections.Clip(clip_norm))
  if weight_decay:
    parts.append(corrections.WeightDecay(weight_decay))
  return parts


def _as_named(
  entry: registry.Algorithm, training: local_training.ClientTraining | None
) -> local_training.ClientTraining | None:
  """Returns `training` with the settings of the algorithm's entry in place of None."""
  settings = entry.settings
  training = training or local_training.ClientTraining()
  changed: dict[str, Any] = {}
  if training.optimizer is None and 'client_optimizer' in settings:
    pairs = (pair.partition('=') for pair in settings.get('client_optimizer_option', ()))
    values = {name: option_values.value(text) for name, _, text in pairs}
    changed['optimizer'] = build_client_optimizer(settings['client_optimizer'], values)
  if training.optimizer_state is None:
    changed['optimizer_state'] = settings.get('client_optimizer_state')
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
  # A value of None would hide the function's own default.
  options = {name: value for name, value in entry.values(values).items() if value is not None}
  rate = components.check_rate('server_learning_rate', learning_rate)
  schedule: Any = None
  # The package's own builders take schedules; a user's function need not.
  if callable(rate) and entry.source is not None:
    schedule = rate
  if schedule is not None:
    # Only a first value, because the schedule sets the rate before each step.
    rate = getattr(schedule, 'base_rate', 1.0)
  optimizer = entries.resolve(entry.build)(rate, **options)
  hint = 'return tff_adaptive.optimizers.build_sgdm(1.0), say'
  kind = tff.learning.optimizers.Optimizer
  validation.instance(f'the result of {entry.name}', optimizer, kind, hint)
  if schedule is None:
    return optimizer
  return tff.learning.optimizers.schedule_learning_rate(optimizer, schedules.in_graph(schedule))


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
