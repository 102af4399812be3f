"""Every use of a private or unstable interface of another package, as functions with names.

Written for TFF 0.87.0 and TensorFlow 2.14.1; another version may change any of this without
notice, which is why a test compares `VERSIONS`. docs/design/tff_0_88_port.md lists what a port
has to look at. Neither TensorFlow nor TFF is imported before a function needs it.
"""

import functools
import gc
import importlib.util
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

VERSIONS = {'tensorflow-federated': '0.87.0', 'tensorflow': '2.14.1'}
WORKER = 'worker_binary'  # The program that TFF's native context starts.


# TensorFlow: graphs and functions.


def anonymous_name() -> str:
  """The shared name with which a handle op makes a resource of its own each time it runs."""
  from tensorflow.python.eager import context

  return context.anonymous_name()


def is_stateful(op: str) -> bool:
  """Whether an op of this name (not a function's) has state or side effects."""
  from tensorflow.python.framework import op_def_registry

  definition = op_def_registry.get(op)
  return definition is not None and definition.is_stateful


def function_def(concrete_function: Any) -> Any:
  """The FunctionDef of a concrete function, as a graph's library holds it."""
  return concrete_function.function_def


def argument_shape(function: Any, i: int) -> Any:
  """The static shape of argument `i` of a FunctionDef, as a `tf.TensorShape`."""
  import tensorflow as tf

  shapes = function.arg_attr[i].attr['_output_shapes'].list.shape if i in function.arg_attr else []
  return tf.TensorShape(shapes[0]) if len(shapes) == 1 else tf.TensorShape(None)


def may_draw(dataset: Any) -> bool:
  """Whether a `tf.data.Dataset`, or one that it is made of, has or may hide random numbers."""
  draws = ('_ShuffleDataset', '_ShuffleAndRepeatDataset', '_RandomDataset')
  hides = ('_VariantDataset', 'DatasetV1Adapter')  # They do not show what they are made of.
  return type(dataset).__name__ in draws + hides or any(map(may_draw, dataset._inputs()))


def seed_generators(graph: Any) -> list[Any]:
  """The handles, in a dataset's GraphDef, of its generators of random numbers."""
  constants = [node.attr['value'].tensor for node in graph.node if node.op == 'Const']
  handles = [handle for tensor in constants for handle in tensor.resource_handle_val]
  return [handle for handle in handles if 'SeedGenerator' in handle.maybe_type_name]


def installed_build() -> Mapping[str, Any]:
  """What `tf.sysconfig.get_build_info()` says, without importing TensorFlow; {} if it cannot."""
  package = importlib.util.find_spec('tensorflow')
  for root in package.submodule_search_locations or () if package else ():
    path = os.path.join(root, 'python', 'platform', 'build_info.py')
    if os.path.exists(path):
      return dict(runpy.run_path(path)['build_info'])
  return {}


def reference_counts(values: Sequence[Any]) -> list[int]:
  """CPython's reference counts; TensorFlow holds a reference to the memory that it shares."""
  return [sys.getrefcount(value) for value in values]


def free_attributes(tensors: Iterable[Any]) -> None:
  """Frees the room for attributes of eager tensors that have none.

  From CPython 3.11 on each object of a Python class gets such room as it is made, and TensorFlow
  does not free that of its tensors: 32 bytes each (tensorflow/tensorflow#62551). Without a
  `__dict__` a tensor is as before; one that has attributes is left alone.
  """
  for tensor in tensors:
    if not tensor.__dict__:
      del tensor.__dict__


# Keras 2.

# Where Keras and TensorFlow list a module's variables a second time.
KERAS_LISTS = re.compile(r'_self_|_obj_reference|_(non_)?trainable_(weights|variables)$|_weights$')


def metric_values(metric: Any) -> Callable[..., Any]:
  """What a Keras metric that is a mean takes the mean of: `(y_true, y_pred) -> [B, ...]`."""
  return functools.partial(metric._fn, **metric._fn_kwargs)


def carries_mask(tensor: Any) -> bool:
  """Whether Keras passes a mask on with a symbolic tensor."""
  return getattr(tensor, '_keras_mask', None) is not None


def losses_of(layer: Any) -> Sequence[Callable[[], Any]]:
  """The functions that a Keras layer has been given as losses, those of its regularizers too."""
  return getattr(layer, '_callable_losses', ())


def replace_randomness(layer: Any, generator: Any) -> None:
  """Gives a Keras layer that draws, such as Dropout, another generator to draw from."""
  vars(layer)['_random_generator'] = generator


def keep_moving_statistics(layer: Any) -> None:
  """Makes a Keras BatchNormalization use its moving mean and variance in training, too."""
  vars(layer)['_get_training_value'] = lambda training=None: False


# TFF: computations and its compiler.


def framework() -> Any:
  """The namespace of TFF's building blocks, intrinsics and `ConcreteComputation`."""
  import tensorflow_federated as tff

  return tff.framework


def to_call_dominant(comp: Any) -> Any:
  """TFF's compiler: a computation's block, intrinsics with bodies replaced, call-dominant.

  Secure sums become sums, with their bounds checked, as in TFF's own simulations.
  """
  import tensorflow_federated as tff

  if b'federated_secure' in computation_bytes(comp):  # It takes TFF as long as all the rest.
    comp = tff.backends.test.replace_secure_intrinsics_with_bodies(comp)
  block, _ = tff.tensorflow.replace_intrinsics_with_bodies(comp.to_building_block())
  return tff.framework.to_call_dominant(block)


def to_computation(block: Any) -> Any:
  """The computation of a building block; unlike TFF's own way, also of one without parameter."""
  import tensorflow_federated as tff

  return tff.framework.ConcreteComputation(
    computation_proto=block.proto, context_stack=tff.framework.get_context_stack()
  )


def computation_bytes(comp: Any) -> bytes:
  """A computation as bytes, for another process: the same in each call of this one."""
  import tensorflow_federated as tff

  return tff.framework.serialize_computation(comp).SerializeToString(deterministic=True)


def computation_from_bytes(octets: bytes) -> Any:
  """The inverse of `computation_bytes`, in a process with the same version of TFF."""
  import tensorflow_federated as tff

  some_computation = tff.tensorflow.computation(lambda: 0)
  proto_class = type(tff.framework.serialize_computation(some_computation))
  return tff.framework.deserialize_computation(proto_class.FromString(octets))


def block_key(block: Any) -> bytes:
  """Equal for compiled building blocks that compute the same, by their bytes."""
  return block.proto.SerializeToString()


def block_kind(block: Any) -> str:
  """What a compiled building block is written in: 'tensorflow', or 'xla' (JAX), say."""
  return block.proto.WhichOneof('computation')


def tensorflow_of(comp_or_block: Any) -> Any:
  """The `TensorFlow` message of a TensorFlow computation or compiled building block."""
  import tensorflow_federated as tff

  if isinstance(comp_or_block, tff.framework.CompiledComputation):
    return comp_or_block.proto.tensorflow
  return tff.framework.serialize_computation(comp_or_block).tensorflow


def message_bytes(message: Any) -> bytes:
  """A `TensorFlow` message as bytes: the same in each call of this process."""
  return message.SerializeToString(deterministic=True)


def graph_def(message: Any) -> Any:
  """The graph of a `TensorFlow` message, as a new `tf.compat.v1.GraphDef`."""
  import tensorflow as tf

  graph = tf.compat.v1.GraphDef()
  message.graph_def.Unpack(graph)
  return graph


def initialize_op(message: Any) -> str:
  """The name of the op that has to run before a `TensorFlow` message's graph; '': there is none."""
  return message.initialize_op


def tensor_names(binding: Any) -> list[tuple[str, bool]]:
  """Of each leaf of a message's `parameter` or `result` its tensor's name; is it a sequence?"""
  kind = binding.WhichOneof('binding')
  if kind is None:
    return []
  if kind == 'tensor':
    return [(binding.tensor.tensor_name, False)]
  if kind == 'sequence':
    return [(binding.sequence.variant_tensor_name, True)]
  return [pair for element in binding.struct.element for pair in tensor_names(element)]


def attach(comp: Any, key: str, *values: Any) -> None:
  """Makes values live as long as a computation: it gets a list of them as an attribute."""
  vars(comp).setdefault(key, []).extend(values)


def replace_initial_weights(model: Any, weights: Any) -> None:
  """Gives a `tff.learning.models.FunctionalModel`, in place, other initial weights."""
  model._initial_weights = weights


# TFF: its worker, its data sources and its checkpoints.


def serializable() -> type:
  """The base class of what TFF's program state managers save by its `to_bytes`."""
  from tensorflow_federated.python.common_libs import serializable as lib

  base: type = lib.Serializable
  return base


def watch_worker_starts(watch: Callable[[int], None]) -> bool:
  """From now on each worker that TFF starts gets a session of its own; `watch` gets its process id.

  TFF has no place for this: its class `subprocess.Popen` is replaced. A session of its own keeps
  Ctrl-C in a terminal from the worker of a round that the program is about to finish. Returns False
  if this was done before: nothing has changed then.
  """
  popen = subprocess.Popen
  if getattr(popen, 'watches_tff', False):
    return False

  class WatchingPopen(popen):  # type: ignore[misc, valid-type]
    """`subprocess.Popen` that reports TFF's workers."""

    watches_tff = True

    def __init__(self, args: Any, *more: Any, **options: Any):
      command = args if isinstance(args, (str, bytes, os.PathLike)) else args[0]
      is_worker = os.path.basename(os.fsdecode(command)) == WORKER
      if is_worker:
        options['start_new_session'] = True
      super().__init__(args, *more, **options)
      if is_worker:
        watch(self.pid)

  subprocess.Popen = WatchingPopen  # type: ignore[misc]
  return True


def forget_workers() -> None:
  """Keeps TFF's contexts from signalling their workers once more when the interpreter exits.

  For a program that is ending and has killed the workers. The `__del__` of what holds a worker
  fails then with an ignored AttributeError: the modules that it uses are gone.
  """
  gc.unfreeze()  # Frozen objects, as a command has TFF's modules, are not among all objects.
  managers = {
    type(value)
    for value in gc.get_objects()
    if type(value).__qualname__ == 'local_cpp_executor_factory.<locals>.ServiceManager'
  }
  for manager in managers:  # One class for each context.
    manager.__del__ = lambda self: None


# Other packages.


def replace_queries(query: Any, total: Any, below: Any) -> None:
  """Gives a `tensorflow_privacy.QuantileAdaptiveClipSumQuery`, in place, other queries to ask."""
  query._sum_query = total
  query._quantile_estimator_query._below_estimate_query = below


def ray_attempt() -> int:
  """Inside a task of Ray: which attempt of Ray's this is, from 0."""
  from ray._private import worker

  global_worker: Any = worker.global_worker  # It gets its core worker when it connects.
  number: int = global_worker.core_worker.get_current_task_attempt_number()
  return number


def ray_nodes(task_id: bytes) -> list[str]:
  """The ids of the nodes that were given a task of Ray, as far as the head knows, in order."""
  from ray._private import state
  from ray.core.generated import gcs_pb2

  accessor: Any = state.state._connect_and_get_accessor()
  kind: Any = gcs_pb2.TaskEvents
  events = map(kind.FromString, accessor.get_task_events())
  tries = [event for event in events if event.task_id == task_id and event.state_updates.node_id]
  tries.sort(key=lambda event: event.attempt_number)
  return [event.state_updates.node_id.hex() for event in tries]
