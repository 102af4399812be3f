"""Cuts a federated computation into stages that the server and the clients run in turn.

In call-dominant form a computation is a list of calls. Each call goes into the first stage in which
all its inputs are known. The server runs even stages, the clients odd ones. An aggregate belongs
to the clients' stage up to its accumulators; the accumulators of several groups of clients are
merged afterwards. A clients' stage gets only the broadcast of the server's state, and the new
client states are among its results. Its last input is the clients' places in the cohort, on which
their random numbers depend.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow_federated as tff

from tff_adaptive._utils import gathered, private_apis
from tff_adaptive.engine.cluster import wire
from tff_adaptive.engine.graph import context, feeds, values

Block = Any  # A building block of TFF's.
Octets = tuple[bytes, bytes | None, int]

_framework = private_apis.framework()
_AGGREGATE = _framework.FEDERATED_AGGREGATE.uri
_INPUT = 'stage_input'
ARGUMENT = 'argument_part'  # 'argument_part_0_1' is argument[0][1]; calls have TFF's names.


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
  """A part of a computation that the server, or the clients, run without exchanging values.

  In a worker, which reads the stage from bytes, `report`, `inputs` and `outputs` are not set.

  Attributes:
    engine: The engine that runs the stage.
    comp: The stage as a computation `<inputs> -> <outputs>`.
    merge: A computation `<accumulators, accumulators> -> accumulators`; None without aggregates.
    report: A computation `accumulators -> values of the aggregates`; None without aggregates.
    num_aggregates: The number of aggregates. Their accumulators are the last outputs.
    at_clients: Whether the clients run the stage.
    inputs: The names of the elements of the parameter of `comp`.
    outputs: The names of the elements of the result of `comp`.
  """

  engine: context.GraphContext
  comp: tff.framework.ConcreteComputation
  merge: tff.framework.ConcreteComputation | None = None
  report: tff.framework.ConcreteComputation | None = None
  num_aggregates: int = 0
  at_clients: bool = True
  inputs: tuple[str, ...] = ()
  outputs: tuple[str, ...] = ()

  @functools.cached_property
  def input_types(self) -> list[tff.types.Type]:
    """The types of the inputs."""
    return list(self.comp.type_signature.parameter)

  @functools.cached_property
  def result_types(self) -> list[tff.types.Type]:
    """The types of the results except accumulators."""
    types = list(self.comp.type_signature.result)
    return types[: len(types) - self.num_aggregates]

  @functools.cached_property
  def _sum_types(self) -> list[tff.types.Type]:
    return list(self.comp.type_signature.result)[len(self.result_types) :]

  def octets(self) -> Octets:
    """Returns a clients' stage in a form that other processes can `read`."""
    merge = self.merge and private_apis.computation_bytes(self.merge)
    return private_apis.computation_bytes(self.comp), merge, self.num_aggregates

  @classmethod
  def read(cls, octets: Octets, engine: context.GraphContext) -> 'Stage':
    """Returns the stage that the method `octets` serialized in another process."""
    comp, merge, num_aggregates = octets
    read = private_apis.computation_from_bytes
    return cls(engine, read(comp), merge and read(merge), num_aggregates=num_aggregates)

  def run(self, inputs: list[Any]) -> list[Any]:
    """Runs the stage and returns its outputs."""
    argument = None
    if inputs:
      names = [name for name, _ in values.children(self.comp.type_signature.parameter)]
      argument = tff.structure.Struct(list(zip(names, inputs)))
    return self._elements(self.comp, argument)

  def train(self, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Trains clients. Returns a flat accumulator for each aggregate, and the other results."""
    outputs = self.run(inputs)
    count = len(self.result_types)
    return self._flat(outputs[count:]), outputs[:count]

  def merged(self, one: list[Any], other: list[Any]) -> list[Any]:
    """Merges the accumulators returned by two calls of `train`; [] if there are no aggregates."""
    if self.merge is None:
      return []
    sides = tff.structure.Struct.unnamed(self._decode(one), self._decode(other))
    return self._flat(self._elements(self.merge, sides))

  def in_order(self, sums: list[Any], parts: Sequence[Sequence[int]]) -> list[Any]:
    """Returns merged accumulators; those with a row for each client have the cohort's order.

    Args:
      sums: The accumulators of subrounds, merged in the order of these.
      parts: The clients' positions in the cohort, for each subround.
    """
    order = np.argsort([position for part in parts for position in part])
    ordered = []
    for flat, type_spec in zip(sums, self._sum_types):
      if gathered.has_rows_of_clients(wire.member(type_spec)):
        flat = [np.asarray(leaf)[order] for leaf in flat]
      ordered.append(flat)
    return ordered

  def reported(self, sums: list[Any]) -> list[Any]:
    """Returns the values of the aggregates, given their accumulators."""
    if self.report is None:
      return []
    return self._elements(self.report, self._decode(sums))

  def _elements(self, comp: Any, argument: Any) -> list[Any]:
    return values.struct_elements(self.engine.invoke(comp, argument), comp.type_signature.result)

  def _flat(self, sums: list[Any]) -> list[Any]:
    return [values.flatten(v, wire.member(t)) for v, t in zip(sums, self._sum_types)]

  def _decode(self, sums: list[Any]) -> Any:
    decoded = [wire.decode(v, t) for v, t in zip(sums, self._sum_types)]
    return tff.structure.Struct.unnamed(*decoded)


@dataclasses.dataclass(frozen=True)
class Program:
  """A computation as a sequence of stages.

  Attributes:
    stages: The stages in the order in which they run.
    passed_on: The names of the parts of the argument that are parts of the result too.
    result: A function that returns the result, given a mapping from names to values.
  """

  stages: tuple[Stage, ...]
  passed_on: tuple[str, ...]
  result: Callable[[Mapping[str, Any]], Any]


def split(comp: tff.framework.ConcreteComputation, engine: context.GraphContext) -> Program:
  """Cuts a computation, which must have a parameter, into stages that `engine` runs."""
  return _Splitter(private_apis.to_call_dominant(comp), engine).program()


class _Splitter:
  """Finds the stage of each call of a computation."""

  def __init__(self, block: Block, engine: context.GraphContext):
    self._engine = engine
    self._parameter = block.parameter_name
    self._types: dict[str, tff.types.Type] = {}  # By the name of an argument's part or a call.
    body, _ = _framework.transform_preorder(block.result, self._with_part_named)
    self._result = body
    self._calls: dict[str, Block] = {}
    if isinstance(body, _framework.Block):  # Otherwise the computation only selects parts.
      self._result = body.result
      self._calls = dict(body.locals)
    self._types.update((name, call.type_signature) for name, call in self._calls.items())
    self._stages: dict[str, int | None] = {}  # None: the call is part of each stage that uses it.
    self._assign_stages()

  def _assign_stages(self) -> None:
    """Finds the first stage in which each call's inputs are known."""
    known: dict[str, int] = {}  # The first stage in which a call's value can be an input.
    for name, call in self._calls.items():
      needs = [known.get(other, 0) for other in self._needs(call)]
      placement = getattr(call.type_signature, 'placement', None)
      at_clients = placement is tff.CLIENTS or _is_aggregate(call)
      # A constant, or a function that others call, costs less to repeat than to send.
      if placement is None and not needs and not _draws(call):
        self._stages[name] = None
        continue
      stage = max(needs, default=0)
      is_of_clients = stage % 2 == 1
      if is_of_clients != at_clients:
        stage += 1
      self._stages[name] = stage
      known[name] = stage
      if _is_aggregate(call):  # The server reports it after the accumulators are merged.
        known[name] = stage + 1

  def _with_part_named(self, block: Block) -> tuple[Block, bool]:
    """Replaces a selection of a part of the argument by a reference, or a struct of references."""
    path: list[int] = []
    root = block
    while isinstance(root, _framework.Selection):
      path.insert(0, root.as_index())
      root = root.source
    if not isinstance(root, _framework.Reference) or root.name != self._parameter:
      return block, False
    type_spec = root.type_signature
    name = ARGUMENT
    for index in path:
      type_spec = type_spec[index]
      name = f'{name}_{index}'
    return self._part(type_spec, name), True

  def _part(self, type_spec: tff.types.Type, name: str) -> Block:
    # Leaf by leaf, so that a stage gets only what it reads.
    if isinstance(type_spec, tff.types.StructType):
      children = enumerate(tff.structure.iter_elements(type_spec))
      return _framework.Struct([(n, self._part(t, f'{name}_{i}')) for i, (n, t) in children])
    self._types[name] = type_spec
    return _framework.Reference(name, type_spec)

  def program(self) -> Program:
    last = max((s for s in self._stages.values() if s is not None), default=-1)
    stages = []
    for number in range(last + 1):
      names = [name for name, stage in self._stages.items() if stage == number]
      # Stage 0, the server's, has no calls if the clients need nothing but parts of the argument.
      if names:
        stages.append(self._stage(number, names))
    passed_on = tuple(name for name in self._needs(self._result) if name not in self._calls)
    return Program(tuple(stages), passed_on, functools.partial(_resolved, self._result))

  def _stage(self, number: int, names: list[str]) -> Stage:
    """Builds the stage `number`, which has the calls of these names."""
    aggregates = [n for n in names if _is_aggregate(self._calls[n])]
    inside = set(names) | self._repeated_for(names)
    calls = {n: call for n, call in self._calls.items() if n in inside}
    inputs: dict[str, None] = {}  # A dictionary, because a set would lose the order.
    for call in calls.values():
      inputs.update(dict.fromkeys(n for n in self._names(call) if n not in inside))
    elements: list[Any] = [self._types[name] for name in inputs]
    if number % 2:  # Last, and known by its name in the engine.
      inputs[feeds.POSITIONS] = None
      elements.append((feeds.POSITIONS, tff.FederatedType(np.int32, tff.CLIENTS)))
    parameter_type = tff.types.StructType(elements)
    parameter = _framework.Reference(_INPUT, parameter_type)
    given = [
      (name, _framework.Selection(parameter, index=i))
      for i, name in enumerate(inputs)
      if name != feeds.POSITIONS
    ]
    # The report comes last, after the accumulators of all workers are merged.
    calls.update((name, _with_identity_report(calls[name])) for name in aggregates)
    # Only what somebody reads later travels.
    needed = self._needed_after(number)
    outputs = [n for n in names if n in needed and n not in aggregates]
    outputs += aggregates
    result = _framework.Struct([_framework.Reference(n, calls[n].type_signature) for n in outputs])
    merge, report = self._merge_and_report([self._calls[n] for n in aggregates])
    return Stage(
      self._engine,
      _computation(parameter_type, _framework.Block([*given, *calls.items()], result)),
      merge,
      report,
      num_aggregates=len(aggregates),
      at_clients=bool(number % 2),
      inputs=tuple(inputs),
      outputs=tuple(outputs),
    )

  def _needed_after(self, number: int) -> set[str]:
    """Returns the names that the result, or the stages after `number`, need."""
    needed = set(self._needs(self._result))
    for name, call in self._calls.items():
      if (self._stages[name] or 0) > number:
        needed.update(self._needs(call))
    return needed

  def _repeated_for(self, names: list[str]) -> set[str]:
    """Returns the calls without a stage of their own that some calls need, also indirectly."""
    repeated: set[str] = set()
    queue = list(names)
    while queue:
      for name in self._names(self._calls[queue.pop()]):
        if self._stages.get(name, 0) is None and name not in repeated:
          repeated.add(name)
          queue.append(name)
    return repeated

  def _names(self, block: Block) -> list[str]:
    """Returns the names of the argument's parts, and of the calls, to which a block refers."""
    names: dict[str, None] = {}

    def note(inner: Block) -> tuple[Block, bool]:
      if isinstance(inner, _framework.Reference) and inner.name in self._types:
        names[inner.name] = None
      return inner, False

    _framework.transform_preorder(block, note)
    return list(names)

  def _needs(self, block: Block) -> list[str]:
    """Returns `_names` without the calls that are repeated in each stage that uses them."""
    return [name for name in self._names(block) if self._stages.get(name, 0) is not None]

  def _merge_and_report(self, calls: list[Block]) -> tuple[Any, Any]:
    """Builds computations that merge and report all accumulators of a stage at once."""
    if not calls:
      return None, None
    functions = [list(call.argument) for call in calls]
    # The merges run in workers too, which know only the accumulators.
    for _, _, _, merge, report in functions:
      if self._names(merge) or self._names(report):
        raise NotImplementedError('an aggregate whose merge or report depends on other values')
    accumulators = tff.types.StructType(
      [report.type_signature.parameter for *_, report in functions]
    )
    pair_type = tff.types.StructType([accumulators, accumulators])
    pair = _framework.Reference(_INPUT, pair_type)
    both = [_framework.Selection(pair, index=i) for i in (0, 1)]
    one = _framework.Reference(_INPUT, accumulators)
    merged = []
    reported = []
    for i, (_, _, _, merge, report) in enumerate(functions):
      arguments = [_framework.Selection(side, index=i) for side in both]
      merged.append(_framework.Call(merge, _framework.Struct(arguments)))
      reported.append(_framework.Call(report, _framework.Selection(one, index=i)))
    return (
      _computation(pair_type, _framework.Struct(merged)),
      _computation(accumulators, _framework.Struct(reported)),
    )


def _resolved(block: Block, known: Mapping[str, Any]) -> Any:
  """Returns a result's value. `block` is a name in `known`, or a struct of such references."""
  if isinstance(block, _framework.Struct):
    elements = tff.structure.iter_elements(block)
    return tff.structure.Struct([(n, _resolved(b, known)) for n, b in elements])
  if not isinstance(block, _framework.Reference) or block.name not in known:
    raise NotImplementedError(f'a result of the form {block.compact_representation():.80}')
  return known[block.name]


def _draws(call: Block) -> bool:
  """Returns whether a call is stateful, such as a random draw. It then runs once, at the server."""
  if not isinstance(call, _framework.Call):
    return False
  function = call.function
  if not isinstance(function, _framework.CompiledComputation):
    return False
  graph_def = private_apis.graph_def(private_apis.tensorflow_of(function))
  return any(private_apis.is_stateful(node.op) for node in private_apis.all_nodes(graph_def))


def _is_aggregate(call: Block) -> bool:
  function = getattr(call, 'function', None)
  return isinstance(function, _framework.Intrinsic) and function.uri == _AGGREGATE


def _with_identity_report(call: Block) -> Block:
  """Returns an aggregate's call, changed so that its result is the accumulator."""
  *arguments, _ = call.argument
  # Not the arguments' own types: an argument may be all-equal, with one value for all clients.
  *types, report = call.function.type_signature.parameter
  identity = _framework.Lambda(
    'accumulator', report.parameter, _framework.Reference('accumulator', report.parameter)
  )
  type_spec = tff.types.FunctionType(
    tff.types.StructType([*types, identity.type_signature]),
    tff.types.FederatedType(report.parameter, tff.SERVER),
  )
  return _framework.Call(
    _framework.Intrinsic(_AGGREGATE, type_spec), _framework.Struct([*arguments, identity])
  )


def _computation(
  parameter_type: tff.types.StructType, body: Block
) -> tff.framework.ConcreteComputation:
  if len(parameter_type):
    function = _framework.Lambda(_INPUT, parameter_type, body)
  else:  # The engine calls it without an argument.
    function = _framework.Lambda(None, None, body)
  return private_apis.to_computation(function)
