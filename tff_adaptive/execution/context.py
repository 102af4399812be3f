"""The TFF context that runs each computation as one TensorFlow function."""

import contextlib
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import threads
from tff_adaptive.execution import (
  buffers,
  cache,
  client_loop,
  devices,
  feeds,
  program,
  round_function,
  stacking,
  values,
)


class GraphContext(tff.framework.SyncContext):
  """Runs any TFF computation in this process as one TensorFlow function.

  The function is traced once for each computation and form of its arguments, whatever the number
  of clients; where they train together unasked, on a GPU, once for each number that does, up to 32
  (see `clients_per_step`). Results are TensorFlow tensors; client-placed results are a sequence
  that keeps them stacked (`values.ClientValues`).

  Attributes:
    parallel_clients: How many clients may be in work at once on a device.
  """

  def __init__(
    self,
    parallel_clients: Optional[int] = None,
    clients_per_step: Optional[int] = None,
    device: str = 'auto',
    device_names: Optional[Sequence[str]] = None,
  ):
    """Creates the context.

    Args:
      parallel_clients: How many clients may be in work at once on a device; memory grows with it.
        Default: the number of processors, at most 4: that many clients' activations are in memory.
      clients_per_step: How many clients train together in batched operations, where the
        computation says how (this project's do, on whole-array clients). Default: on a GPU the
        whole cohort, at most 32, if the model has a client axis; else 1.
      device: 'cpu', 'gpu', or 'auto': a GPU if TensorFlow has one. With several GPUs the server
        works on the first, and the clients are divided among all.
      device_names: TensorFlow's names of the devices instead, such as ['/GPU:1'].

    Raises:
      ValueError: If a number is not positive, or there is no such device; what a GPU lacks is
        named.
    """
    if parallel_clients is None:
      parallel_clients = threads.side_by_side()
    for name, value in (
      ('parallel_clients', parallel_clients),
      ('clients_per_step', 1 if clients_per_step is None else clients_per_step),
    ):
      if value < 1:
        raise ValueError(f'{name} is {value}; it must be at least 1')
    self.parallel_clients = parallel_clients
    devices.check(device)
    self._clients_per_step = clients_per_step
    self._device, self._device_names = device, device_names
    self._placement: Optional[devices.Placement] = None
    self._buffers = buffers.Buffers()
    self._functions = cache.Cache()

  def invoke(self, comp: tff.framework.ConcreteComputation, arg: Any) -> Any:
    """Runs a computation; see `tff.framework.SyncContext.invoke`."""
    if self._placement is None:
      self._placement = devices.place(self._device, self._device_names)
    parameter_type, result_type = comp.type_signature.parameter, comp.type_signature.result
    # Of the arguments, TensorFlow puts on a GPU what it is given there.
    on_cpu = self._placement.is_named and not self._placement.is_gpu
    with devices.on(devices.HOST if on_cpu else None):
      if parameter_type is None:
        layout, tensors = feeds.Layout(None, (), False), []
      else:
        layout, tensors = feeds.prepare(arg, parameter_type, self._buffers)
        self._buffers.collect()
    function = self._function(comp, layout, self._group_sizes(layout, tensors))
    flat = list(function(*tensors))
    num_clients = int(tensors[0]) if layout.has_clients else 0
    return _to_result(flat, result_type, num_clients)

  def _group_sizes(self, layout, tensors):
    """The arguments of `client_loop.Grouping`."""
    if self._clients_per_step is not None or not layout.has_clients:
      return self._clients_per_step, 1
    return None, self._placement.clients_together(int(tensors[0]))

  def _function(self, comp, layout, group_sizes):
    form = tuple((leaf.form, leaf.elements) for leaf in layout.leaves)
    traces = self._functions.of(comp, form)
    for function, may_group in traces.values():
      if not may_group:
        return function
    if group_sizes not in traces:
      block = program.compile_to_call_dominant(comp)
      grouping = client_loop.Grouping(*group_sizes)
      run = round_function.RoundFunction(
        block,
        comp.type_signature.parameter,
        layout,
        self.parallel_clients,
        grouping,
        self._placement,
      )
      function = tf.function(run, input_signature=layout.signature(), autograph=False)
      traces[group_sizes] = function.get_concrete_function(), grouping.matters
    return traces[group_sizes][0]


class AsyncGraphContext(tff.framework.AsyncContext):
  """`GraphContext` for TFF's program logic, which awaits results.

  `tff.framework.set_default_context(tff.program.NativeFederatedContext(AsyncGraphContext()))`
  is what `tff.learning.programs.train_model` wants.
  """

  def __init__(self, context: Optional[GraphContext] = None):
    """Creates the context.

    Args:
      context: The engine; default `GraphContext()`.
    """
    self._context = context or GraphContext()

  async def invoke(self, comp: tff.framework.ConcreteComputation, arg: Any) -> Any:
    """Runs a computation; see `tff.framework.AsyncContext.invoke`."""
    return self._context.invoke(comp, arg)


def _to_result(flat, result_type, num_clients):
  flat = list(flat)

  def build(type_spec):
    if isinstance(type_spec, tff.types.FederatedType):
      if type_spec.placement is tff.CLIENTS:
        return at_clients(type_spec)
      type_spec = type_spec.member
    if isinstance(type_spec, tff.types.StructType):
      return tff.structure.Struct([(n, build(t)) for n, t in values.children(type_spec)])
    leaf = flat.pop(0)
    return stacking.unbox(leaf, type_spec) if _is_sequence(type_spec) else leaf

  def at_clients(type_spec):
    mine = [flat.pop(0) for _ in values.leaf_types(type_spec.member)]
    clients = values.ClientValues(mine, type_spec.member, num_clients, stacking.unbox)
    return clients[0] if type_spec.all_equal and num_clients else clients

  return tff.types.type_to_py_container(build(result_type), _without_placements(result_type))


def _is_sequence(type_spec):
  return isinstance(type_spec, tff.types.SequenceType)


def _without_placements(type_spec):
  """The type with server-placed members unplaced and client-placed ones opaque."""
  if isinstance(type_spec, tff.types.FederatedType):
    if type_spec.placement is tff.CLIENTS:
      return tff.types.TensorType(np.bool_)  # Any leaf: its value is returned as it is.
    return type_spec.member
  if not isinstance(type_spec, tff.types.StructType):
    return type_spec
  elements = [(n, _without_placements(t)) for n, t in values.children(type_spec)]
  elements = [t if n is None else (n, t) for n, t in elements]
  return tff.types.StructWithPythonType(elements, type_spec.python_container)


def set_graph_context(
  parallel_clients: Optional[int] = None,
  clients_per_step: Optional[int] = None,
  device: str = 'auto',
) -> None:
  """Makes the graph engine the default context of TFF in this process.

  Called before TensorFlow's first operation it also has each operation use one thread, if the
  clients in work are as many as the processors (`parallel_clients`): up to twice as fast. A number
  set by `tf.config.threading.set_intra_op_parallelism_threads` or TF_NUM_INTRAOP_THREADS stays.

  Args:
    parallel_clients: How many clients may be in work at once; see `GraphContext`.
    clients_per_step: How many clients train together; see `GraphContext`.
    device: 'auto', 'cpu' or 'gpu'; see `GraphContext`.

  Raises:
    ValueError: As `GraphContext`.
  """
  context = GraphContext(parallel_clients, clients_per_step, device)
  if device == 'cpu' or not tf.config.list_physical_devices('GPU'):
    threads.one_an_operation(context.parallel_clients)
  tff.framework.set_default_context(context)


@contextlib.contextmanager
def graph_context(
  parallel_clients: Optional[int] = None,
  clients_per_step: Optional[int] = None,
  device: str = 'auto',
):
  """`with graph_context(): ...` runs TFF computations in the graph engine."""
  context = GraphContext(parallel_clients, clients_per_step, device)
  with tff.framework.get_context_stack().install(context):
    yield
