"""Trains a cohort in parts, called subrounds. Stages of the server run as a whole.

A result depends on the number of subrounds. It does not depend, in any bit, on where they are
trained, in which order they end, or which of them are repeated.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive._utils import client_references, validation
from tff_adaptive.engine.cluster import schedule, stages, wire
from tff_adaptive.engine.graph import context, feeds, values


class Workload(NamedTuple):
  """A clients' stage, its inputs, and the division of the cohort into subrounds.

  Attributes:
    stage: The stage that trains the clients.
    inputs: A value for each input of the stage; for inputs divided among clients, a list by client.
    parts: The clients' positions in the cohort, for each subround.
    costs: The cost of each subround, in examples.
  """

  stage: stages.Stage
  inputs: list[Any]
  parts: list[list[int]]
  costs: list[float]


class Outcome(NamedTuple):
  """The results of a workload.

  Attributes:
    sums: The flat accumulators of all clients, merged in the order of `schedule.MergeTree`.
    results: For each subround, the list of the results that are not summed.
  """

  sums: list[Any]
  results: list[list[Any]]


def train(workload: Workload) -> Outcome:
  """Trains all subrounds in this process, one after another."""
  trained = [train_part(workload, part) for part in workload.parts]
  # Merged as on a cluster, where the order cannot depend on which worker ends first.
  leaves = {(0, i): sums for i, (sums, _) in enumerate(trained)}
  sums = schedule.MergeTree(len(leaves)).fold(leaves, workload.stage.merged)
  return Outcome(sums, [results for _, results in trained])


def train_part(workload: Workload, part: Sequence[int]) -> tuple[list[Any], list[Any]]:
  """Trains the clients at the positions `part`. Returns accumulators and the other results."""
  inputs = []
  for value, t in zip(workload.inputs, workload.stage.input_types):
    if wire.is_divided(t):
      value = client_references.resolve([value[i] for i in part])
    inputs.append(value)
  return workload.stage.train(inputs)


class SubroundContext(tff.framework.SyncContext):
  """A TFF context that trains a cohort in parts (subrounds), in this process or elsewhere.

  A client-placed result is a sequence with one value for each client.
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
      subrounds: Number of parts into which a cohort is divided. With the same number, results are
        equal to the bit wherever they are computed, if each operation uses one thread.
      server: The engine of the server's part. The default is a `GraphContext`.
      train: A function that trains the clients. By default the server's engine trains them here.

    Raises:
      ValueError, TypeError: If `subrounds` is below 1, or not an integer.
    """
    validation.count('subrounds', subrounds, 'give 4, say')
    self._subrounds = subrounds
    self._server = server or context.GraphContext()
    self._train = train
    self._programs = context.Cache()

  def invoke(self, comp: tff.framework.ConcreteComputation, arg: Any) -> Any:
    """Runs a computation; see `GraphContext.invoke`. Raises WorkersLost if no worker is left."""
    parameter_type = comp.type_signature.parameter
    if parameter_type is None:
      return self._server.invoke(comp, arg)
    known: dict[str, Any] = {}
    types: dict[str, tff.types.Type] = {}
    for key, value, type_spec in _parts(arg, parameter_type):
      known[key] = value
      types[key] = type_spec
    # Without clients, or with none of their arguments, there is nothing to divide.
    lengths = {len(known[key]) for key, t in types.items() if wire.is_divided(t)}
    program = None
    if len(lengths) == 1 and 0 not in lengths:
      program = self._program(comp)
    if program is None:  # The engine refuses lengths that differ.
      return self._server.invoke(comp, arg)
    result = self._run(program, known, types)
    plain = context.without_placements(comp.type_signature.result)
    return values.to_python(values.flatten(result, plain), plain)

  def _run(
    self, program: stages.Program, known: dict[str, Any], types: Mapping[str, tff.types.Type]
  ) -> Any:
    """Runs a program's stages in turn, which adds their outputs to `known`; returns the result."""
    costs = _costs([(known[key], t.member) for key, t in types.items() if wire.is_divided(t)])
    known[feeds.POSITIONS] = [np.array(i, np.int32) for i in range(len(costs))]
    for stage in program.stages:
      inputs = [known[key] for key in stage.inputs]
      if stage.at_clients:
        outputs = self._train_in_parts(stage, inputs, costs)
      else:
        outputs = stage.run(inputs)
      known.update(zip(stage.outputs, outputs))
    for key in program.passed_on:  # Arguments that are results become checked NumPy values.
      value = known[key]
      type_spec = types[key]
      if wire.is_divided(type_spec):
        value = client_references.resolve(value)
      known[key] = wire.to_python(wire.encode(value, type_spec), type_spec)
    return program.result(known)

  def _program(self, comp: Any) -> stages.Program | None:
    """Returns the stages of a computation, or None if it is not divided among subrounds."""
    entry = self._programs.of(comp)
    if not entry:
      program = stages.split(comp, self._server)
      of_clients = [stage for stage in program.stages if stage.at_clients]
      # A stage without a divided input cannot be divided; then the whole computation is not. The
      # last input is the clients' places, which are no data.
      can_divide = all(any(map(wire.is_divided, stage.input_types[:-1])) for stage in of_clients)
      entry['program'] = program if can_divide else None
    return entry['program']

  def _train_in_parts(
    self, stage: stages.Stage, inputs: list[Any], costs: Sequence[float]
  ) -> list[Any]:
    """Returns the outputs of a clients' stage, joined and merged from all subrounds."""
    # From costs alone, never from the number of workers, on which the bits would then depend.
    parts = schedule.divide(costs, self._subrounds)
    of_parts: list[float] = []
    for part in parts:
      of_parts.append(sum(costs[i] for i in part))
    outcome = self._train(Workload(stage, inputs, parts, of_parts))
    joined = []
    for i, type_spec in enumerate(stage.result_types):
      pieces = [results[i] for results in outcome.results]
      if wire.is_divided(type_spec):
        joined.append(wire.in_order(pieces, parts))
      else:  # It is the same in all subrounds.
        joined.append(pieces[0])
    return joined + stage.reported(stage.in_order(outcome.sums, parts))


def _costs(divided: Sequence[tuple[Sequence[Any], tff.types.Type]]) -> list[float]:
  """Returns each client's cost, that of its costliest argument.

  Args:
    divided: For each argument that is divided among clients, the clients' values and their type.
  """
  by_argument = []
  for clients, member in divided:
    by_argument.append([wire.cost(value, member) for value in clients])
  return [float(max(of_client)) for of_client in zip(*by_argument)]


def set_subround_context(
  subrounds: int = schedule.DEFAULT_SUBROUNDS, server: context.GraphContext | None = None
) -> None:
  """Makes a `SubroundContext`, the graph engine with subrounds, the default context of TFF.

  Its results equal those of `set_ray_context` with the same number of subrounds, to the bit. For
  this, each operation must use one thread, which is set if TensorFlow has not run an operation yet.

  Args:
    subrounds: Number of parts into which a cohort is divided.
    server: The engine of the clients and the server. The default is a `GraphContext`.

  Raises:
    ValueError, TypeError: If `subrounds` is below 1, or not an integer.
  """
  use_one_thread()
  tff.framework.set_default_context(SubroundContext(subrounds, server=server))


def use_one_thread() -> None:
  """Makes each operation use one thread, unless a number is set already; some sums depend on it."""
  if not tf.config.threading.get_intra_op_parallelism_threads():
    with contextlib.suppress(RuntimeError):  # TensorFlow has begun: the number is fixed.
      tf.config.threading.set_intra_op_parallelism_threads(1)


def _parts(value: Any, type_spec: tff.types.Type, name: str = stages.ARGUMENT) -> Any:
  """Yields the name, value and type of each part of an argument that is placed or not a struct."""
  value = feeds.ingested(value)
  if not isinstance(type_spec, tff.types.StructType):
    yield name, value, type_spec
    return
  elements = zip(values.struct_elements(value, type_spec), values.children(type_spec))
  for i, (element, (_, child)) in enumerate(elements):
    yield from _parts(element, child, f'{name}_{i}')
