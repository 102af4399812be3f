"""Trains the parts of a cohort (subrounds) in the workers of a Ray cluster, and merges sums."""

import dataclasses
import itertools
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
    first = self.subrounds[0] + 1
    last = self.subrounds[-1] + 1
    if first == last:
      return f'subround {first}'
    return f'subrounds {first} to {last}'


def train(pool: ray_pool.RayPool, workload: Workload) -> Outcome:
  """Trains a workload's clients in a pool's workers. Each subround counts exactly once."""
  with pool.losses():
    pool.begin()
    return Round(pool, workload).run()


class Round:
  """Trains a workload's subrounds, the parts of a cohort, in a pool's workers; merges the sums."""

  def __init__(self, pool: ray_pool.RayPool, workload: Workload):
    self._pool = pool
    self._workload = workload
    self._tree = schedule.MergeTree(len(workload.parts))
    self._key, self._stage = pool.serialized(workload.stage)
    types = workload.stage.input_types
    # What all calls share, such as the model, is put into Ray once for the whole round.
    common: list[Any] = []
    for value, t in zip(workload.inputs, types):
      if wire.is_divided(t):
        common.append(None)
      else:
        common.append(wire.encode(value, t))
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
    encoded = list(itertools.chain.from_iterable(calls))
    sums: list[Any] = []
    if self._workload.stage.num_aggregates:
      sums = self._merged()
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
    for of_subround in divided:
      present = [rows for rows in of_subround if rows is not None]
      self._pool.counters['bytes_to_workers'] += ray_worker.num_bytes(present)
    return ray_worker.Subrounds(divided, self._sources)

  def _divided(self, part: list[int]) -> list[Any]:
    """Returns each input's values for a subround's clients, or their keys; see `Subrounds`."""
    divided: list[Any] = []
    for value, t in zip(self._workload.inputs, self._workload.stage.input_types):
      if not wire.is_divided(t):
        divided.append(None)
        continue
      rows = [value[i] for i in part]
      if client_references.is_referenced(rows):
        name, _ = self._pool.source(rows[0].source)
        keys = pickle.dumps([reference.key for reference in rows])
        divided.append(wire.Keys(name, keys))
      else:
        divided.append(wire.encode(rows, t))
    return divided

  def _submit(self, call: Call) -> None:
    train = self._pool.remote(ray_worker.train, str(call))
    references = train(self._pool.settings, self._key, self._stage, self._common, call.work)
    # The third result, the small `Info`, tells that the call has ended. The sums stay there.
    self._calls[references[2]] = call, references

  def _end_call(self, reference: Any) -> None:
    call, (sums, results, _) = self._calls.pop(reference)
    try:
      info = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
      self._pool.fail(error, self._named(call))
    except _ENDED as error:
      lacks_memory = isinstance(error, ray.exceptions.OutOfMemoryError)
      if lacks_memory and self._pool.leave_out(error, f'{self._named(call)} goes to another'):
        self._pool.counters['subrounds_retried'] += len(call.subrounds)
        self._submit(call)
        return
      where = self._pool.on_nodes([reference])
      line = f'{self._named(call)} crashed every worker that ran it{where}'
      if lacks_memory:
        line += ' (no memory is left)'
      raise errors.WorkersLost(self._pool.line(line)) from None
    self._pool.note(info, str(call), len(call.subrounds))
    self._results[call.subrounds[0]] = results
    self._trained += len(call.subrounds)
    self._pool.note_pace(self._key, info.seconds / self._waiting.cost(call.node))
    self._trained_sums[call.node] = sums
    self._know(call.node, sums)

  def _named(self, call: Call) -> str:
    places: list[int] = []
    for subround in call.subrounds:
      places.extend(self._workload.parts[subround])
    return f'{call} ({self._clients(places)})'

  def _clients(self, places: Sequence[int]) -> str:
    """Names the clients at `places` of the cohort by id, or by place if their ids are not known."""
    workload = self._workload
    names = [str(i + 1) for i in places]
    for value, t in zip(workload.inputs, workload.stage.input_types):
      if wire.is_divided(t) and client_references.is_referenced(value):
        names = [str(client_references.client_of(value[i].key)) for i in places]
        break
    listed = ', '.join(names[:_NAMED])
    if len(names) > _NAMED:
      listed += f' and {len(names) - _NAMED} more'
    noun = 'clients' if len(names) > 1 else 'client'
    return f'{noun} {listed}'

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
    if len(children) == 1:  # The last node of a level may have no neighbour.
      self._know(parent, of_children[0])
    else:
      self._know(parent, self._merge(parent, *of_children))

  def _merge(self, node: Node, one: Any, other: Any) -> Any:
    leaves = self._tree.leaves(node)
    merge = self._pool.remote(ray_worker.merge, f'sums {leaves[0] + 1} to {leaves[-1] + 1}')
    return merge(self._pool.settings, self._key, self._stage, one, other)

  def _merged(self) -> list[Any]:
    """Returns the sum of all subrounds. If workers lack memory for it, this process merges all."""
    root = self._tree.root
    last = [root]
    if root not in self._sums:  # Otherwise a single call has trained all subrounds.
      last = self._tree.children(root)
    try:
      return self._fold({node: self._sums[node] for node in last})
    except ray.exceptions.OutOfMemoryError as error:
      self._pool.leave_out(error, 'this process merges the sums')
    return self._fold(self._trained_sums)

  def _fold(self, references: dict[Node, Any]) -> Any:
    received = self._pool.get(list(references.values()), 'a merge')
    self._pool.counters['bytes_from_workers'] += ray_worker.num_bytes(received)
    return self._tree.fold(dict(zip(references, received)), self._workload.stage.merged)
