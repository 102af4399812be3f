"""What is called of a clients' stage, in this process or in a worker: train, and merge."""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow_federated as tff

from tff_adaptive._utils import private_apis
from tff_adaptive.engine.cluster import stages, wire
from tff_adaptive.engine.graph import context, values


class Serialized(NamedTuple):
  """A clients' stage as any process can read it; see `stages.Stage`."""

  comp: bytes
  merge: bytes | None
  num_aggregates: int


def serialize(stage: stages.Stage) -> Serialized:
  """The stage for other processes."""
  merge = None if stage.merge is None else private_apis.computation_bytes(stage.merge)
  return Serialized(private_apis.computation_bytes(stage.comp), merge, stage.num_aggregates)


def deserialize(stage: Serialized, engine: context.GraphContext) -> 'StageCalls':
  """The stage in this process."""
  read = private_apis.computation_from_bytes
  merge = None if stage.merge is None else read(stage.merge)
  return StageCalls(read(stage.comp), merge, stage.num_aggregates, engine)


class StageCalls:
  """Trains some clients, and merges what two calls have summed, in a graph engine."""

  def __init__(
    self,
    comp: tff.framework.ConcreteComputation,
    merge: tff.framework.ConcreteComputation | None,
    num_aggregates: int,
    engine: context.GraphContext,
  ):
    self._comp, self._merge, self._engine = comp, merge, engine
    self.input_types = _types(comp.type_signature.parameter)
    results = _types(comp.type_signature.result)
    count = len(results) - num_aggregates
    self.result_types, self._sum_types = results[:count], results[count:]

  def train(self, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Runs the stage for some clients.

    Args:
      inputs: A value for each of the stage's inputs: of those divided among clients a list.

    Returns:
      Accumulators, as flat tensors, and the other results, encoded (see `wire`).
    """
    outcome = self._engine.invoke(self._comp, tff.structure.Struct.unnamed(*inputs))
    elements = values.struct_elements(outcome, self._comp.type_signature.result)
    count = len(self.result_types)
    results = [self._encoder(t)(v, wire.member(t)) for v, t in zip(elements, self.result_types)]
    return self._flat(elements[count:]), results

  def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
    """Merges the accumulators of two calls into one's, as flat tensors; a stage may have none."""
    if self._merge is None:
      return []
    sides = [
      tff.structure.Struct.unnamed(
        *(wire.decode(flat, wire.member(t)) for flat, t in zip(side, self._sum_types))
      )
      for side in (one, other)
    ]
    merged = self._engine.invoke(self._merge, tff.structure.Struct.unnamed(*sides))
    return self._flat(values.struct_elements(merged, self._merge.type_signature.result))

  def _flat(self, sums: list[Any]) -> list[Any]:
    # As arrays they would be copied to be merged.
    return [values.flatten(v, wire.member(t)) for v, t in zip(sums, self._sum_types)]

  def decode_sums(self, sums: list[Any]) -> Any:
    """Accumulators as the stage's `report` takes them."""
    pairs = zip(sums, self._sum_types)
    return tff.structure.Struct.unnamed(*(wire.decode(v, wire.member(t)) for v, t in pairs))

  def _encoder(self, type_spec: tff.types.Type) -> Callable[[Any, tff.types.Type], list[Any]]:
    return wire.encode_clients if wire.is_divided(type_spec) else wire.encode


def _types(struct: tff.types.StructType) -> list[tff.types.Type]:
  return [t for _, t in values.children(struct)]
