"""One TensorFlow function for a whole TFF computation: server, clients and aggregation."""

from typing import Any, Optional

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


class RoundFunction:
  """The function of flat feeds for a computation, to be traced by `tf.function`.

  Attributes:
    may_group: After tracing: whether another `clients_per_step` would give another graph.
  """

  def __init__(
    self,
    block: Any,
    parameter_type: Any,
    layout: feeds.Layout,
    parallel_clients: int,
    clients_per_step: Optional[int] = None,
  ):
    """Creates the function.

    Args:
      block: A building block in call-dominant form: a Lambda, or anything else for a computation
        without parameter.
      parameter_type: Type of the parameter, or None.
      layout: How the arguments are fed.
      parallel_clients: How many clients, or groups of clients, may be in work at once.
      clients_per_step: How many clients do together what they can; None: as the model prefers.
    """
    self._block, self._parameter_type, self._layout = block, parameter_type, layout
    self._parallel_clients, self._clients_per_step = parallel_clients, clients_per_step
    self.may_group = False

  def __call__(self, *flat: tf.Tensor) -> list[tf.Tensor]:
    """Flat results of flat feeds: client-placed leaves stacked over the cohort."""
    interpreter = program.Interpreter()
    num_clients = None
    if self._parameter_type is None:
      result = interpreter.evaluate(self._block, {})
      result = result(None) if callable(result) else result
    else:
      parameter, num_clients = self._layout.parameter_nodes(flat)
      function = interpreter.evaluate(self._block, {})
      result = function(parameter)
    round_ = _Round(_Frame(), num_clients, self._parallel_clients, self._clients_per_step)
    flat_result = round_.run(result)
    self.may_group = round_.may_group
    return flat_result


class _Round:
  """Runs the loops over the clients, level by level."""

  def __init__(self, frame, num_clients, parallel_clients, clients_per_step):
    self._frame = frame
    self._num_clients = num_clients
    self._parallel_clients = parallel_clients
    self._clients_per_step = clients_per_step
    self.may_group = False
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

    def client_frame(i):
      client = _Frame(outer=self._frame)
      for node in _reachable(wanted):
        if node in self._stacked:
          client.know(node, feeds.read_stacked(self._stacked[node], node.type, i))
        elif isinstance(node.compute, feeds.ClientParameter):
          client.know(node, node.compute.read(i))
      return client

    def body(i, accumulators, arrays, client=None):
      client = client or client_frame(i)
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
        size, grouped, client_frame, body, start, invariants
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

  def _grouped_nodes(self, wanted):
    """How many clients to take together in this loop, and the nodes that they compute so."""
    nodes = [n for n in _reachable(wanted) if n.grouped and n not in self._stacked]
    if not nodes or not all(_is_free(d) for n in nodes for d in n.deps):
      return 1, []
    preferred = max(n.grouped.group.preferred for n in nodes)
    self.may_group |= preferred > 1
    return self._clients_per_step or preferred, nodes

  def _loop_over_groups(self, size, grouped, client_frame, body, start, invariants):
    """As the loop over clients; the grouped nodes are computed for `size` clients at once."""

    def group_body(first, accumulators, arrays):
      # A last group that is not full repeats its last client; what comes of it is not used.
      members = [client_frame(tf.minimum(first + j, self._num_clients - 1)) for j in range(size)]
      results = {}
      for node in grouped:
        parameters = [t for _, t in values.children(node.grouped.parameter)]
        arguments = []
        for member in members:
          argument = member.resolve(node.grouped.argument)
          arguments.append(tuple(values.to_containers(v, t) for v, t in zip(argument, parameters)))
        together = node.grouped.group.together(arguments)
        results[node] = values.flatten(together, node.type)

      def member_body(i, accumulators, arrays):
        client = client_frame(i)
        for node, stacked in results.items():
          client.know(node, feeds.read_stacked(stacked, node.type, i - first))
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


def _is_free(node):
  """Whether a node, and what it depends on at the clients, is only parameters and messages."""
  if node.placement is not program.CLIENTS:
    return True
  return node.free and all(_is_free(d) for d in node.deps)


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
