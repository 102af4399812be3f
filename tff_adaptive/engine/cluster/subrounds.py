"""A cohort in subrounds: the clients' stages of a computation part by part, the server's whole.

A result depends on the number of subrounds and not, to the bit, on where they are trained, in
which order they end, or what has to be done again.
"""

import contextlib
import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import client_references
from tff_adaptive.engine.cluster import schedule, stages, wire
from tff_adaptive.engine.graph import cache, context, feeds, values


class Workload(NamedTuple):
  """A clients' stage and its cohort."""

  calls: stages.StageCalls
  inputs: list[Any]  # A value for each of the stage's; of those divided among clients a list.
  parts: list[list[int]]  # The clients' positions in the cohort, for each subround.
  costs: list[float]  # What each subround costs.
  stored: dict[int, int]  # Position of each result that an input's source keeps -> the input's.


class Outcome(NamedTuple):
  """What has become of a workload.

  Attributes:
    sums: The accumulators of all clients, merged in the order of `schedule.MergeTree`; each flat.
    results: For each subround its other results, encoded; of those stored the pickled receipts.
  """

  sums: list[Any]
  results: list[list[Any]]


def train(workload: Workload) -> Outcome:
  """Trains all subrounds here, one after another."""
  trained = [train_part(workload, part) for part in workload.parts]
  tree = schedule.MergeTree(len(trained))
  sums = tree.fold([sums for sums, _ in trained], workload.calls.merge)
  return Outcome(sums, [results for _, results in trained])


def train_part(workload: Workload, part: Sequence[int]) -> tuple[list[Any], list[Any]]:
  """Trains the clients of one subround: accumulators, and other results."""
  calls = workload.calls
  is_divided = [wire.is_divided(t) for t in calls.input_types]
  inputs = [[v[i] for i in part] if d else v for v, d in zip(workload.inputs, is_divided)]
  loaded = [client_references.resolve(v) if d else v for v, d in zip(inputs, is_divided)]
  sums, results = calls.train(loaded)
  for position, source in workload.stored.items():
    references = inputs[source]
    keys = [reference.key for reference in references]
    store_result(calls, results, position, references[0].source, keys)
  return sums, results


def store_result(
  calls: stages.StageCalls,
  results: list[Any],
  position: int,
  source: client_references.StoringSource,
  keys: Sequence[Any],
) -> None:
  """Has a source keep one of a stage's results; its receipts take the result's place, pickled."""
  member = wire.member(calls.result_types[position])
  receipts = source.store(keys, wire.decode_clients(results[position], member))
  results[position] = pickle.dumps(receipts)


class SubroundContext(tff.framework.SyncContext):
  """Runs TFF computations with their cohort in subrounds, in this process or elsewhere.

  Client-placed results are a sequence with one value a client.
  """

  def __init__(
    self,
    subrounds: int = schedule.DEFAULT_SUBROUNDS,
    *,
    server: context.GraphContext | None = None,
    train: Callable[[Workload], Outcome] = train,
  ):
    """Creates the context.

    Args:
      subrounds: Into how many parts a cohort is divided. Results with the same number are equal to
        the bit wherever they are computed, if operations use one thread each.
      server: The engine of the server's part; default a `GraphContext`.
      train: Trains the clients; default: the server's engine does.

    Raises:
      ValueError: If `subrounds` is below 1.
    """
    schedule.check_subrounds(subrounds)
    self._subrounds = subrounds
    self._server = server or context.GraphContext()
    self._train = train
    self._programs = cache.Cache()

  def invoke(self, comp: tff.framework.ConcreteComputation, arg: Any) -> Any:
    """Runs a computation; see `GraphContext.invoke`. `WorkersLost` if no worker is left."""
    parameter_type, result_type = comp.type_signature.parameter, comp.type_signature.result
    if parameter_type is None:
      return self._server.invoke(comp, arg)
    known = dict(_parts(arg, parameter_type))
    types = dict(stages.parts(parameter_type))
    num_clients = _num_clients(known, types)
    program, calls = self._program(comp) if num_clients else (None, [])
    if program is None:
      return self._server.invoke(comp, arg)
    costs = _costs(known, types, num_clients)
    for stage, stage_call in zip(program.stages, calls):
      inputs = [known[key] for key in stage.inputs]
      if stage_call is not None:
        results = self._at_clients(program, stage, stage_call, inputs, costs)
      else:
        argument = tff.structure.Struct.unnamed(*inputs) if inputs else None
        results = _elements(self._server.invoke(stage.comp, argument), stage.comp)
      known.update(zip(stage.outputs, results))
    for key in program.passed_on:
      known[key] = _as_returned(known[key], types[key])
    result = _as_structs(program.result(known), result_type)
    return tff.types.type_to_py_container(result, context.without_placements(result_type))

  def _program(self, comp: Any) -> tuple[stages.Program | None, list[Any]]:
    made = self._programs.of(comp)
    if not made:
      program = stages.split(comp)
      calls = [
        stages.StageCalls(s.comp, s.merge, s.num_aggregates, self._server) if s.at_clients else None
        for s in program.stages
      ]
      # Where nothing says how many clients a part has, the whole is done undivided.
      can_divide = all(any(map(wire.is_divided, c.input_types)) for c in calls if c is not None)
      made['program'] = program if can_divide else None, calls
    return made['program']

  def _at_clients(
    self,
    program: stages.Program,
    stage: stages.Stage,
    calls: stages.StageCalls,
    inputs: list[Any],
    costs: Sequence[float],
  ) -> list[Any]:
    """The outputs of a clients' stage: of all subrounds, joined and merged."""
    parts = schedule.divide(costs, self._subrounds)
    of_parts = [sum(costs[i] for i in part) for part in parts]
    stored = _stored(program, stage, calls, inputs)
    outcome = self._train(Workload(calls, inputs, parts, of_parts, stored))
    joined = []
    for i, type_spec in enumerate(calls.result_types):
      pieces, member = [results[i] for results in outcome.results], wire.member(type_spec)
      if i in stored:
        joined.append(wire.in_order([pickle.loads(piece) for piece in pieces], parts))
      elif wire.is_divided(type_spec):
        joined.append(wire.join_clients(pieces, parts, member))
      else:
        joined.append(wire.to_python(pieces[0], member))  # One value for all clients.
    if stage.num_aggregates:
      report = self._server.invoke(stage.report, calls.decode_sums(outcome.sums))
      joined += _elements(report, stage.report)
    return joined


def set_subround_context(
  subrounds: int = schedule.DEFAULT_SUBROUNDS, server: context.GraphContext | None = None
) -> None:
  """Makes the graph engine, with cohorts in subrounds, the default context of TFF.

  Its results equal those of `set_ray_context` with as many subrounds, to the bit. For that, called
  before TensorFlow's first operation, it has each operation use one thread.

  Args:
    subrounds: Into how many parts a cohort is divided.
    server: The engine of the clients and the server; default a `GraphContext`.

  Raises:
    ValueError: If `subrounds` is below 1.
  """
  use_one_thread()
  tff.framework.set_default_context(SubroundContext(subrounds, server=server))


def use_one_thread() -> None:
  """Has each operation use one thread, as in the workers: some sums depend on their number."""
  if not tf.config.threading.get_intra_op_parallelism_threads():
    with contextlib.suppress(RuntimeError):  # TensorFlow has begun: the number is fixed.
      tf.config.threading.set_intra_op_parallelism_threads(1)


def _stored(
  program: stages.Program, stage: stages.Stage, calls: stages.StageCalls, inputs: list[Any]
) -> dict[int, int]:
  """Which results a source keeps: of an input's type, if nothing later needs their values."""
  later = {key for other in program.stages for key in other.inputs}
  stored: dict[int, int] = {}
  for position, (key, type_spec) in enumerate(zip(stage.outputs, calls.result_types)):
    for i, (value, input_type) in enumerate(zip(inputs, calls.input_types)):
      if key in later or i in stored.values() or not wire.is_divided(type_spec):
        continue
      is_kept = input_type.is_equivalent_to(type_spec) and client_references.is_referenced(value)
      if is_kept and isinstance(value[0].source, client_references.StoringSource):
        stored[position] = i
        break
  return stored


def _num_clients(known: dict[Any, Any], types: dict[Any, tff.types.Type]) -> int:
  lengths = {len(known[key]) for key, t in types.items() if wire.is_divided(t)}
  if len(lengths) > 1:
    raise ValueError(f'Conflicting cardinalities: arguments are for {sorted(lengths)} clients')
  return lengths.pop() if lengths else 0


def _costs(
  known: dict[Any, Any], types: dict[Any, tff.types.Type], num_clients: int
) -> list[float]:
  costs = [1.0] * num_clients
  for key, type_spec in types.items():
    if not wire.is_divided(type_spec):
      continue
    if any(isinstance(t, tff.types.SequenceType) for t in values.leaf_types(type_spec.member)):
      cost = [wire.cost(value, type_spec.member) for value in known[key]]
      costs = [max(pair) for pair in zip(costs, cost)]
  return costs


def _parts(value: Any, type_spec: tff.types.Type, key: stages.Key = ('arg',)) -> Any:
  """Pairs of key and value of the parts of an argument; see `stages.parts`."""
  value = feeds.ingested(value)
  if not isinstance(type_spec, tff.types.StructType):
    yield key, value
    return
  elements = zip(values.struct_elements(value, type_spec), values.children(type_spec))
  for i, (element, (_, child)) in enumerate(elements):
    yield from _parts(element, child, (*key, i))


def _elements(result: Any, comp: Any) -> list[Any]:
  return values.struct_elements(result, comp.type_signature.result)


def _as_returned(value: Any, type_spec: tff.types.Type) -> Any:
  """A part of the argument as it comes back: checked, and of NumPy values."""
  member, is_divided = wire.member(type_spec), wire.is_divided(type_spec)
  clients = client_references.resolve(value) if is_divided else [value]
  found = [wire.to_python(wire.encode(v, member), member) for v in clients]
  return found if is_divided else found[0]


def _as_structs(value: Any, type_spec: tff.types.Type) -> Any:
  """A result with a Struct for each container outside the clients' parts."""
  if getattr(type_spec, 'placement', None) is tff.CLIENTS:
    return value
  type_spec = wire.member(type_spec)
  if not isinstance(type_spec, tff.types.StructType):
    return value
  elements = zip(values.struct_elements(value, type_spec), values.children(type_spec))
  return tff.structure.Struct([(name, _as_structs(v, t)) for v, (name, t) in elements])
