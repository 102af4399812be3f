"""A federated computation cut into what the server and what the clients do, in turn.

In call-dominant form a computation is a list of calls. Each goes into the first stage in which
all that it needs is known: even stages are the server's, odd ones the clients'. An aggregate
belongs to the clients' stage, up to its accumulators: those of several groups of clients are
merged afterwards. So a stage of the clients is given what the server broadcasts, and no more of
the server's state, and what clients keep is a result of the stage that trained them.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import tensorflow_federated as tff

from tff_adaptive._utils import private_apis
from tff_adaptive.engine.cluster import wire
from tff_adaptive.engine.graph import context, values

Key = tuple[Any, ...]  # ('arg', 0, 1): a placed part of the argument; ('local', name): a call.
Block = Any  # A building block of TFF's.
Octets = tuple[bytes, bytes | None, int]
Outside = Callable[[Key, tff.types.Type], Block]

_framework = private_apis.framework()
_AGGREGATE = _framework.FEDERATED_AGGREGATE.uri
_INPUT = 'stage_input'


@dataclasses.dataclass(frozen=True, eq=False)
class Stage:
  """What the server, or the clients, can do with what is known by then, and the engine that does.

  Of a stage that was read in another process, where clients are trained, the other fields are not
  set.
  """

  engine: context.GraphContext
  comp: tff.framework.ConcreteComputation  # `<inputs> -> <outputs>`.
  # `<accumulators, accumulators> -> accumulators`, and `accumulators -> values of the aggregates`.
  merge: tff.framework.ConcreteComputation | None = None
  report: tff.framework.ConcreteComputation | None = None
  num_aggregates: int = 0
  at_clients: bool = True
  inputs: tuple[Key, ...] = ()  # What its parameter's elements are.
  outputs: tuple[Key, ...] = ()  # What its result's are; of aggregates, the last, accumulators.

  @functools.cached_property
  def input_types(self) -> list[tff.types.Type]:
    return _types(self.comp.type_signature.parameter)

  @functools.cached_property
  def result_types(self) -> list[tff.types.Type]:
    """Of what it gives but for accumulators."""
    types = _types(self.comp.type_signature.result)
    return types[: len(types) - self.num_aggregates]

  @functools.cached_property
  def _sum_types(self) -> list[tff.types.Type]:
    return _types(self.comp.type_signature.result)[len(self.result_types) :]

  def octets(self) -> Octets:
    """A clients' stage as any process can read it."""
    merge = self.merge and private_apis.computation_bytes(self.merge)
    return private_apis.computation_bytes(self.comp), merge, self.num_aggregates

  @classmethod
  def read(cls, octets: Octets, engine: context.GraphContext) -> 'Stage':
    """The stage in this process."""
    comp, merge, num_aggregates = octets
    read = private_apis.computation_from_bytes
    return cls(engine, read(comp), merge and read(merge), num_aggregates=num_aggregates)

  def run(self, inputs: list[Any]) -> list[Any]:
    """Its outputs."""
    return self._elements(self.comp, tff.structure.Struct.unnamed(*inputs) if inputs else None)

  def train(self, inputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Runs the stage for some clients: accumulators as flat tensors, and other results."""
    outputs, count = self.run(inputs), len(self.result_types)
    return self._flat(outputs[count:]), outputs[:count]

  def merged(self, one: list[Any], other: list[Any]) -> list[Any]:
    """The accumulators of two calls in one, as flat tensors; a stage may have none."""
    if self.merge is None:
      return []
    sides = tff.structure.Struct.unnamed(self._decode(one), self._decode(other))
    return self._flat(self._elements(self.merge, sides))

  def reported(self, sums: list[Any]) -> list[Any]:
    """The values of the aggregates."""
    return self._elements(self.report, self._decode(sums)) if self.report else []

  def _elements(self, comp: Any, argument: Any) -> list[Any]:
    return values.struct_elements(self.engine.invoke(comp, argument), comp.type_signature.result)

  def _flat(self, sums: list[Any]) -> list[Any]:
    return [values.flatten(v, wire.member(t)) for v, t in zip(sums, self._sum_types)]

  def _decode(self, sums: list[Any]) -> Any:
    pairs = zip(sums, self._sum_types)
    return tff.structure.Struct.unnamed(*(wire.decode(v, t) for v, t in pairs))


@dataclasses.dataclass(frozen=True)
class Program:
  """A computation as stages, in order."""

  stages: tuple[Stage, ...]
  passed_on: tuple[Key, ...]  # The parts of the argument of which the result is made.
  result: Callable[[dict[Key, Any]], Any]  # From values by key to its result.


def split(comp: tff.framework.ConcreteComputation, engine: context.GraphContext) -> Program:
  """Cuts a computation with an argument into stages."""
  return _Splitter(private_apis.to_call_dominant(comp), engine).program()


class _Splitter:
  """The calls of a computation, and the stage of each."""

  def __init__(self, block: Block, engine: context.GraphContext):
    self._engine = engine
    self._parameter = block.parameter_name
    body = block.result
    is_block = isinstance(body, _framework.Block)
    self._result = body.result if is_block else body
    self._calls = dict(body.locals) if is_block else {}
    self._stages: dict[str, int | None] = {}  # None: needs nothing, made wherever it is used.
    known: dict[Key, int] = {}
    for name, call in self._calls.items():
      needs = [known.get(key, 0) for key in self._needs(call)]
      placement = getattr(call.type_signature, 'placement', None)
      at_clients = placement is tff.CLIENTS or _is_aggregate(call)
      if placement is None and not needs and not _draws(call):
        self._stages[name] = None
        continue
      stage = max(needs, default=0)
      stage += stage % 2 != at_clients
      self._stages[name] = stage
      known['local', name] = stage + _is_aggregate(call)

  def program(self) -> Program:
    last = max((s for s in self._stages.values() if s is not None), default=-1)
    stages = []
    for number in range(last + 1):
      names = [name for name, stage in self._stages.items() if stage == number]
      if names:
        stages.append(self._stage(number, names))
    passed_on = tuple(key for key in self._needs(self._result) if key[0] == 'arg')
    return Program(tuple(stages), passed_on, self._resolve_result)

  def _stage(self, number: int, names: list[str]) -> Stage:
    later = [c for n, c in self._calls.items() if (self._stages[n] or 0) > number]
    needed = {key for block in (*later, self._result) for key in self._needs(block)}
    aggregates = [n for n in names if _is_aggregate(self._calls[n])]
    results = [n for n in names if ('local', n) in needed and n not in aggregates]
    made = set(names) | self._made_anywhere(names)
    inputs: dict[Key, tff.types.Type] = {}
    for name in [n for n in self._calls if n in made]:
      for key, type_spec in self._references(self._calls[name]):
        if key[0] != 'local' or key[1] not in made:
          inputs.setdefault(key, type_spec)
    parameter_type = tff.types.StructType(list(inputs.values()))
    parameter = _framework.Reference(_INPUT, parameter_type)
    positions = {key: i for i, key in enumerate(inputs)}

    def outside(key: Key, type_spec: tff.types.Type) -> Block:
      if key[0] == 'local' and key[1] in made:
        return _framework.Reference(key[1], type_spec)
      return _framework.Selection(parameter, index=positions[key])

    calls = {}
    for name, call in self._calls.items():
      if name in made:
        call = self._rewrite(call, outside)
        calls[name] = _with_identity_report(call) if name in aggregates else call
    outputs = [*results, *aggregates]
    result = _framework.Struct([_framework.Reference(n, calls[n].type_signature) for n in outputs])
    merge, report = self._merge_and_report([self._calls[n] for n in aggregates])
    return Stage(
      self._engine,
      at_clients=bool(number % 2),
      comp=_computation(parameter_type, _framework.Block(list(calls.items()), result)),
      inputs=tuple(inputs),
      outputs=tuple(('local', n) for n in outputs),
      num_aggregates=len(aggregates),
      merge=merge,
      report=report,
    )

  def _made_anywhere(self, names: list[str]) -> set[str]:
    made: set[str] = set()
    queue = list(names)
    while queue:
      for key, _ in self._references(self._calls[queue.pop()]):
        if key[0] == 'local' and self._stages[key[1]] is None and key[1] not in made:
          made.add(key[1])
          queue.append(key[1])
    return made

  def _references(self, block: Block) -> list[tuple[Key, tff.types.Type]]:
    """Keys and types of the parts of the argument, and of the calls, that a block refers to."""
    found: list[tuple[Key, tff.types.Type]] = []

    def outside(key: Key, type_spec: tff.types.Type) -> Block:
      found.append((key, type_spec))
      return _framework.Reference('_', type_spec)

    self._rewrite(block, outside)
    return found

  def _needs(self, block: Block) -> list[Key]:
    """Keys of what a block refers to, but for calls that are made wherever they are used."""
    keys = [key for key, _ in self._references(block)]
    return [k for k in keys if k[0] != 'local' or self._stages[k[1]] is not None]

  def _merge_and_report(self, calls: list[Block]) -> tuple[Any, Any]:
    """Merges and reports all accumulators of a stage at once."""
    if not calls:
      return None, None
    functions = [[f for _, f in tff.structure.iter_elements(call.argument)] for call in calls]
    for _, _, _, merge, report in functions:
      if self._references(merge) or self._references(report):
        raise NotImplementedError('an aggregate whose merge or report depends on other values')
    accumulators = tff.types.StructType([f[4].type_signature.parameter for f in functions])
    pair_type = tff.types.StructType([accumulators, accumulators])
    pair = _framework.Reference(_INPUT, pair_type)
    both = [_framework.Selection(pair, index=i) for i in (0, 1)]
    one = _framework.Reference(_INPUT, accumulators)
    merged, reported = [], []
    for i, (_, _, _, merge, report) in enumerate(functions):
      arguments = [_framework.Selection(side, index=i) for side in both]
      merged.append(_framework.Call(merge, _framework.Struct(arguments)))
      reported.append(_framework.Call(report, _framework.Selection(one, index=i)))
    return (
      _computation(pair_type, _framework.Struct(merged)),
      _computation(accumulators, _framework.Struct(reported)),
    )

  def _rewrite(self, block: Block, outside: Outside) -> Block:
    """The block with `outside(key, type)` for each part of the argument and each call in it."""
    framework = tff.framework
    again = lambda inner: self._rewrite(inner, outside)  # noqa: E731
    if isinstance(block, (framework.Reference, framework.Selection)):
      path: list[int] = []
      root = block
      while isinstance(root, framework.Selection):
        path.insert(0, _index(root))
        root = root.source
      if not isinstance(root, framework.Reference):
        return framework.Selection(again(block.source), index=_index(block))
      if root.name == self._parameter:
        return self._of_argument(root.type_signature, path, outside)
      if root.name not in self._calls:
        return block
      found = outside(('local', root.name), root.type_signature)
      return _select(found, path)
    if isinstance(block, framework.Struct):
      return framework.Struct([(n, again(b)) for n, b in tff.structure.iter_elements(block)])
    if isinstance(block, framework.Call):
      argument = None if block.argument is None else again(block.argument)
      return framework.Call(again(block.function), argument)
    if isinstance(block, framework.Lambda):
      return framework.Lambda(block.parameter_name, block.parameter_type, again(block.result))
    if isinstance(block, framework.Block):
      return framework.Block([(n, again(b)) for n, b in block.locals], again(block.result))
    return block

  def _of_argument(
    self, type_spec: tff.types.Type, path: list[int], outside: Outside, key: Key = ('arg',)
  ) -> Block:
    """The part of the argument at a path: of a placed part, or a struct of such."""
    if not isinstance(type_spec, tff.types.StructType):
      return _select(outside(key, type_spec), path)
    if path:
      child = type_spec[path[0]]
      return self._of_argument(child, path[1:], outside, (*key, path[0]))
    children = enumerate(tff.structure.iter_elements(type_spec))
    return _framework.Struct(
      [(n, self._of_argument(child, [], outside, (*key, i))) for i, (n, child) in children]
    )

  def _resolve_result(self, known: dict[Key, Any]) -> Any:
    keys: list[Key] = []

    def outside(key: Key, type_spec: tff.types.Type) -> Block:
      keys.append(key)
      return _framework.Reference(str(len(keys) - 1), type_spec)

    def resolve(block: Block) -> Any:
      if isinstance(block, _framework.Struct):
        return tff.structure.Struct(
          [(n, resolve(b)) for n, b in tff.structure.iter_elements(block)]
        )
      name = getattr(block, 'name', None) or ''
      if not name.isdigit() or keys[int(name)] not in known:
        raise NotImplementedError(f'a result of the form {block.compact_representation():.80}')
      return known[keys[int(name)]]

    return resolve(self._rewrite(self._result, outside))


def _types(struct: tff.types.StructType) -> list[tff.types.Type]:
  return [t for _, t in values.children(struct)]


def _draws(call: Block) -> bool:
  """Whether two calls may give unlike values: it must be one then, made at the server."""
  if not isinstance(call, _framework.Call):
    return False
  function = call.function
  if not isinstance(function, _framework.CompiledComputation):
    return False
  graph_def = private_apis.graph_def(private_apis.tensorflow_of(function))
  nodes = [*graph_def.node, *(n for f in graph_def.library.function for n in f.node_def)]
  return any(private_apis.is_stateful(node.op) for node in nodes)


def _is_aggregate(call: Block) -> bool:
  function = getattr(call, 'function', None)
  return isinstance(function, _framework.Intrinsic) and function.uri == _AGGREGATE


def _index(selection: Block) -> int:
  if selection.index is not None:
    return selection.index
  names = [name for name, _ in tff.structure.iter_elements(selection.source.type_signature)]
  return names.index(selection.name)


def _select(block: Block, path: list[int]) -> Block:
  for index in path:
    block = _framework.Selection(block, index=index)
  return block


def _with_identity_report(call: Block) -> Block:
  """The aggregate's call with its accumulator as the result."""
  *arguments, _ = [a for _, a in tff.structure.iter_elements(call.argument)]
  # Of the intrinsic, not of its arguments: a value equal at all clients is one of each client's.
  *types, report = [
    t for _, t in tff.structure.iter_elements(call.function.type_signature.parameter)
  ]
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
  name = _INPUT if len(parameter_type) else None
  return private_apis.to_computation(
    _framework.Lambda(name, parameter_type if name else None, body)
  )
