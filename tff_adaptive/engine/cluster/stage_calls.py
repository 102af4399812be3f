"""What is called of a clients' stage, in this process or in a worker: train, and merge."""

from typing import Any

import tensorflow_federated as tff

from tff_adaptive._utils import private_apis
from tff_adaptive.engine.cluster import wire
from tff_adaptive.engine.graph import context, values

Octets = tuple[bytes, bytes | None, int]


class StageCalls:
  """Trains some clients, and merges what two calls have summed, in a graph engine.

  Of a `stages.Stage` it takes `comp`, `merge` and `num_aggregates`.
  """

  def __init__(self, comp: Any, merge: Any, num_aggregates: int, engine: context.GraphContext):
    self._comp, self._merge, self._engine = comp, merge, engine
    self.num_aggregates = num_aggregates
    self.input_types = _types(comp.type_signature.parameter)
    results = _types(comp.type_signature.result)
    count = len(results) - num_aggregates
    self.result_types, self._sum_types = results[:count], results[count:]

  def octets(self) -> Octets:
    """The stage as any process can read it."""
    merge = self._merge and private_apis.computation_bytes(self._merge)
    return private_apis.computation_bytes(self._comp), merge, self.num_aggregates

  @classmethod
  def read(cls, octets: Octets, engine: context.GraphContext) -> 'StageCalls':
    """The stage in this process."""
    comp, merge, num_aggregates = octets
    read = private_apis.computation_from_bytes
    return cls(read(comp), merge and read(merge), num_aggregates, engine)

  def train(self, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Runs the stage for some clients: accumulators as flat tensors, other results encoded."""
    outcome = self._engine.invoke(self._comp, tff.structure.Struct.unnamed(*inputs))
    elements = values.struct_elements(outcome, self._comp.type_signature.result)
    count = len(self.result_types)
    results = [
      (wire.encode_clients if wire.is_divided(t) else wire.encode)(v, wire.member(t))
      for v, t in zip(elements, self.result_types)
    ]
    return self._flat(elements[count:]), results

  def merge(self, one: list[Any], other: list[Any]) -> list[Any]:
    """Merges the accumulators of two calls into one's, as flat tensors; a stage may have none."""
    if self._merge is None:
      return []
    sides = tff.structure.Struct.unnamed(self.decode_sums(one), self.decode_sums(other))
    merged = self._engine.invoke(self._merge, sides)
    return self._flat(values.struct_elements(merged, self._merge.type_signature.result))

  def _flat(self, sums: list[Any]) -> list[Any]:
    # As arrays they would be copied to be merged.
    return [values.flatten(v, wire.member(t)) for v, t in zip(sums, self._sum_types)]

  def decode_sums(self, sums: list[Any]) -> Any:
    """Accumulators as the stage's `report` takes them."""
    pairs = zip(sums, self._sum_types)
    return tff.structure.Struct.unnamed(*(wire.decode(v, wire.member(t)) for v, t in pairs))


def _types(struct: tff.types.StructType) -> list[tff.types.Type]:
  return [t for _, t in values.children(struct)]
