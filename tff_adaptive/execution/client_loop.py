"""The loop over the clients of one device: what each computes, folded as it comes.

Accumulators are loop variables, so memory holds as many clients as are in work, not the cohort,
and the trace does not depend on their number.
"""

from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.execution import devices, feeds, stacking, values
from tff_adaptive.execution import nodes as nodes_lib


class Frame:
  """Values of nodes while tracing: the round's, or one client's inside the loop."""

  def __init__(self, outer=None):
    self._outer = outer
    self._known: dict[nodes_lib.Node, Any] = {}

  def value(self, node: nodes_lib.Node) -> Any:
    """Value of a node, computed at its first use."""
    if node in self._known:
      return self._known[node]
    if self._outer is not None and node.placement is not nodes_lib.CLIENTS:
      return self._outer.value(node)
    self._known[node] = self.resolve(node.compute(self))
    return self._known[node]

  def resolve(self, value: Any) -> Any:
    """Replaces every node inside a value by its value."""
    return nodes_lib.map_nodes(self.value, value)

  def know(self, node: nodes_lib.Node, value: Any) -> None:
    """Records the value of a node that was computed elsewhere."""
    self._known[node] = value


class Grouping:
  """How many clients train together.

  Attributes:
    asked: As many as was asked for, or None.
    batched: Unasked, where the computation is made of batched operations.
    matters: After tracing: whether another `batched` would give another graph.
  """

  def __init__(self, asked: Optional[int], batched: int = 1):
    self.asked, self.batched = asked, batched
    self.matters = False

  def size(self, nodes: list[nodes_lib.Node]) -> int:
    """How many clients compute these nodes together."""
    if self.asked is not None:
      return self.asked
    self.matters = True
    return self.batched if all(node.grouped.group.is_batched for node in nodes) else 1


class ClientLoop:
  """The clients of the cohort, or some of them, on one device."""

  def __init__(
    self,
    device: Optional[str],
    num_clients: tf.Tensor,
    share: Optional[tf.Tensor],
    server: Frame,
    parallel_clients: int,
    grouping: Grouping,
  ):
    """Creates the loop.

    Args:
      device: Where its clients work; None: no device is named.
      num_clients: How many they are.
      share: Which clients, by their number in the cohort; None: all.
      server: The round's frame.
      parallel_clients: How many clients, or groups of clients, may be in work at once.
      grouping: How many clients train together.
    """
    self._device, self._num_clients, self._share = device, num_clients, share
    self._server, self._parallel_clients = server, parallel_clients
    self._frame = server if share is None else Frame(server)
    self._grouping = grouping
    self._parameters: dict[nodes_lib.Node, feeds.ClientParameter] = {}
    self._stacked: dict[nodes_lib.Node, list[tf.Tensor]] = {}

  def stacked(self, node: nodes_lib.Node) -> list[tf.Tensor]:
    """The leaves of a node, an output of a `run` before, stacked over the clients."""
    return self._stacked[node]

  def run(self, folds: list[nodes_lib.Node], outputs: list[nodes_lib.Node]) -> list[Any]:
    """Runs all clients once.

    Args:
      folds: Aggregates to fold over the clients.
      outputs: Client nodes to keep.

    Returns:
      The accumulators of the folds.
    """
    with devices.on(self._device):
      return self._run(folds, outputs)

  def _run(self, folds, outputs):
    wanted = [n.aggregate.value for n in folds] + outputs
    self._bring_here(wanted)
    zeros = [self._frame.resolve(n.aggregate.zero) for n in folds]
    if self._device is not None:
      zeros = [_copy(zero) for zero in zeros]
    accumulator_types = [n.aggregate.accumulator_type for n in folds]
    flat_zeros = [values.flatten(z, t) for z, t in zip(zeros, accumulator_types)]
    leaf_types = [t for spec in accumulator_types for t in values.leaf_types(spec)]
    output_types = [t for n in outputs for t in values.leaf_types(n.type)]
    arrays = [stacking.output_array(t, self._num_clients) for t in output_types]

    def body(i, accumulators, arrays, client=None):
      with devices.on(self._device):
        client = client or self._client_frame(wanted, i)
        folded, accumulators = [], list(accumulators)
        for node in folds:
          spec = node.aggregate.accumulator_type
          count = len(values.leaf_types(spec))
          state = values.pack([accumulators.pop(0) for _ in range(count)], spec)
          pair = tff.structure.Struct([(None, state), (None, client.value(node.aggregate.value))])
          folded.extend(values.flatten(client.resolve(node.aggregate.accumulate(pair)), spec))
        written = []
        flat = [v for n in outputs for v in values.flatten(client.value(n), n.type)]
        for array, leaf, leaf_type in zip(arrays, flat, output_types):
          written.append(array.write(i, stacking.box(leaf, leaf_type)))
        return i + 1, folded, written

    start = (tf.constant(0), [v for flat in flat_zeros for v in flat], arrays)
    invariants = (
      tf.TensorShape([]),
      [values.tensor_shape(t) for t in leaf_types],
      [tf.TensorShape(None)] * len(arrays),
    )
    size, grouped = self._grouped_nodes(wanted)
    if size == 1:
      _, accumulators, arrays = tf.while_loop(
        lambda i, *_: i < self._num_clients,
        body,
        start,
        shape_invariants=invariants,
        parallel_iterations=self._parallel_clients,
      )
    else:
      _, accumulators, arrays = self._loop_over_groups(
        size, grouped, wanted, body, start, invariants
      )
    stacked = [array.stack() for array in arrays]
    for node in outputs:
      count = len(values.leaf_types(node.type))
      self._stacked[node], stacked = stacked[:count], stacked[count:]
    accumulators, packed = list(accumulators), []
    for spec in accumulator_types:
      count = len(values.leaf_types(spec))
      packed.append(values.pack(accumulators[:count], spec))
      accumulators = accumulators[count:]
    return packed

  def _bring_here(self, wanted):
    """Copies to the device, once and outside the loop, what the loop reads."""
    for node in nodes_lib.reachable(wanted):
      if isinstance(node.compute, feeds.ClientParameter):
        if node not in self._parameters:
          is_named = self._device is not None
          self._parameters[node] = node.compute.share(self._share) if is_named else node.compute
      elif node.placement is not nodes_lib.CLIENTS:
        value = self._server.value(node)  # Outside the loop: it is the same for all clients.
        if self._frame is not self._server:
          self._frame.know(node, _copy(value))

  def _client_frame(self, wanted, i):
    client = Frame(outer=self._frame)
    for node in nodes_lib.reachable(wanted):
      if node in self._stacked:
        client.know(node, stacking.read_stacked(self._stacked[node], node.type, i))
      elif node in self._parameters:
        client.know(node, self._parameters[node].read(i))
    return client

  def _grouped_nodes(self, wanted):
    """How many clients to take together in this loop, and the nodes that they compute so."""
    nodes = [n for n in nodes_lib.reachable(wanted) if n.grouped and n not in self._stacked]
    if not nodes or not all(nodes_lib.is_free(d) for n in nodes for d in n.deps):
      return 1, []
    return self._grouping.size(nodes), nodes

  def _loop_over_groups(self, size, grouped, wanted, body, start, invariants):
    """As the loop over clients; the grouped nodes are computed for `size` clients at once."""

    def group_body(first, accumulators, arrays):
      with devices.on(self._device):
        # A last group that is not full repeats its last client; what comes of it is not used.
        last = self._num_clients - 1
        members = [self._client_frame(wanted, tf.minimum(first + j, last)) for j in range(size)]
        results = {}
        for node in grouped:
          arguments = [_arguments(member, node.grouped) for member in members]
          together = node.grouped.group.together(arguments)
          results[node] = values.flatten(together, node.type)

        def member_body(i, accumulators, arrays):
          with devices.on(self._device):
            client = self._client_frame(wanted, i)
            for node, stacked in results.items():
              client.know(node, stacking.read_stacked(stacked, node.type, i - first))
          return body(i, accumulators, arrays, client)

        return tf.while_loop(
          lambda i, *_: i < tf.minimum(first + size, self._num_clients),
          member_body,
          (first, accumulators, arrays),
          shape_invariants=invariants,
          parallel_iterations=1,
        )

    return tf.while_loop(
      lambda i, *_: i < self._num_clients,
      group_body,
      start,
      shape_invariants=invariants,
      parallel_iterations=self._parallel_clients,
    )


def _arguments(member, grouped):
  """A client's arguments of a grouped computation, as Python containers."""
  value = member.resolve(grouped.argument)
  if grouped.group.num_arguments == 1:
    return (values.to_containers(value, grouped.parameter),)
  types = [t for _, t in values.children(grouped.parameter)]
  return tuple(values.to_containers(v, t) for v, t in zip(value, types))


def _copy(value):
  """The tensors of a value, copied to the present device."""
  if isinstance(value, tff.structure.Struct):
    return tff.structure.Struct(
      [(name, _copy(v)) for name, v in tff.structure.iter_elements(value)]
    )
  if not tf.is_tensor(value) or devices.stays_on_host(value):
    return value
  return tf.identity(value)
