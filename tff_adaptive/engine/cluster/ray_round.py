"""Trains the parts of a cohort (subrounds) in the workers of a Ray cluster, and merges sums."""

import dataclasses
import pickle
from collections.abc import Sequence
from typing import Any

import ray

from tff_adaptive._utils import client_references
from tff_adaptive.engine.cluster import errors, ray_pool, ray_worker, schedule, wire
from tff_adaptive.engine.cluster.subrounds import Outcome, Workload

Node = tuple[int, int]

_ENDED = (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError)

_NAMED = 8  # The most clients that a line names.


@dataclasses.dataclass(frozen=True, eq=False)
class Call:
  """A call in which a worker trains some subrounds.

  Attributes:
    node: The node of the `schedule.MergeTree` whose sum the call makes.
    subrounds: The numbers of the subrounds.
    work: The inputs of the subrounds.
  """

  node: Node
  subrounds: range
  work: ray_worker.Subrounds | None

  def __str__(self) -> str:
    first, last = self.subrounds[0] + 1, self.subrounds[-1] + 1
    return f'subround {first}' if first == last else f'subrounds {first} to {last}'


def train(pool: ray_pool.RayPool, workload: Workload) -> Outcome:
  """Trains a workload's clients in a pool's workers. Each subround counts exactly once."""
  with pool.losses():
    pool.begin()
    return Round(pool, workload).run()


class Round:
  """Trains a workload's subrounds, the parts of a cohort, in a pool's workers; merges the sums."""

  def __init__(self, pool: ray_pool.RayPool, workload: Workload):
    self._pool, self._workload = pool, workload
    self._tree = schedule.MergeTree(len(workload.parts))
    self._key, self._stage = pool.serialized(workload.stage)
    types = workload.stage.input_types
    common = [
      None if wire.is_divided(t) else wire.encode(value, t)
      for value, t in zip(workload.inputs, types)
    ]
    self._common = ray.put(common)
    pool.counters['bytes_to_workers'] += sum(
      ray_worker.num_bytes(flat) for flat in common if flat is not None
    )
    self._sources = dict(
      pool.source(value[0].source)
      for value, t in zip(workload.inputs, types)
      if wire.is_divided(t) and client_references.is_referenced(value)
    )
    self._waiting = schedule.Waiting(workload.costs)
    self._calls: dict[Any, tuple[Call, list[Any]]] = {}  # Key: `Info`'s reference.
    self._trained_sums: dict[Node, Any] = {}  # References to the sums that calls return.
    self._sums: dict[Node, Any] = {}  # The same, and references to merged sums.
    self._results: dict[int, Any] = {}  # Key: a call's first subround.
    self._trained = 0

  def run(self) -> Outcome:
    while self._trained < len(self._workload.parts):
      self._begin_calls()
      for reference in self._pool.wait(list(self._calls)):
        self._end_call(reference)
      self._pool.look()
    calls = self._pool.get([self._results[first] for first in sorted(self._results)])
    encoded = [of_subround for of_call in calls for of_subround in of_call]
    sums = self._merged() if self._workload.stage.num_aggregates else []
    self._pool.counters['bytes_from_workers'] += ray_worker.num_bytes(encoded)
    return Outcome(sums, [self._decoded(of_subround) for of_subround in encoded])

  def _decoded(self, encoded: list[Any]) -> list[Any]:
    """Returns the results of a subround, which a worker has encoded."""
    types = self._workload.stage.result_types
    return [wire.to_python(piece, t) for piece, t in zip(encoded, types)]

  def _begin_calls(self) -> None:
    workers = max(1, self._pool.size)
    while len(self._calls) < workers and self._waiting:
      node = self._waiting.take(workers, self._pool.worthwhile(self._key))
      subrounds = self._tree.leaves(node)
      self._submit(Call(node, subrounds, self._work(subrounds)))

  def _work(self, subrounds: range) -> ray_worker.Subrounds:
    """Returns the inputs of a call for some subrounds."""
    divided = [self._divided(self._workload.parts[i]) for i in subrounds]
    present = [rows for of_subround in divided for rows in of_subround if rows is not None]
    self._pool.counters['bytes_to_workers'] += sum(map(ray_worker.num_bytes, present))
    return ray_worker.Subrounds(divided, self._sources)

  def _divided(self, part: list[int]) -> list[Any]:
    """Returns each input's values for a subround's clients, or their keys; see `Subrounds`."""
    divided: list[Any] = []
    for value, t in zip(self._workload.inputs, self._workload.stage.input_types):
      rows = [value[i] for i in part] if wire.is_divided(t) else None
      if rows is not None and client_references.is_referenced(rows):
        keys = pickle.dumps([reference.key for reference in rows])
        divided.append(wire.Keys(self._pool.source(rows[0].source)[0], keys))
      else:
        divided.append(None if rows is None else wire.encode(rows, t))
    return divided

  def _submit(self, call: Call) -> None:
    train = self._pool.remote(ray_worker.train, str(call))
    references = train(self._pool.settings, self._key, self._stage, self._common, call.work)
    self._calls[references[2]] = call, references

  def _end_call(self, reference: Any) -> None:
    call, (sums, results, _) = self._calls.pop(reference)
    try:
      info = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
      self._pool.fail(error, self._named(call))
    except _ENDED as error:
      is_memory = isinstance(error, ray.exceptions.OutOfMemoryError)
      if is_memory and self._pool.leave_out(error, f'{self._named(call)} goes to another'):
        self._pool.counters['subrounds_retried'] += len(call.subrounds)
        self._submit(call)
        return
      why = ' (no memory is left)' if is_memory else ''
      where = self._pool.on_nodes([reference])
      line = f'{self._named(call)} crashed every worker that ran it{where}{why}'
      raise errors.WorkersLost(self._pool.line(line)) from None
    self._pool.note(info, str(call), len(call.subrounds))
    self._results[call.subrounds[0]] = results
    self._trained += len(call.subrounds)
    self._pool.note_pace(self._key, info.seconds / self._waiting.cost(call.node))
    self._trained_sums[call.node] = sums
    self._know(call.node, sums)

  def _named(self, call: Call) -> str:
    places = [i for part in call.subrounds for i in self._workload.parts[part]]
    return f'{call} ({self._clients(places)})'

  def _clients(self, places: Sequence[int]) -> str:
    """Names the clients at `places` of the cohort by id, or by place if their ids are not known."""
    workload = self._workload
    names = [str(i + 1) for i in places]
    for value, t in zip(workload.inputs, workload.stage.input_types):
      if wire.is_divided(t) and client_references.is_referenced(value):
        names = [str(client_references.client_of(value[i].key)) for i in places]
        break
    more = f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''
    return f'client{"s" if len(names) > 1 else ""} {", ".join(names[:_NAMED])}{more}'

  def _know(self, node: Node, sums: Any) -> None:
    """Records the sum of a node, and begins each merge that now has both sums, except the last."""
    self._sums[node] = sums
    if node == self._tree.root or not self._workload.stage.num_aggregates:
      return
    parent = self._tree.parent(node)
    children = self._tree.children(parent)
    if parent == self._tree.root or not all(child in self._sums for child in children):
      return  # The trainer does the last merge.
    of_children = [self._sums[child] for child in children]
    self._know(parent, self._merge(parent, *of_children) if len(children) == 2 else of_children[0])

  def _merge(self, node: Node, one: Any, other: Any) -> Any:
    leaves = self._tree.leaves(node)
    merge = self._pool.remote(ray_worker.merge, f'sums {leaves[0] + 1} to {leaves[-1] + 1}')
    return merge(self._pool.settings, self._key, self._stage, one, other)

  def _merged(self) -> list[Any]:
    """Returns the sum of all subrounds. If workers lack memory for it, this process merges all."""
    root = self._tree.root
    last = [root] if root in self._sums else self._tree.children(root)
    try:
      return self._fold({node: self._sums[node] for node in last})
    except ray.exceptions.OutOfMemoryError as error:
      self._pool.leave_out(error, 'this process merges the sums')
    return self._fold(self._trained_sums)

  def _fold(self, references: dict[Node, Any]) -> Any:
    received = self._pool.get(list(references.values()), 'a merge')
    self._pool.counters['bytes_from_workers'] += ray_worker.num_bytes(received)
    return self._tree.fold(dict(zip(references, received)), self._workload.stage.merged)
