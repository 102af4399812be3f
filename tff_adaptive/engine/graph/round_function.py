"""One TensorFlow function for a whole TFF computation: server, clients and aggregation."""

import dataclasses
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import gathered
from tff_adaptive.devices import placement as placement_lib
from tff_adaptive.engine.graph import (
  client_loop,
  feeds,
  interpreter as interpreter_lib,
  nodes as nodes_lib,
  stacking,
  values,
)


@dataclasses.dataclass(frozen=True)
class RoundFunction:
  """A computation as a function of flat tensors, which `tf.function` traces.

  Attributes:
    block: The computation in call-dominant form: a Lambda, or another block if it has no parameter.
    layout: How the argument becomes flat tensors.
    parallel_clients: Number of clients that may train at once on a device.
    grouping: Decides how many clients train together.
    placement: The devices of the server and of the clients.
    has_permits: Whether the last argument is a handle of permits.
    default_num_clients: The number of clients if no argument is client-placed; None refuses this.
  """

  block: Any
  layout: feeds.Layout
  parallel_clients: int
  grouping: client_loop.Grouping
  placement: placement_lib.Placement
  has_permits: bool = False
  default_num_clients: int | None = None

  def __call__(self, *flat: tf.Tensor) -> list[tf.Tensor]:
    """Returns the flat results; client-placed leaves are stacked over the cohort."""
    permits_handle = None
    if self.has_permits:
      *flat, permits_handle = flat  # type: ignore[assignment]
    with placement_lib.on(self.placement.server):
      interpreter = interpreter_lib.Interpreter()
      num_clients = None
      positions = None
      result = interpreter.evaluate(self.block, {})
      if self.layout.parameter_type is not None:
        parameter, num_clients = self.layout.parameter_nodes(flat)
        positions = self._positions(parameter)
        result = result(parameter)
      elif callable(result):  # A Lambda without a parameter.
        result = result(None)
      if num_clients is None and self.default_num_clients is not None:
        num_clients = tf.constant(self.default_num_clients)
      frame = client_loop.Frame()
      loops = self._loops(frame, num_clients, permits_handle, positions)
      return _Round(frame, loops, num_clients).run(result)

  def _positions(self, parameter: Any) -> feeds.ClientParameter | None:
    """Returns the clients' places in a larger cohort, if the parameter has them."""
    if not isinstance(self.layout.parameter_type, tff.types.StructType):
      return None
    names = [name for name, _ in values.children(self.layout.parameter_type)]
    if feeds.POSITIONS not in names:
      return None
    positions: feeds.ClientParameter = parameter[names.index(feeds.POSITIONS)].compute
    return positions

  def _loops(
    self,
    frame: client_loop.Frame,
    num_clients: tf.Tensor | None,
    permits_handle: tf.Tensor | None,
    positions: feeds.ClientParameter | None,
  ) -> list[client_loop.ClientLoop] | None:
    """Returns a loop over the clients for each device, or None if there are no clients."""
    if num_clients is None:
      return None
    names = self.placement.clients

    def loop(name: str | None, count: tf.Tensor, share: tf.Tensor | None) -> client_loop.ClientLoop:
      return client_loop.ClientLoop(
        name, count, share, frame, self.parallel_clients, self.grouping, permits_handle, positions
      )

    if len(names) == 1:
      return [loop(names[0], num_clients, None)]
    # The loops count on the host, whatever device computes their clients.
    with tf.device(placement_lib.HOST):
      shares = [stacking.share(d, len(names), num_clients) for d in range(len(names))]
      counts = [tf.size(share) for share in shares]
    return [loop(*of_device) for of_device in zip(names, counts, shares)]


@dataclasses.dataclass(frozen=True)
class _Round:
  """Runs the loops over the clients, once for each level; see `nodes`."""

  frame: client_loop.Frame
  loops: list[client_loop.ClientLoop] | None
  num_clients: tf.Tensor | None

  def run(self, result: Any) -> list[tf.Tensor]:
    """Returns the flat tensors of the result; client-placed leaves are stacked."""
    roots = nodes_lib.nodes_in(result)
    nodes = nodes_lib.reachable(roots)
    client_outputs = [n for n in roots if n.placement is nodes_lib.CLIENTS]
    written = set(client_outputs) | _crossing_levels(nodes)
    # What a level aggregates is known before the clients of the next level begin.
    for level in range(max((n.level for n in nodes), default=0) + 1):
      folds = [n for n in nodes if n.aggregate and n.level == level + 1]
      outputs = [n for n in nodes if n in written and n.level == level]
      if folds or outputs:
        self._run_clients(folds, outputs)
    flat = []
    for leaf in tff.structure.flatten(result):
      if isinstance(leaf, nodes_lib.Node) and leaf.placement is nodes_lib.CLIENTS:
        flat.extend(self._all_clients(leaf))
      elif isinstance(leaf, nodes_lib.Node):
        flat.extend(values.flatten(self.frame.value(leaf), leaf.type))
      else:
        flat.append(leaf)
    return [values.variant_or_tensor(v) for v in flat]

  def _run_clients(self, folds: list[nodes_lib.Node], outputs: list[nodes_lib.Node]) -> None:
    if self.loops is None:
      raise NotImplementedError(
        'this computation works at the clients but takes no argument placed there, so their '
        'number is not known: say it, as set_graph_context(default_num_clients=...)'
      )
    # No data flows between the loops of several devices, so they run at the same time.
    by_device = [loop.run(folds, outputs) for loop in self.loops]
    for node, totals in zip(folds, zip(*by_device)):
      assert node.aggregate is not None
      total, *others = totals
      # Always in the order of the devices: the order of sums is part of the result.
      for other in others:
        pair = tff.structure.Struct([(None, total), (None, other)])
        total = self.frame.resolve(node.aggregate.merge(pair))
      if others and gathered.has_rows_of_clients(node.aggregate.accumulator_type):
        total = self._in_order(total, len(totals))
      self.frame.know(node, self.frame.resolve(node.aggregate.report(total)))

  def _in_order(self, rows: Any, num_devices: int) -> Any:
    """Returns rows of clients, merged in the order of the devices, in the order of the cohort."""
    places = stacking.places(num_devices, self.num_clients)
    return tff.structure.map_structure(lambda leaf: tf.gather(leaf, places), rows)

  def _all_clients(self, node: nodes_lib.Node) -> list[tf.Tensor]:
    """Returns the leaves of a client-placed result, stacked over the cohort."""
    parts = [loop.stacked(node) for loop in self.loops or []]
    if len(parts) == 1:
      return parts[0]
    # They are joined on the host, because one of several devices might not have room for all.
    with tf.device(placement_lib.HOST):
      return [stacking.interleave(leaves, self.num_clients) for leaves in zip(*parts)]


def _crossing_levels(nodes: list[nodes_lib.Node]) -> set[nodes_lib.Node]:
  """Returns client nodes that a later level needs and that would be costly to compute again."""
  crossing: set[nodes_lib.Node] = set()

  def visit(node: nodes_lib.Node, level: int) -> None:
    for dep in node.deps:
      if dep.placement is not nodes_lib.CLIENTS or dep.level >= level:
        continue
      if dep.free:  # It is computed again, from what it depends on.
        visit(dep, level)
      else:
        crossing.add(dep)

  for node in nodes:
    if node.placement is nodes_lib.CLIENTS:
      visit(node, node.level)
    elif node.aggregate:
      visit(node, node.level - 1)
  return crossing
