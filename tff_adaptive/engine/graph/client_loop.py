"""The loop over the clients of one device, which adds up the clients' values as they are computed.

The sums (accumulators) are loop variables. Therefore memory holds only the clients that are being
trained, and the trace does not depend on the size of the cohort.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.devices import placement
from tff_adaptive.engine.graph import (
  feeds,
  nodes as nodes_lib,
  permits as permits_lib,
  stacking,
  streams,
  values,
)


class Frame:
  """Nodes' values while tracing. If given, `outer` computes those of nodes not at the clients."""

  def __init__(self, outer: 'Frame | None' = None):
    self._outer = outer
    self._known: dict[nodes_lib.Node, Any] = {}

  def value(self, node: nodes_lib.Node) -> Any:
    """Returns the value of a node, which is computed at its first use."""
    if node in self._known:
      return self._known[node]
    if self._outer is not None and node.placement is not nodes_lib.CLIENTS:
      return self._outer.value(node)
    assert node.compute is not None  # Aggregates have none; the loop records them by `know`.
    self._known[node] = self.resolve(node.compute(self))
    return self._known[node]

  def resolve(self, value: Any) -> Any:
    """Returns a (nested) value in which every node is replaced by the node's value."""

    def resolved(leaf: Any) -> Any:
      if isinstance(leaf, nodes_lib.Node):
        return self.value(leaf)
      return leaf

    return tff.structure.map_structure(resolved, value)

  def know(self, node: nodes_lib.Node, value: Any) -> None:
    """Records the value of a node that was computed elsewhere."""
    self._known[node] = value


@dataclasses.dataclass
class Grouping:
  """Decides how many clients train together, as a group.

  Attributes:
    asked: The number that the user requested, at most the cohort's size; None for the default.
    batched: The default number if all operations are batched. Otherwise the default is 1.
    matters: Whether another number would give another graph. This is known after tracing.
  """

  asked: int | None
  batched: int = 1
  matters: bool = False

  def size(self, groups: list[nodes_lib.Grouped]) -> int:
    """Returns how many clients compute the grouped nodes together, and sets `matters`."""
    self.matters = True
    if self.asked is not None:
      return self.asked
    if all(how.group.is_batched for how in groups):
      return self.batched
    return 1


@dataclasses.dataclass
class ClientLoop:
  """The loop over the clients of a cohort, or over those that one of several devices trains.

  Attributes:
    device: The device; None lets TensorFlow choose.
    num_clients: The number of clients in the loop, int32.
    share: The positions of these clients in the cohort, int32 [num_clients]; None for all clients.
    server: The values of the server's nodes.
    parallel_clients: Number of clients that may train at once.
    grouping: Decides how many clients train together.
    permits: A handle of `permits.Permits.of_a_call`; None if the loop alone limits the clients.
    positions: The clients' places in a larger cohort, of which this one is a part; None if it is
      the whole one.
  """

  device: str | None
  num_clients: tf.Tensor
  share: tf.Tensor | None
  server: Frame
  parallel_clients: int
  grouping: Grouping
  permits: tf.Tensor | None = None
  positions: feeds.ClientParameter | None = None

  def __post_init__(self) -> None:
    self._frame = self.server
    if self.share is not None:  # Each of several devices has copies of the server's values.
      self._frame = Frame(self.server)
    self._parameters: dict[nodes_lib.Node, feeds.ClientParameter] = {}
    self._stacked: dict[nodes_lib.Node, list[tf.Tensor]] = {}

  def stacked(self, node: nodes_lib.Node) -> list[tf.Tensor]:
    """Returns the leaves of one of the `outputs` of an earlier `run`, stacked over the clients."""
    return self._stacked[node]

  def run(self, folds: list[nodes_lib.Node], outputs: list[nodes_lib.Node]) -> list[Any]:
    """Runs all clients. Returns the aggregates' accumulators; keeps `outputs` for `stacked`."""
    one_pass = _Pass(folds, outputs)
    with placement.on(self.device):
      self._bring_here(one_pass.wanted)
      start = one_pass.start(self._frame, self.num_clients, self.device is not None)
      size, grouped = self._grouped_nodes(one_pass.wanted)
      if size == 1:
        _, accumulators, arrays = self._loop_over_clients(one_pass, start)
      else:
        _, accumulators, arrays = self._loop_over_groups(one_pass, start, size, grouped)
      self._stacked.update(one_pass.stacked(arrays))
      return one_pass.packed(accumulators)

  def _bring_here(self, wanted: list[nodes_lib.Node]) -> None:
    """Copies the values that the loop reads to the device, once and outside the loop."""
    for node in nodes_lib.reachable(wanted):
      if isinstance(node.compute, feeds.ClientParameter):
        if node not in self._parameters:
          parameter = node.compute
          if self.device is not None:
            parameter = parameter.share(self.share)
          self._parameters[node] = parameter
      elif node.placement is not nodes_lib.CLIENTS:
        value = self.server.value(node)  # Outside the loop: it is the same for all clients.
        if self._frame is not self.server:
          self._frame.know(node, _copy(value))

  def _position(self, i: tf.Tensor) -> tf.Tensor:
    """Returns the position in the cohort of the loop's client `i`."""
    if self.share is not None:
      i = tf.gather(self.share, i)
    if self.positions is not None:
      i = self.positions.read(i)
    return i

  def _client_frame(self, wanted: list[nodes_lib.Node], i: tf.Tensor) -> Frame:
    client = Frame(outer=self._frame)
    for node in nodes_lib.reachable(wanted):
      if node in self._stacked:
        client.know(node, stacking.read_stacked(self._stacked[node], node.type, i))
      elif node in self._parameters:
        client.know(node, self._parameters[node].read(i))
    return client

  def _grouped_nodes(
    self, wanted: list[nodes_lib.Node]
  ) -> tuple[int, list[tuple[nodes_lib.Node, nodes_lib.Grouped]]]:
    """Returns how many clients train together in this loop, and the nodes they compute together."""
    reachable = nodes_lib.reachable(wanted)
    nodes = [(n, n.grouped) for n in reachable if n.grouped and n not in self._stacked]
    # The clients of a group would each compute again what the nodes depend on.
    deps = itertools.chain.from_iterable(node.deps for node, _ in nodes)
    if not nodes or not all(map(nodes_lib.is_free, deps)):
      return 1, []
    return self.grouping.size([how for _, how in nodes]), nodes

  def _loop_over_clients(self, one_pass: '_Pass', start: '_Variables') -> '_Variables':
    # With permits more clients may be in the loop than train: finished ones wait to be added.
    window = self.parallel_clients
    if self.permits is not None:
      window = permits_lib.window([node.type for node in one_pass.wanted], self.parallel_clients)

    def body(i: tf.Tensor, accumulators: list, arrays: list) -> '_Variables':
      with placement.on(self.device):
        # Nothing of a client is computed before it has a permit, which bounds the memory in use.
        permit: list[tf.Tensor] = []
        if self.permits is not None:
          permit = permits_lib.take(self.permits)
        with tf.control_dependencies(permit), streams.of_client(self._position(i)):
          client = self._client_frame(one_pass.wanted, i)
          results = one_pass.results(client)
        if self.permits is not None:
          permits_lib.give_back(self.permits, after=results)
        return one_pass.step(client, i, accumulators, arrays)

    return tf.while_loop(
      lambda i, *_: i < self.num_clients,
      body,
      start,
      shape_invariants=one_pass.invariants(),
      parallel_iterations=window,
    )

  def _loop_over_groups(
    self,
    one_pass: '_Pass',
    start: '_Variables',
    size: int,
    grouped: list[tuple[nodes_lib.Node, nodes_lib.Grouped]],
  ) -> '_Variables':
    """Like `_loop_over_clients`, but computes the `grouped` nodes of `size` clients together."""

    def group_body(first: tf.Tensor, accumulators: list, arrays: list) -> '_Variables':
      with placement.on(self.device):
        # A last group that is not full repeats its last client; these results are not used.
        last = self.num_clients - 1
        members = [
          self._client_frame(one_pass.wanted, tf.minimum(first + j, last)) for j in range(size)
        ]
        results = {}
        for node, how in grouped:
          together = how.group.together([_arguments(member, how) for member in members])
          results[node] = values.flatten(together, node.type)

        def member_body(i: tf.Tensor, accumulators: list, arrays: list) -> '_Variables':
          with placement.on(self.device), streams.of_client(self._position(i)):
            client = self._client_frame(one_pass.wanted, i)
            for node, stacked in results.items():
              client.know(node, stacking.read_stacked(stacked, node.type, i - first))
            return one_pass.step(client, i, accumulators, arrays)

        return tf.while_loop(
          lambda i, *_: i < tf.minimum(first + size, self.num_clients),
          member_body,
          (first, accumulators, arrays),
          shape_invariants=one_pass.invariants(),
          parallel_iterations=1,  # The costly nodes are computed; what is left are sums, in order.
        )

    return tf.while_loop(
      lambda i, *_: i < self.num_clients,
      group_body,
      start,
      shape_invariants=one_pass.invariants(),
      parallel_iterations=self.parallel_clients,
    )


# The index of the next client, the flat accumulators, and the arrays of the outputs.
_Variables = tuple[tf.Tensor, list[tf.Tensor], list[tf.TensorArray]]


class _Pass:
  """The aggregates (`folds`) and outputs of one loop over the clients, as flat loop variables."""

  def __init__(self, folds: list[nodes_lib.Node], outputs: list[nodes_lib.Node]):
    self._folds = [node.aggregate for node in folds if node.aggregate]
    self._outputs = outputs
    self._output_types = _leaf_types([node.type for node in outputs])
    self.wanted = [fold.value for fold in self._folds] + outputs

  def start(self, server: Frame, num_clients: tf.Tensor, on_device: bool) -> _Variables:
    """Returns the loop variables before the first client."""
    flat: list[tf.Tensor] = []
    for fold in self._folds:
      zero = server.resolve(fold.zero)
      if on_device:
        zero = _copy(zero)
      leaves = values.flatten(zero, fold.accumulator_type)
      flat.extend(map(values.variant_or_tensor, leaves))
    first = tf.constant(0)
    arrays = [stacking.output_array(t, num_clients) for t in self._output_types]
    return first, flat, arrays

  def invariants(self) -> Any:
    """Returns the loop variables' shape invariants."""
    # As the types say: the first value of an accumulator may have a more definite shape.
    accumulators = _leaf_types([fold.accumulator_type for fold in self._folds])
    return (
      tf.TensorShape([]),
      [tf.TensorShape(getattr(t, 'shape', [])) for t in accumulators],  # Datasets are scalars.
      [tf.TensorShape(None)] * len(self._output_types),
    )

  def results(self, client: Frame) -> list[Any]:
    """Returns the leaves of all wanted values of a client; computes them if necessary."""
    return _leaves(client, self.wanted)

  def step(
    self, client: Frame, i: tf.Tensor, accumulators: list[tf.Tensor], arrays: list[tf.TensorArray]
  ) -> _Variables:
    """Returns the loop variables after client `i`."""
    folded: list[tf.Tensor] = []
    # Clients are added one after the other, in their order, so that rounding is the same each time.
    for fold, accumulator in zip(self._folds, self.packed(accumulators)):
      pair = tff.structure.Struct([(None, accumulator), (None, client.value(fold.value))])
      total = client.resolve(fold.accumulate(pair))
      folded.extend(map(values.variant_or_tensor, values.flatten(total, fold.accumulator_type)))
    flat = _leaves(client, self._outputs)
    written = [
      array.write(i, stacking.box(leaf, leaf_type))
      for array, leaf, leaf_type in zip(arrays, flat, self._output_types)
    ]
    return i + 1, folded, written

  def packed(self, accumulators: Sequence[tf.Tensor]) -> list[Any]:
    """Packs flat accumulators into one value for each aggregate."""
    leaves = iter([values.sequence_or_tensor(tensor) for tensor in accumulators])
    return [values.pack(leaves, fold.accumulator_type) for fold in self._folds]

  def stacked(self, arrays: list[tf.TensorArray]) -> dict[nodes_lib.Node, list[tf.Tensor]]:
    """Returns the leaves of each output, stacked over the clients."""
    leaves = iter([array.stack() for array in arrays])
    return {
      node: list(itertools.islice(leaves, len(values.leaf_types(node.type))))
      for node in self._outputs
    }


def _leaf_types(types: list[tff.types.Type]) -> list[tff.types.Type]:
  return list(itertools.chain.from_iterable(map(values.leaf_types, types)))


def _leaves(client: Frame, nodes: list[nodes_lib.Node]) -> list[Any]:
  """Returns the leaves of some nodes' values of a client; computes them if necessary."""
  leaves: list[Any] = []
  for node in nodes:
    leaves.extend(values.flatten(client.value(node), node.type))
  return leaves


def _arguments(member: Frame, grouped: nodes_lib.Grouped) -> tuple[Any, ...]:
  """Returns a client's arguments for `Group.together`, as Python containers."""
  value = member.resolve(grouped.argument)
  if grouped.group.num_arguments == 1:
    return (values.to_containers(value, grouped.parameter),)
  types = [t for _, t in values.children(grouped.parameter)]
  return tuple(values.to_containers(v, t) for v, t in zip(value, types))


def _copy(value: Any) -> Any:
  """Copies the tensors of a value that GPUs can hold to the current device."""

  def copied(leaf: Any) -> Any:
    if tf.is_tensor(leaf) and not placement.stays_on_host(leaf):
      return tf.identity(leaf)
    return leaf

  return tff.structure.map_structure(copied, value)
