"""All uses of private or unstable interfaces of other packages, as named functions.

The functions are written for TFF 0.87.0 and TensorFlow 2.21.0. Other versions may change the
interfaces, so a test compares `VERSIONS`. docs/design/tff_on_today.md lists what a port changes.
TensorFlow and TFF are imported only when a function needs them.
"""

import contextlib
import functools
import gc
import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tff_adaptive.environment.check import WORKER as WORKER

VERSIONS = {'tensorflow-federated': '0.87.0', 'tensorflow': '2.21.0'}


# TensorFlow: graphs and functions.


def anonymous_name() -> str:
  """Returns the `shared_name` with which a resource's op makes a new resource at each run."""
  from tensorflow.python.eager import context

  return context.anonymous_name()


def is_stateful(op: str) -> bool:
  """Returns whether the TensorFlow op of this name has state or side effects."""
  from tensorflow.python.framework import op_def_registry

  definition = op_def_registry.get(op)
  return definition is not None and definition.is_stateful


def function_def(concrete_function: Any) -> Any:
  """Returns the FunctionDef of a concrete function, as in the library of a graph."""
  return concrete_function.function_def


def captures_eager_tensors(concrete_function: Any) -> bool:
  """Returns whether a concrete function uses tensors of eager mode that are no arguments."""
  return any(map(is_eager_constant, concrete_function.captured_inputs))


def is_eager_constant(tensor: Any) -> bool:
  """Returns whether a captured tensor is of eager mode, and no handle of a variable or table."""
  import tensorflow as tf

  is_handle = tensor.dtype in (tf.resource, tf.variant)  # Of a variable or a table, say.
  return hasattr(tensor, 'numpy') and not is_handle


def call_with_constants(concrete_function: Any) -> Any:
  """Calls a concrete function once, in a graph, with its eager tensors as constants of the graph.

  The function must have no arguments.
  """
  import tensorflow as tf

  captures = []
  for tensor in concrete_function.captured_inputs:
    if is_eager_constant(tensor):
      tensor = tf.constant(tensor.numpy(), tensor.dtype)
    captures.append(tensor)
  concrete_function.set_external_captures(captures)
  return concrete_function()


def argument_shape(function: Any, i: int) -> Any:
  """Returns the static shape of argument `i` of a FunctionDef, as a `tf.TensorShape`."""
  import tensorflow as tf

  if i in function.arg_attr:
    shapes = function.arg_attr[i].attr['_output_shapes'].list.shape
    if len(shapes) == 1:
      return tf.TensorShape(shapes[0])
  return tf.TensorShape(None)


def may_draw(dataset: Any) -> bool:
  """Returns whether a `tf.data.Dataset`, or one of its inputs, may draw random numbers."""
  draws = ('_ShuffleDataset', '_ShuffleAndRepeatDataset', '_RandomDataset')
  hides = ('_VariantDataset', 'DatasetV1Adapter')  # They do not show their inputs.
  return type(dataset).__name__ in draws + hides or any(map(may_draw, dataset._inputs()))


def seed_generators(graph: Any) -> list[Any]:
  """Returns the resource handles of the random generators in a dataset's GraphDef."""
  generators = []
  for node in graph.node:
    if node.op == 'Const':
      for handle in node.attr['value'].tensor.resource_handle_val:
        if 'SeedGenerator' in handle.maybe_type_name:
          generators.append(handle)
  return generators


def installed_build() -> Mapping[str, Any]:
  """Returns `tf.sysconfig.get_build_info()` without importing TensorFlow; {} if that fails."""
  package = importlib.util.find_spec('tensorflow')
  if package is None:
    return {}
  for root in package.submodule_search_locations or ():
    path = os.path.join(root, 'python', 'platform', 'build_info.py')
    if os.path.exists(path):
      return dict(runpy.run_path(path)['build_info'])
  return {}


def reference_counts(values: Sequence[Any]) -> list[int]:
  """Returns CPython's reference counts, which include TensorFlow's references to shared memory."""
  return [sys.getrefcount(value) for value in values]


def free_attributes(tensors: Iterable[Any]) -> None:
  """Frees the attribute dictionaries of eager tensors that have no attributes.

  From CPython 3.11 on each object of a Python class is created with room for attributes. TensorFlow
  does not free this room, 32 bytes for each tensor (tensorflow/tensorflow#62551). A tensor works
  without its `__dict__`. Tensors with attributes are left alone.
  """
  for tensor in tensors:
    if not tensor.__dict__:
      del tensor.__dict__


# Keras 2.

# The attributes in which Keras and TensorFlow list a module's variables a second time.
KERAS_LISTS = re.compile(r'_self_|_obj_reference|_(non_)?trainable_(weights|variables)$|_weights$')


def metric_values(metric: Any) -> Callable[..., Any]:
  """Returns the function `(y_true, y_pred) -> [B, ...]` that a Keras metric averages."""
  return functools.partial(metric._fn, **metric._fn_kwargs)


def takes_logits(metric: Any) -> bool:
  """Returns whether a Keras AUC applies a sigmoid to outputs."""
  return bool(metric._from_logits)


def carries_mask(tensor: Any) -> bool:
  """Returns whether a symbolic tensor of Keras carries a mask."""
  return getattr(tensor, '_keras_mask', None) is not None


def losses_of(layer: Any) -> Sequence[Callable[[], Any]]:
  """Returns the loss functions of a Keras layer, including those of its regularizers."""
  return getattr(layer, '_callable_losses', ())


def replace_randomness(layer: Any, generator: Any) -> None:
  """Replaces the random generator of a Keras layer such as Dropout."""
  vars(layer)['_random_generator'] = generator


def keep_moving_statistics(layer: Any) -> None:
  """Makes a Keras BatchNormalization use its moving mean and variance in training too."""
  vars(layer)['_get_training_value'] = lambda training=None: False


def redirect_moving_statistics(
  layer: Any, assign: Callable[..., None], average: Callable[..., None]
) -> None:
  """Replaces what a Keras BatchNormalization calls to change its moving mean and variance."""
  vars(layer)['_assign_new_value'] = assign  # (variable, new value)
  vars(layer)['_assign_moving_average'] = average  # (variable, value, momentum, batch size)


# TFF: computations and its compiler.


def default_context() -> Any:
  """Returns TFF's default context, also while another context is in use (`current`)."""
  import tensorflow_federated as tff

  return tff.framework.get_context_stack()._stack[0]


def framework() -> Any:
  """Returns the namespace of TFF's building blocks, intrinsics and `ConcreteComputation`."""
  import tensorflow_federated as tff

  return tff.framework


def to_call_dominant(comp: Any) -> Any:
  """Compiles a computation to call-dominant form, with intrinsics replaced by their bodies.

  Secure sums become sums, with their bounds checked, as in TFF's own simulations.
  """
  import tensorflow_federated as tff

  if b'federated_secure' in computation_bytes(comp):  # Replacing takes as long as all the rest.
    comp = tff.backends.test.replace_secure_intrinsics_with_bodies(comp)
  block, _ = tff.tensorflow.replace_intrinsics_with_bodies(comp.to_building_block())
  return tff.framework.to_call_dominant(block)


def to_computation(block: Any) -> Any:
  """Converts a building block to a computation. Unlike in TFF, the block may have no parameter."""
  import tensorflow_federated as tff

  return tff.framework.ConcreteComputation(
    computation_proto=block.proto, context_stack=tff.framework.get_context_stack()
  )


def computation_bytes(comp: Any) -> bytes:
  """Serializes a computation for another process. Each call returns the same bytes."""
  import tensorflow_federated as tff

  return tff.framework.serialize_computation(comp).SerializeToString(deterministic=True)


def computation_from_bytes(octets: bytes) -> Any:
  """Returns the computation that `computation_bytes` serialized with the same version of TFF."""
  import tensorflow_federated as tff

  # TFF has no name for the class of serialized computations: an object of it shows the class.
  some_computation = tff.tensorflow.computation(lambda: 0)
  proto_class = type(tff.framework.serialize_computation(some_computation))
  return tff.framework.deserialize_computation(proto_class.FromString(octets))


def block_key(block: Any) -> bytes:
  """Returns a key that is equal for compiled building blocks with the same bytes."""
  return block.proto.SerializeToString()


def block_kind(block: Any) -> str:
  """Returns the language of a compiled building block, such as 'tensorflow' or 'xla' (JAX)."""
  return block.proto.WhichOneof('computation')


def tensorflow_of(comp_or_block: Any) -> Any:
  """Returns the `TensorFlow` message of a TensorFlow computation or compiled building block."""
  import tensorflow_federated as tff

  if isinstance(comp_or_block, tff.framework.CompiledComputation):
    return comp_or_block.proto.tensorflow
  return tff.framework.serialize_computation(comp_or_block).tensorflow


def message_bytes(message: Any) -> bytes:
  """Serializes a `TensorFlow` message. Each call in this process returns the same bytes."""
  return message.SerializeToString(deterministic=True)


def graph_def(message: Any) -> Any:
  """Returns the graph of a `TensorFlow` message as a new `tf.compat.v1.GraphDef`."""
  import tensorflow as tf

  graph = tf.compat.v1.GraphDef()
  message.graph_def.Unpack(graph)
  return graph


def all_nodes(graph: Any) -> list[Any]:
  """Returns the nodes of a graph and of its functions."""
  nodes = list(graph.node)
  for function in graph.library.function:
    nodes += function.node_def
  return nodes


def initialize_op(message: Any) -> str:
  """Returns the name of the op that must run before a `TensorFlow` message's graph, or ''."""
  return message.initialize_op


def tensor_names(binding: Any) -> list[tuple[str, bool]]:
  """Returns (tensor name, is sequence) for each leaf of a message's `parameter` or `result`."""
  kind = binding.WhichOneof('binding')
  if kind is None:
    return []
  if kind == 'tensor':
    return [(binding.tensor.tensor_name, False)]
  if kind == 'sequence':
    return [(binding.sequence.variant_tensor_name, True)]
  pairs = []
  for element in binding.struct.element:
    pairs += tensor_names(element)
  return pairs


# The key under which a process's computation of a round has a function that follows its clients.
SINGLE_CLIENTS = 'tff_adaptive_single_clients'


def attach(comp: Any, key: str, *values: Any) -> None:
  """Keeps values alive as long as `comp`, by adding them to a list, its attribute `key`."""
  vars(comp).setdefault(key, []).extend(values)


def attached(comp: Any, key: str) -> list[Any]:
  """Returns the values that `attach` added to `comp`; [] if there are none."""
  return list(getattr(comp, '__dict__', {}).get(key, ()))


def replace_initial_weights(model: Any, weights: Any) -> None:
  """Replaces the initial weights of a `tff.learning.models.FunctionalModel` in place."""
  model._initial_weights = weights


# TFF: its worker, its data sources and its checkpoints.


def serializable() -> type:
  """Returns TFF's base class of objects that its program state managers save by `to_bytes`."""
  from tensorflow_federated.python.common_libs import serializable as lib

  base: type = lib.Serializable
  return base


def watch_worker_starts(watch: Callable[[int], None]) -> bool:
  """Makes TFF start later workers in their own sessions, and calls `watch` with each one's pid.

  TFF has no hook for this, so the `subprocess.Popen` that it uses is replaced. In its own session a
  worker does not receive Ctrl-C from the terminal, and the program can finish its round. Returns
  False, without a change, if this was done before.
  """
  popen = subprocess.Popen
  if getattr(popen, 'watches_tff', False):
    return False

  class WatchingPopen(popen):  # type: ignore[misc, valid-type]
    """A `subprocess.Popen` that reports the starts of TFF's workers."""

    watches_tff = True

    def __init__(self, args: Any, *more: Any, **options: Any):
      command = args
      if not isinstance(args, (str, bytes, os.PathLike)):
        command = args[0]
      is_worker = os.path.basename(os.fsdecode(command)) == WORKER
      if is_worker:
        options['start_new_session'] = True
      super().__init__(args, *more, **options)
      if is_worker:
        watch(self.pid)

  subprocess.Popen = WatchingPopen  # type: ignore[misc]
  return True


def forget_workers() -> None:
  """Stops TFF's contexts from signalling their workers when the interpreter exits.

  It is for a program that is ending and has killed the workers. Otherwise the `__del__` of TFF's
  `ServiceManager` would fail with an ignored AttributeError, because modules that it uses are gone.
  """
  gc.unfreeze()  # `get_objects` omits frozen objects, and a command freezes TFF's modules.
  managers = {
    type(value)
    for value in gc.get_objects()
    if type(value).__qualname__ == 'local_cpp_executor_factory.<locals>.ServiceManager'
  }
  for manager in managers:  # One class for each context.
    manager.__del__ = lambda self: None


# Other packages, and Python's own.


def set_folder_of_processes(folder: str) -> bool:
  """Sets the folder of multiprocessing's sockets. Returns False if it has one already."""
  import multiprocessing

  process: Any = multiprocessing.current_process()
  if 'tempdir' in process._config:  # `multiprocessing.util.get_temp_dir` reads it.
    return False
  process._config['tempdir'] = folder
  return True


def replace_queries(query: Any, total: Any, below: Any) -> None:
  """Replaces an adaptive clip query's two queries, for the sum and the share below the clip."""
  query._sum_query = total
  query._quantile_estimator_query._below_estimate_query = below


def ray_attempt() -> int:
  """Returns the number, from 0, of Ray's attempt to run the task that calls this function."""
  from ray._private import worker

  global_worker: Any = worker.global_worker  # It gets its core worker when it connects.
  number: int = global_worker.core_worker.get_current_task_attempt_number()
  return number


@contextlib.contextmanager
def ray_on_loopback() -> Iterator[None]:
  """A context manager in which a Ray that starts with the address 127.0.0.1 keeps this address.

  Since 2.53 Ray replaces it by the machine's address in the network, except where it supports no
  clusters of several machines, as on macOS.
  """
  from ray._private import ray_constants

  constants: Any = ray_constants
  before = constants.ENABLE_RAY_CLUSTER
  constants.ENABLE_RAY_CLUSTER = False
  try:
    yield
  finally:
    constants.ENABLE_RAY_CLUSTER = before


def reread_ray_settings() -> None:
  """Makes a connected Ray read its environment variables again, as it does when it connects."""
  import ray._raylet
  from ray._private import state

  of_cluster: Any = state.state
  settings: Any = ray._raylet.Config
  settings.initialize(json.dumps(of_cluster.get_system_config()))


def ray_nodes(task_id: bytes) -> list[str]:
  """Returns the ids of the nodes of a task's attempts, in order, as far as Ray's head knows."""
  from ray._private import state
  from ray.core.generated import gcs_pb2

  accessor: Any = state.state._connect_and_get_accessor()
  kind: Any = gcs_pb2.TaskEvents
  events = map(kind.FromString, accessor.get_task_events())
  tries = [event for event in events if event.task_id == task_id and event.state_updates.node_id]
  tries.sort(key=lambda event: event.attempt_number)
  return [event.state_updates.node_id.hex() for event in tries]


# Optuna.


def trial_number_in_storage(trial: Any) -> int:
  """Returns the number of a trial in Optuna's storage; `trial.number` counts in its study."""
  return int(trial._trial_id)
