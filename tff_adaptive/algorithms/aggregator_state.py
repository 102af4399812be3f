"""Keeps the state of an aggregator unchanged in a round without a usable update."""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import noise_states


def kept_without_updates(
  process: tff.templates.AggregationProcess,
) -> tff.templates.AggregationProcess:
  """Returns the process with a state that does not change if the clients' weights add up to 0.

  The norms of adaptive clipping and zeroing follow TFF's estimate of a quantile, which divides by
  the number of clients in the round. A round without clients would make this estimate NaN in all
  later rounds, and the zero update of a client with weight 0 would move it. The state of an
  aggregation with noise always advances, because a round without updates publishes noise too. If
  the next round drew the same noise, the difference of the two results would contain none. A
  process that has no state is returned as it is.
  """
  state_type = process.initialize.type_signature.result
  if not tff.structure.flatten(state_type.member):
    return process
  _, value_type, weight_type = process.next.type_signature.parameter

  @tff.tensorflow.computation(weight_type.member, state_type.member, state_type.member)
  def kept(total: Any, before: Any, after: Any) -> Any:
    return _kept(state_type.member, tf.equal(total, 0), before, after)

  @tff.federated_computation(state_type, value_type, weight_type)
  def next_fn(state: Any, value: Any, weight: Any) -> tff.templates.MeasuredProcessOutput:
    output = process.next(state, value, weight)
    after = tff.federated_map(kept, (tff.federated_sum(weight), state, output.state))
    return tff.templates.MeasuredProcessOutput(after, output.result, output.measurements)

  return tff.templates.AggregationProcess(process.initialize, next_fn)


def _kept(kind: tff.Type, is_empty: tf.Tensor, before: Any, after: Any) -> Any:
  """Returns the state `before` an empty round, else `after`; with noise it is always `after`."""
  if not isinstance(kind, tff.types.StructType):
    return tf.cond(is_empty, lambda: before, lambda: after)
  names = [name for name, _ in tff.structure.iter_elements(kind)]
  kinds = [element for _, element in tff.structure.iter_elements(kind)]
  if noise_states.is_noisy(names):
    return after
  pairs = [tff.structure.from_container(state) for state in (before, after)]
  elements = [_kept(k, is_empty, *old_and_new) for k, *old_and_new in zip(kinds, *pairs)]
  container = getattr(kind, 'python_container', None) or tff.structure.Struct
  # Not `issubclass`: the elements of a named tuple are arguments of their own.
  if container in (tuple, list):
    return container(elements)
  if hasattr(container, '_fields'):
    return container(*elements)
  if container is tff.structure.Struct or issubclass(container, dict):
    return container(zip(names, elements))
  return container(**dict(zip(names, elements)))  # A class of attrs.
