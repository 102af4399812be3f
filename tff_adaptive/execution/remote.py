"""The clients of a computation on several machines, which run TFF's own workers.

The server's part runs here, in the graph engine. A cohort is divided into subrounds, which the
workers take one after another; their accumulators are merged in the order of the subrounds. So a
result depends on the number of subrounds and not, to the bit, on that of the workers.
"""

from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow_federated as tff

from tff_adaptive import addresses as addresses_lib
from tff_adaptive.execution import cache, connections, context, crew, split, values


class RemoteContext(tff.framework.SyncContext):
  """Runs what a computation's clients do on TFF workers, and the rest in this process.

  A worker that ends in the middle of a round is told of, and its clients go to the others: a
  result is made of exactly one result of each subround. Client-placed results are lists.
  """

  def __init__(
    self,
    addresses: Sequence[str],
    *,
    subrounds: int = addresses_lib.DEFAULT_SUBROUNDS,
    server: Any = None,
  ):
    """Connects to the workers.

    Args:
      addresses: 'host:port' of each worker (`scripts/worker.py`).
      subrounds: Into how many parts a cohort is divided; at least the number of workers. Results
        with the same number are equal to the bit, whatever the number of workers.
      server: The context of the server's part; default a `GraphContext`.

    Raises:
      ValueError: If an address is not one, or there are fewer subrounds than workers.
      WorkerError: If an address has no worker of this TFF version; within ten seconds.
    """
    addresses = addresses_lib.check(addresses)
    if subrounds < len(addresses):
      raise ValueError(
        f'subrounds is {subrounds}, fewer than the {len(addresses)} workers: some would be idle;'
        f' give {len(addresses)} or more'
      )
    self._subrounds = subrounds
    self._server = server or context.GraphContext()
    self._connections = [connections.Connection(address) for address in addresses]
    self._crew = crew.Crew(self._connections)
    self._programs = cache.Cache()
    self._crew.connect()

  @property
  def bytes_sent(self) -> int:
    """Bytes sent to the workers so far."""
    return sum(c.bytes_sent for c in self._connections)

  @property
  def bytes_received(self) -> int:
    """Bytes received from the workers so far."""
    return sum(c.bytes_received for c in self._connections)

  def announce(self, occasion: str, tell: Optional[Callable[[str], None]] = None) -> None:
    """Says what the next computations are for.

    Args:
      occasion: 'round 7', say; what is told of workers, and errors, begin with it.
      tell: Takes the lines that are told; default: as before, at first as warnings.
    """
    self._crew.occasion = occasion
    if tell is not None:
      self._crew.tell = tell

  def close(self) -> None:
    """Closes the connections."""
    self._crew.close()

  def invoke(self, comp: tff.framework.ConcreteComputation, arg: Any) -> Any:
    """Runs a computation; see `tff.framework.SyncContext.invoke`.

    Raises:
      WorkersLost: If no worker is left; nothing has changed.
    """
    parameter_type, result_type = comp.type_signature.parameter, comp.type_signature.result
    known = dict(_parts(arg, parameter_type)) if parameter_type is not None else {}
    types = dict(split.parts(parameter_type)) if parameter_type is not None else {}
    lengths = {len(known[key]) for key, type_spec in types.items() if _is_divided(type_spec)}
    if len(lengths) > 1:
      raise TypeError(f'client-placed arguments are for different numbers of clients: {lengths}')
    num_clients = lengths.pop() if lengths else 0
    if not num_clients:  # The server's alone.
      return self._server.invoke(comp, arg)
    program, natives = self._program(comp)
    for stage, native in zip(program.stages, natives):
      inputs = [known[key] for key in stage.inputs]
      if stage.at_clients:
        results = self._at_clients(stage, native, inputs, num_clients)
      else:
        argument = tff.structure.Struct.unnamed(*inputs) if inputs else None
        results = _elements(self._server.invoke(stage.comp, argument), stage.comp)
      known.update(zip(stage.outputs, results))
    for key in program.passed_on:  # As it would come back.
      known[key] = to_wire(known[key], types[key])
    return tff.types.type_to_py_container(
      _as_structs(program.result(known), result_type), result_type
    )

  def _program(self, comp):
    made = self._programs.of(comp)
    if not made:
      program = split.split(comp)
      natives = [
        tff.backends.native.desugar_and_transform_to_native(s.comp) if s.at_clients else None
        for s in program.stages
      ]
      made['program'] = program, natives
    return made['program']

  def _at_clients(self, stage, native, inputs, num_clients):
    """The outputs of a clients' stage: of all subrounds, joined and merged in their order."""
    types = [t for _, t in values.children(native.type_signature.parameter)]
    common = [None if _is_divided(t) else to_wire(v, t) for v, t in zip(inputs, types)]

    def task(clients):
      def run(connection):
        arguments = [
          to_wire([v[i] for i in clients], t) if _is_divided(t) else shared
          for v, t, shared in zip(inputs, types, common)
        ]
        argument = tff.structure.Struct.unnamed(*arguments)
        return _elements(connection.run(native, argument, len(clients)), native)

      return run

    parts = np.array_split(np.arange(num_clients), min(self._subrounds, num_clients))
    results = self._crew.run([task([int(i) for i in part]) for part in parts])
    num_joined = len(stage.outputs) - stage.num_aggregates
    joined = []
    for i, (_, type_spec) in enumerate(values.children(native.type_signature.result)):
      if i < num_joined:
        pieces = [result[i] for result in results]
        joined.append(_concatenated(pieces) if _is_divided(type_spec) else pieces[0])
    if not stage.num_aggregates:
      return joined
    accumulators = [tff.structure.Struct.unnamed(*result[num_joined:]) for result in results]
    merged = accumulators[0]
    for accumulator in accumulators[1:]:
      pair = tff.structure.Struct.unnamed(merged, accumulator)
      merged = self._server.invoke(stage.merge, pair)
    return joined + _elements(self._server.invoke(stage.report, merged), stage.report)


def set_remote_context(
  addresses: Sequence[str], *, subrounds: int = addresses_lib.DEFAULT_SUBROUNDS, server: Any = None
) -> RemoteContext:
  """Makes workers at these addresses run the clients of TFF computations in this process.

  Args:
    addresses: 'host:port' of each worker.
    subrounds: See `RemoteContext`.
    server: See `RemoteContext`.

  Returns:
    The context.

  Raises:
    ValueError: See `RemoteContext`.
    WorkerError: If an address has no worker of this TFF version.
  """
  remote = RemoteContext(addresses, subrounds=subrounds, server=server)
  tff.framework.set_default_context(remote)
  return remote


def to_wire(value: Any, type_spec: tff.types.Type) -> Any:
  """A value as TFF serializes it: of structs, lists, NumPy arrays and datasets.

  Raises:
    TypeError: As in the graph engine: TFF would cast some of what does not fit.
  """
  if isinstance(type_spec, tff.types.StructType):
    elements = zip(values.struct_elements(value, type_spec), values.children(type_spec))
    return tff.structure.Struct([(name, to_wire(v, t)) for v, (name, t) in elements])
  if isinstance(type_spec, tff.types.FederatedType):
    if _is_divided(type_spec):
      return [to_wire(v, type_spec.member) for v in value]
    return to_wire(value, type_spec.member)
  if isinstance(type_spec, tff.types.SequenceType):
    return _sequence_to_wire(value, type_spec.element)
  return values.to_tensor(value, type_spec).numpy()


def _sequence_to_wire(value, element_type):
  if not isinstance(value, (list, tuple)):
    values.dataset_variant(value, element_type)  # Checks it.
    return value
  rows = [zip(values.flatten(e, element_type), values.leaf_types(element_type)) for e in value]
  return [values.to_python([to_wire(v, t) for v, t in row], element_type) for row in rows]


def _concatenated(lists):
  return [value for values_ in lists for value in values_]


def _is_divided(type_spec):
  """Whether it has a value for each client."""
  return (
    isinstance(type_spec, tff.types.FederatedType)
    and type_spec.placement is tff.CLIENTS
    and not type_spec.all_equal
  )


def _parts(value, type_spec, key=('arg',)):
  """Pairs of key and value of the parts of an argument; see `split.parts`."""
  if not isinstance(type_spec, tff.types.StructType):
    yield key, value
    return
  elements = zip(values.struct_elements(value, type_spec), values.children(type_spec))
  for i, (element, (_, child)) in enumerate(elements):
    yield from _parts(element, child, (*key, i))


def _elements(result, comp):
  return values.struct_elements(result, comp.type_signature.result)


def _as_structs(value, type_spec):
  """A result with a Struct for each container, as TFF turns them into its own containers."""
  if isinstance(type_spec, tff.types.FederatedType):
    if _is_divided(type_spec):
      return [_as_structs(v, type_spec.member) for v in value]
    return _as_structs(value, type_spec.member)
  if not isinstance(type_spec, tff.types.StructType):
    return value
  elements = zip(values.struct_elements(value, type_spec), values.children(type_spec))
  return tff.structure.Struct([(name, _as_structs(v, t)) for v, (name, t) in elements])
