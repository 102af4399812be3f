"""The TFF context that runs each computation as one TensorFlow function."""

import collections
import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cachetools
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import private_apis, validation
from tff_adaptive.devices import placement, threads
from tff_adaptive.engine.graph import (
  buffers,
  client_loop,
  datasets,
  feeds,
  permits,
  round_function,
  stacking,
  values,
)

_CAPACITY = 64
_Sizes = tuple[int | None, int]  # The arguments of `client_loop.Grouping`.


class Cache:
  """A cache with a dictionary for each recently used computation and layout of its arguments.

  A dictionary must not refer to its computation: it is forgotten when nothing else does.
  """

  def __init__(self) -> None:
    self._entries: Any = cachetools.LRUCache(_CAPACITY)
    self._gone: collections.deque[int] = collections.deque()  # Ids of computations.

  def of(self, comp: tff.Computation, form: Any = None) -> dict:
    """Returns the dictionary, at first empty, of a computation and a layout of its arguments."""
    # First, because another computation may have got the id of one that is gone.
    self._forget_gone()
    key = id(comp), form
    entry = self._entries.get(key)
    if entry is None:
      gone = self._gone
      # It may end at any instant, also amid a change of the entries: so its id is only noted.
      reference = weakref.ref(comp, lambda _: gone.append(key[0]))
      entry = self._entries.setdefault(key, (reference, {}))
    return entry[1]

  def _forget_gone(self) -> None:
    gone = set()
    while self._gone:
      gone.add(self._gone.popleft())
    if gone:
      for key in list(self._entries):
        if key[0] in gone:
          self._entries.pop(key, None)


class GraphContext(tff.program.FederatedContext):
  """A TFF context that runs any computation in this process as one TensorFlow function.

  It works for direct calls and, as a `tff.program.FederatedContext`, for TFF's programs, such as
  `tff.learning.programs.train_model`. A call returns only when its results are computed.

  The function is traced once for each computation and layout of its arguments, whatever the number
  of clients. If clients train in groups (see `clients_per_step`), each size of a group has a trace.
  By default results are NumPy values. Their arrays may be read-only, above all at the server.

  Attributes:
    parallel_clients: Number of clients that may train at once on a device.
  """

  def __init__(
    self,
    parallel_clients: int | None = None,
    clients_per_step: int | None = None,
    device: str = 'auto',
    device_names: Sequence[str] | None = None,
    default_num_clients: int | None = None,
    results: str = 'numpy',
  ):
    """Creates the context.

    Args:
      parallel_clients: Number of clients that may train at once on a device. Memory grows with it,
        because the activations of all of them are in memory. The default is the number of
        processors, at most 4. On a CPU memory also holds a finished client's results until those of
        the clients before it are added. This concerns up to 16 clients (256 MiB of results), or
        `parallel_clients` + 1 if that is more.
      clients_per_step: Number of clients that train together in batched operations, at most the
        size of the cohort. Only computations with a batched form do so, such as this package's with
        `ClientTraining.batching`. The default is 1; on a GPU, if the model has a client axis, it is
        the number of the GPU's clients, at most 32.
      device: 'cpu', 'gpu', or 'auto', which takes a GPU if TensorFlow has one. With several GPUs
        the server uses the first, and the clients are divided among all.
      device_names: TensorFlow's names of devices to use instead of `device`, such as ['/GPU:1'].
      default_num_clients: The number of clients for computations that work at clients but have no
        client-placed argument. By default such a computation is refused.
      results: 'numpy' returns NumPy values. 'tensors' returns TensorFlow's tensors, which are
        copied from a GPU only when they are read.

    Raises:
      ValueError: If a number is too small, `results` is unknown, or the device does not exist.
      TypeError: If a number is not an integer.
    """
    if parallel_clients is None:
      parallel_clients = threads.side_by_side()
    for name, value, least in (
      ('parallel_clients', parallel_clients, 1),
      ('clients_per_step', clients_per_step, 1),
      ('default_num_clients', default_num_clients, 0),
    ):
      if value is not None:
        validation.whole_number(name, value, least, 'leave it out for the default')
    if results not in ('numpy', 'tensors'):
      raise ValueError(f"results is {results!r}; it must be 'numpy' or 'tensors'")
    self._as_numpy = results == 'numpy'
    self._default_num_clients = default_num_clients
    self.parallel_clients = parallel_clients
    placement.check(device)
    self._clients_per_step = clients_per_step
    self._device = device
    self._device_names = device_names
    self._buffers = buffers.Buffers()
    self._datasets = datasets.DatasetCache()
    self._functions = Cache()
    self._permits = permits.Permits(parallel_clients)

  @functools.cached_property
  def _where(self) -> placement.Placement:
    return placement.place(self._device, self._device_names)

  def invoke(self, comp: tff.Computation, arg: Any) -> Any:
    """Runs a computation; see `tff.framework.SyncContext.invoke`.

    Args:
      comp: The computation.
      arg: Its argument as TFF packs it, or None if the computation has no parameter. A
        client-placed value is a list with one value for each client.

    Returns:
      The result in the containers of its type.

    Raises:
      TypeError: If the argument does not fit the parameter's type. The message names both.
      ValueError: If parts of the argument have different numbers of clients.
      NotImplementedError: If the engine cannot run a part of `comp`, which the message names.
    """
    parameter_type = comp.type_signature.parameter
    result_type = comp.type_signature.result
    device = None
    if self._where.is_named and not self._where.is_gpu:
      # Otherwise TensorFlow would copy arguments to a GPU although the CPU was chosen.
      device = placement.HOST
    with placement.on(device):
      if parameter_type is None:
        layout = feeds.Layout(None, (), False)
        tensors: list[tf.Tensor] = []
      else:
        layout, tensors = feeds.prepare(arg, parameter_type, self._buffers, self._datasets)
        self._buffers.collect()
    function = self._function(comp, layout, self._group_sizes(layout, tensors))
    with contextlib.ExitStack() as stack:
      handles = []
      if self._has_permits(layout):
        handles = [stack.enter_context(self._permits.of_a_call())]
      flat = list(function(*tensors, *handles))
    private_apis.free_attributes((*tensors, *flat))  # Otherwise each round leaks a kilobyte.
    num_clients = self._default_num_clients or 0
    if layout.has_clients:
      num_clients = int(tensors[0])
    return _to_result(flat, result_type, num_clients, self._as_numpy)

  def _has_permits(self, layout: feeds.Layout) -> bool:
    # Several devices would need their own permits; a GPU is busy with a few clients anyhow.
    on_one_cpu = len(self._where.clients) == 1 and not self._where.is_gpu
    return layout.has_clients and self.parallel_clients > 1 and on_one_cpu

  def _group_sizes(self, layout: feeds.Layout, tensors: list[tf.Tensor]) -> _Sizes:
    if not layout.has_clients:
      return self._clients_per_step, 1
    num_clients = int(tensors[0])
    if self._clients_per_step is None:
      return None, self._where.clients_together(num_clients)
    # Each client of a group makes tracing longer, so a group is not larger than the cohort.
    return min(self._clients_per_step, max(num_clients, 1)), 1

  def _function(
    self, comp: tff.Computation, layout: feeds.Layout, group_sizes: _Sizes
  ) -> Callable[..., Sequence[tf.Tensor]]:
    """Returns the concrete function of a computation; traces it if no earlier trace fits."""
    # Clients may be given as arrays in one call and as datasets in the next: other traces.
    form = tuple((leaf.form, leaf.elements) for leaf in layout.leaves)
    traces = self._functions.of(comp, form)
    for function, may_group in traces.values():
      if not may_group:  # It is the same for all sizes of groups.
        return function
    if group_sizes not in traces:
      traces[group_sizes] = self._trace(comp, layout, group_sizes)
    function, _ = traces[group_sizes]
    return function

  def _trace(
    self, comp: tff.Computation, layout: feeds.Layout, group_sizes: _Sizes
  ) -> tuple[Callable[..., Sequence[tf.Tensor]], bool]:
    """Returns a concrete function, and whether other sizes of groups would give another one."""
    block = private_apis.to_call_dominant(comp)
    grouping = client_loop.Grouping(*group_sizes)
    has_permits = self._has_permits(layout)
    run = round_function.RoundFunction(
      block,
      layout,
      self.parallel_clients,
      grouping,
      self._where,
      has_permits,
      self._default_num_clients,
    )
    signature = layout.signature()
    if has_permits:
      signature.append(permits.SPEC)
    # AutoGraph has converted the parts already; of imported functions it could not find the source.
    function = tf.function(run, input_signature=signature, autograph=False)
    concrete = function.get_concrete_function()
    return concrete, grouping.matters  # Known only now.


def _to_result(
  flat: list[tf.Tensor], result_type: tff.types.Type, num_clients: int, as_numpy: bool
) -> Any:
  """Converts the flat tensors that a traced function returns to the computation's result."""
  tensors = iter(flat)
  leaves: list[Any] = []
  for part in _parts(result_type):
    if isinstance(part, tff.types.FederatedType):
      clients = _client_values(tensors, part.member, num_clients, as_numpy)
      # TFF returns one value where all clients have the same.
      if part.all_equal and clients:
        leaves.append(clients[0])
      else:
        leaves.append(clients)
      continue
    value = next(tensors)
    if isinstance(part, tff.types.SequenceType):
      value = stacking.unbox(value, part)
    if as_numpy:
      value = values.to_numpy(value)
    leaves.append(value)
  return values.to_python(leaves, without_placements(result_type))


def _client_values(
  tensors: Iterator[tf.Tensor], member: tff.types.Type, num_clients: int, as_numpy: bool
) -> list[Any]:
  """Takes the next stacked leaves from `tensors`; returns the value of each client."""
  columns = []
  for leaf_type in values.leaf_types(member):
    columns.append(_rows(next(tensors), leaf_type, as_numpy))
  clients = []
  for i in range(num_clients):
    row = [column[i] for column in columns]
    clients.append(values.to_python(row, member))
  return clients


def _rows(stacked: tf.Tensor, type_spec: tff.types.Type, as_numpy: bool) -> list[Any]:
  """Splits a stacked leaf into a list with one value for each client."""
  if stacked.dtype == tf.variant:
    rows = [stacking.unbox(stacked[i], type_spec) for i in range(stacked.shape[0])]
    if as_numpy:
      rows = list(map(values.to_numpy, rows))
    return rows
  if as_numpy:
    return list(map(_apart, stacked.numpy()))
  rows = tf.unstack(stacked)
  private_apis.free_attributes(rows)
  return rows


def _apart(row: Any) -> Any:
  """Copies an array, so that one client's value does not keep those of all clients in memory."""
  if isinstance(row, np.ndarray):
    return row.copy()
  return row


@functools.lru_cache
def _parts(result_type: tff.types.Type) -> list[tff.types.Type]:
  """Returns the types of a result's leaves: tensors, sequences, and whole client-placed values."""
  if isinstance(result_type, tff.types.FederatedType):
    if result_type.placement is tff.CLIENTS:
      return [result_type]
    return values.leaf_types(result_type.member)
  if isinstance(result_type, tff.types.StructType):
    parts = []
    for _, child in values.children(result_type):
      parts.extend(_parts(child))
    return parts
  return [result_type]


@functools.lru_cache
def without_placements(type_spec: tff.types.Type) -> tff.types.Type:
  """Returns the type without placements, in which a client-placed value is a single leaf."""
  if isinstance(type_spec, tff.types.FederatedType):
    if type_spec.placement is tff.CLIENTS:
      return tff.types.TensorType(np.bool_)  # Any leaf type does: the value is not converted.
    return type_spec.member
  if not isinstance(type_spec, tff.types.StructType):
    return type_spec
  elements: list[Any] = []
  for name, child in values.children(type_spec):
    element = without_placements(child)
    elements.append(element if name is None else (name, element))
  return tff.types.StructWithPythonType(elements, type_spec.python_container)


def set_graph_context(**options: Any) -> None:
  """Makes the graph engine TFF's default context in the calling thread, also for TFF's programs.

  Call it before TensorFlow's first operation. On a CPU, it then makes each operation use one thread
  if `parallel_clients` is at least the number of processors. This is up to twice as fast. A number
  of threads that you set by `tf.config.threading.set_intra_op_parallelism_threads` or
  TF_NUM_INTRAOP_THREADS is kept.

  Args:
    **options: The arguments of `GraphContext`.

  Raises:
    ValueError, TypeError: See `GraphContext`.
  """
  context = GraphContext(**options)
  if options.get('device') == 'cpu' or not tf.config.list_physical_devices('GPU'):
    threads.one_an_operation(context.parallel_clients)
  tff.framework.set_default_context(context)


@contextlib.contextmanager
def graph_context(**options: Any) -> Iterator[None]:
  """A context manager: `with graph_context(): ...` runs TFF computations in the graph engine.

  The options are the arguments of `GraphContext`, which says what errors they raise.
  """
  with tff.framework.get_context_stack().install(GraphContext(**options)):
    yield
