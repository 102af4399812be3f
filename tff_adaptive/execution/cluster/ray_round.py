"""One stage in the workers: which subround, or merge, is begun when, and what has become of it."""

import collections
import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ray

from tff_adaptive._utils import client_references
from tff_adaptive.execution.cluster import ray_worker, schedule, wire
from tff_adaptive.execution.cluster.subrounds import Outcome, Workload

if TYPE_CHECKING:
  from tff_adaptive.execution.cluster.ray_pool import RayPool

Node = tuple[int, int]


@dataclasses.dataclass(eq=False)
class Call:
  """A subround's training, or a merge, under way; twice if it was late.

  Attributes:
    node: Which, in the `schedule.MergeTree`.
    submit: Gives it to Ray: three references, as `ray_worker.train` returns three values.
    began: When it was given, or given again; `time.monotonic`.
    is_late: Whether it was given again.
    ahead: The subround whose clients' values the worker prepares meanwhile; None: none.
  """

  node: Node
  submit: Callable[[], list[Any]]
  began: float
  is_late: bool = False
  ahead: int | None = None


def describe(node: Node) -> str:
  """A call, for the user."""
  return f'a merge of level {node[0]}' if node[0] else f'subround {node[1] + 1}'


class Round:
  """The subrounds of one stage, and the merges of their sums."""

  def __init__(self, pool: 'RayPool', workload: Workload):
    self._pool, self._workload = pool, workload
    self._tree = schedule.MergeTree(len(workload.parts))
    self._merges = bool(workload.stage.num_aggregates)
    self._key, self._stage = pool.serialized(workload.stage)
    types = workload.calls.input_types
    common = [
      None if wire.is_divided(t) else wire.encode(value, wire.member(t))
      for value, t in zip(workload.inputs, types)
    ]
    pool.bytes_sent += sum(wire.num_bytes(flat) for flat in common if flat is not None)
    self._common = ray.put(common)
    self._sources = dict(
      pool.source(value[0].source)
      for value, t in zip(workload.inputs, types)
      if wire.is_divided(t) and client_references.is_referenced(value)
    )
    self._queue = collections.deque((0, part) for part in workload.order)
    self._calls: dict[Any, tuple[Call, list[Any]]] = {}  # By the reference of `Info`.
    self._prepared: set[int] = set()  # Subrounds that a worker was asked to prepare.
    self._sums: dict[Node, Any] = {}  # References, of what is done.
    self._results: dict[int, Any] = {}

  def run(self) -> Outcome:
    while not self._is_done():
      self._begin_calls()
      ready = self._pool.wait(list(self._calls))
      for reference in ready:
        self._end_call(reference)
      if not ready:
        for call in self._pool.look([call for call, _ in self._calls.values()]):
          self._begin_again(call)
    results = ray.get([self._results[part] for part in range(len(self._workload.parts))])
    sums = ray.get(self._sums[self._tree.root]) if self._merges else []
    self._pool.bytes_received += wire.num_bytes(results) + wire.num_bytes(sums)
    return Outcome(sums, results)

  def _is_done(self) -> bool:
    if self._merges:
      return self._tree.root in self._sums
    return len(self._results) == len(self._workload.parts)

  def _begin_calls(self) -> None:
    busy = len({call.node for call, _ in self._calls.values() if not call.is_late})
    while self._queue and busy < max(1, self._pool.size):
      node = self._queue.popleft()
      ahead = None if node[0] else self._next_to_prepare()
      submit = self._merge(node) if node[0] else self._train(node[1], ahead)
      self._submit(Call(node, submit, time.monotonic(), ahead=ahead))
      busy += 1

  def _next_to_prepare(self) -> int | None:
    """The subround that the next worker will be given, as far as one can say."""
    if not self._sources:
      return None
    waiting = [part for level, part in self._queue if not level]
    found = next((part for part in waiting if part not in self._prepared), None)
    if found is not None:
      self._prepared.add(found)
    return found

  def _train(self, part: int, ahead: int | None) -> Callable[[], list[Any]]:
    divided = self._divided(part)
    self._pool.bytes_sent += sum(wire.num_bytes(rows) for rows in divided if rows is not None)
    further = [] if ahead is None else self._divided(ahead)
    keys = [rows for rows in further if isinstance(rows, wire.Keys)]
    subround = ray_worker.Subround(divided, self._workload.stored, self._sources, keys)
    return lambda: self._pool.submit(
      ray_worker.train, self._key, self._stage, self._common, subround
    )

  def _divided(self, part: int) -> list[Any]:
    """For each input the values of a subround's clients, or their keys; see `Subround`."""
    workload = self._workload
    divided: list[Any] = []
    for value, t in zip(workload.inputs, workload.calls.input_types):
      rows = [value[i] for i in workload.parts[part]] if wire.is_divided(t) else None
      if rows is not None and client_references.is_referenced(rows):
        divided.append(wire.Keys.of(self._pool.source(rows[0].source)[0], rows))
      elif rows is not None:
        divided.append([wire.encode(row, wire.member(t)) for row in rows])
      else:
        divided.append(None)
    return divided

  def _merge(self, node: Node) -> Callable[[], list[Any]]:
    one, other = (self._sums[child] for child in self._tree.children(node))
    return lambda: self._pool.submit(ray_worker.merge, self._key, self._stage, one, other)

  def _submit(self, call: Call) -> None:
    references = call.submit()
    self._calls[references[2]] = call, references

  def _begin_again(self, call: Call) -> None:
    seconds = time.monotonic() - call.began
    pool = self._pool
    pool.report(
      pool.line(f'{describe(call.node)} has taken {seconds:.0f} s: another worker does it too')
    )
    pool.retried += 1
    call.is_late = True
    self._submit(Call(call.node, call.submit, time.monotonic()))

  def _end_call(self, reference: Any) -> None:
    if reference not in self._calls:  # Another call of the same has ended, in the same instant.
      return
    call, (sums, results, _) = self._calls.pop(reference)
    self._pool.note(call, _get(reference))
    others = [other for other, (c, _) in self._calls.items() if c.node == call.node]
    for other in others:  # It counts once; the other ends when it ends.
      del self._calls[other]
    level, position = call.node
    if not level:
      self._results[position] = results
      if call.ahead is not None and (0, call.ahead) in self._queue:
        # Ray gives the next call to the worker that has just become idle.
        self._queue.remove((0, call.ahead))
        self._queue.appendleft((0, call.ahead))
    if self._merges:
      self._know(call.node, sums)

  def _know(self, node: Node, sums: Any) -> None:
    self._sums[node] = sums
    if node == self._tree.root:
      return
    parent = self._tree.parent(node)
    children = self._tree.children(parent)
    if len(children) == 1:
      self._know(parent, sums)
    elif all(child in self._sums for child in children):
      self._queue.appendleft(parent)


def _get(reference: Any) -> ray_worker.Info:
  try:
    return ray.get(reference)
  except ray.exceptions.RayTaskError as error:
    raise ray_worker.cause(error) from None
