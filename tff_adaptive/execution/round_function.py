"""One TensorFlow function for a whole TFF computation: server, clients and aggregation."""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.execution import feeds, program, values


class _Frame:
  """Values of nodes while tracing: the round's, or one client's inside the loop."""

  def __init__(self, outer=None):
    self._outer = outer
    self._known: dict[program.Node, Any] = {}

  def value(self, node: program.Node) -> Any:
    """Value of a node, computed at its first use."""
    if node in self._known:
      return self._known[node]
    if self._outer is not None and node.placement is not program.CLIENTS:
      return self._outer.value(node)
    self._known[node] = self.resolve(node.compute(self))
    return self._known[node]

  def resolve(self, value: Any) -> Any:
    """Replaces every node inside a value by its value."""
    return program.map_nodes(self.value, value)

  def know(self, node: program.Node, value: Any) -> None:
    """Records the value of a node that was computed elsewhere."""
    self._known[node] = value


def trace(block: Any, parameter_type: Any, layout: feeds.Layout, parallel_clients: int) -> Any:
  """Builds the function of flat feeds for a computation.

  Args:
    block: A building block in call-dominant form; for a computation with a parameter, a function.
    parameter_type: Type of the parameter, or None.
    layout: How the arguments are fed.
    parallel_clients: How many clients may be in work at once.

  Returns:
    `(flat feeds) -> flat results`, for `tf.function`; the results are in the order of
    `result_leaves`.
  """

  def run(*flat):
    interpreter = program.Interpreter()
    num_clients = None
    if parameter_type is None:
      result = interpreter.evaluate(block, {})
      result = result(None) if callable(result) else result
    else:
      parameter, num_clients = layout.parameter_nodes(flat)
      result = interpreter.evaluate(block, {})(parameter)
    round_ = _Round(_Frame(), num_clients, parallel_clients)
    return round_.run(result)

  return run


class _Round:
  """Runs the loops over the clients, level by level."""

  def __init__(self, frame, num_clients, parallel_clients):
    self._frame = frame
    self._num_clients = num_clients
    self._parallel_clients = parallel_clients
    self._stacked: dict[program.Node, list[tf.Tensor]] = {}

  def run(self, result) -> list[tf.Tensor]:
    """Flat tensors of the result: server leaves as they are, client leaves stacked."""
    roots = program.nodes_in(result)
    nodes = _reachable(roots)
    client_outputs = [n for n in roots if n.placement is program.CLIENTS]
    keep = set(client_outputs) | _crossing_levels(nodes)
    for level in range(max((n.level for n in nodes), default=0) + 1):
      folds = [n for n in nodes if n.aggregate and n.level == level + 1]
      outputs = [n for n in nodes if n in keep and n.level == level]
      if folds or outputs:
        self._loop_over_clients(folds, outputs)
    flat = []
    for leaf in _leaves(result):
      if isinstance(leaf, program.Node) and leaf.placement is program.CLIENTS:
        flat.extend(self._stacked[leaf])
      elif isinstance(leaf, program.Node):
        flat.extend(values.flatten(self._frame.value(leaf), leaf.type))
      else:
        flat.append(leaf)
    return [v.variant() if isinstance(v, values.Sequence) else v for v in flat]

  def _loop_over_clients(self, folds, outputs):
    wanted = [n.aggregate.value for n in folds] + outputs
    for node in _reachable(wanted):
      if node.placement is not program.CLIENTS:
        self._frame.value(node)  # Outside the loop: it is the same for all clients.
    if self._num_clients is None:
      raise NotImplementedError(
        'this computation works at the clients but takes no argument placed there, so their '
        'number is not known'
      )
    zeros = [self._frame.resolve(n.aggregate.zero) for n in folds]
    accumulator_types = [n.aggregate.accumulator_type for n in folds]
    flat_zeros = [values.flatten(z, t) for z, t in zip(zeros, accumulator_types)]
    leaf_types = [t for spec in accumulator_types for t in values.leaf_types(spec)]
    output_types = [t for n in outputs for t in values.leaf_types(n.type)]
    arrays = [feeds.output_array(t, self._num_clients) for t in output_types]

    def body(i, accumulators, arrays):
      client = _Frame(outer=self._frame)
      for node in _reachable(wanted):
        if node in self._stacked:
          client.know(node, feeds.read_stacked(self._stacked[node], node.type, i))
        elif isinstance(node.compute, feeds.ClientParameter):
          client.know(node, node.compute.read(i))
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
        written.append(array.write(i, feeds.box(leaf, leaf_type)))
      return i + 1, folded, written

    _, accumulators, arrays = tf.while_loop(
      lambda i, *_: i < self._num_clients,
      body,
      (tf.constant(0), [v for flat in flat_zeros for v in flat], arrays),
      shape_invariants=(
        tf.TensorShape([]),
        [values.tensor_shape(t) for t in leaf_types],
        [tf.TensorShape(None)] * len(arrays),
      ),
      parallel_iterations=self._parallel_clients,
    )
    accumulators = list(accumulators)
    for node in folds:
      spec = node.aggregate.accumulator_type
      total = values.pack([accumulators.pop(0) for _ in range(len(values.leaf_types(spec)))], spec)
      self._frame.know(node, self._frame.resolve(node.aggregate.report(total)))
    stacked = [array.stack() for array in arrays]
    for node in outputs:
      count = len(values.leaf_types(node.type))
      self._stacked[node], stacked = stacked[:count], stacked[count:]


def _leaves(value):
  if isinstance(value, tff.structure.Struct):
    return [leaf for _, v in tff.structure.iter_elements(value) for leaf in _leaves(v)]
  return [value]


def _reachable(roots):
  """All nodes that the roots depend on, dependencies first, without repetition."""
  seen: dict[program.Node, None] = {}
  stack = [(node, False) for node in reversed(roots)]
  while stack:
    node, done = stack.pop()
    if done:
      seen[node] = None
    elif node not in seen:
      stack.append((node, True))
      stack.extend((d, False) for d in node.deps if d not in seen)
  return list(seen)


def _crossing_levels(nodes):
  """Client nodes that a later level needs and that are not free to compute again."""
  keep = set()

  def visit(node, level):
    for dep in node.deps:
      if dep.placement is not program.CLIENTS or dep.level >= level:
        continue
      if dep.free:
        visit(dep, level)
      else:
        keep.add(dep)

  for node in nodes:
    if node.placement is program.CLIENTS:
      visit(node, node.level)
    elif node.aggregate:
      visit(node, node.level - 1)
  return keep
