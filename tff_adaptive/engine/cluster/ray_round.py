"""One stage in the workers: which subrounds, or merge, are begun when, and what became of them."""

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ray

from tff_adaptive._utils import client_references
from tff_adaptive.engine.cluster import local_ray, ray_worker, schedule, wire
from tff_adaptive.engine.cluster.subrounds import Outcome, Workload

if TYPE_CHECKING:
  from tff_adaptive.engine.cluster.ray_pool import RayPool

Node = tuple[int, int]

_SMALL_BYTES = 2**20  # The trainer has two such sums, and merges them, before a call has begun.


@dataclasses.dataclass(eq=False)
class Call:
  """Subrounds' training, or a merge, under way; twice if it was late.

  Attributes:
    node: Whose sum it makes, in the `schedule.MergeTree`.
    subrounds: Those that it trains; none: it is a merge.
    submit: Gives it to Ray: three references, as `ray_worker.train` returns three values.
    began: When it was given, or given again; `time.monotonic`.
    is_late: Whether it was given again.
    copies: How often it had been given before.
  """

  node: Node
  subrounds: range
  submit: Callable[[], list[Any]]
  began: float
  is_late: bool = False
  copies: int = 0

  def __str__(self) -> str:
    if not self.subrounds:
      return f'a merge of level {self.node[0]}'
    first, last = self.subrounds[0] + 1, self.subrounds[-1] + 1
    return f'subrounds {first} to {last}' if self.is_several else f'subround {first}'

  @property
  def is_several(self) -> bool:
    """Whether it has several subrounds, of which a line speaks in the plural."""
    return len(self.subrounds) > 1


class Round:
  """The subrounds of one stage, and the merges of their sums."""

  def __init__(self, pool: 'RayPool', workload: Workload):
    self._pool, self._workload = pool, workload
    self._tree = schedule.MergeTree(len(workload.parts))
    self._has_sums = bool(workload.stage.num_aggregates)
    self._key, self._stage = pool.serialized(workload.stage)
    types = workload.calls.input_types
    common = [
      None if wire.is_divided(t) else wire.encode(value, wire.member(t))
      for value, t in zip(workload.inputs, types)
    ]
    sizes = [wire.num_bytes(flat) for flat in common if flat is not None]
    self._common = common if sum(sizes) <= local_ray.inlined_bytes() else ray.put(common)
    pool.bytes_sent += sum(sizes)
    self._sources = dict(
      pool.source(value[0].source)
      for value, t in zip(workload.inputs, types)
      if wire.is_divided(t) and client_references.is_referenced(value)
    )
    self._waiting = schedule.Waiting(workload.costs)
    self._merges: list[Node] = []  # Whose sums' parts are there.
    self._calls: dict[Any, tuple[Call, list[Any]]] = {}  # By the reference of `Info`.
    self._sums: dict[Node, Any] = {}  # References, of what is done.
    self._results: dict[int, Any] = {}  # By a call's first subround.
    self._last: list[Any] = []  # References of the sum of all, or of two that are merged here.
    self._trained = 0

  def run(self) -> Outcome:
    while not self._is_done():
      self._begin_calls()
      ready = self._pool.wait(list(self._calls))
      for reference in ready:
        self._end_call(reference)
      if not ready or self._pool.is_look_due:  # Calls may end all the time.
        for call in self._pool.look([call for call, _ in self._calls.values()]):
          self._begin_again(call)
    calls = self._pool.get([self._results[first] for first in sorted(self._results)])
    results = [of_subround for of_call in calls for of_subround in of_call]
    received = self._pool.get(self._last) if self._has_sums else []
    self._pool.bytes_received += wire.num_bytes(results) + wire.num_bytes(received)
    merge = self._workload.calls.merge
    sums = schedule.MergeTree(len(received)).fold(received, merge) if received else []
    return Outcome(sums, results)

  def _is_done(self) -> bool:
    if self._has_sums:
      return bool(self._last)
    return self._trained == len(self._workload.parts)

  def _begin_calls(self) -> None:
    busy = len({call.node for call, _ in self._calls.values() if not call.is_late})
    workers = max(1, self._pool.size)
    while busy < workers and (self._merges or self._waiting):
      if self._merges:
        node, subrounds = self._merges.pop(), range(0)
        submit = self._merge(node)
      else:
        node = self._waiting.take(workers, self._pool.worthwhile(self._key))
        subrounds = self._tree.leaves(node)
        submit = self._train(subrounds)
      self._submit(Call(node, subrounds, submit, time.monotonic()))
      busy += 1

  def _train(self, subrounds: range) -> Callable[[], list[Any]]:
    divided = [self._divided(part) for part in subrounds]
    present = [rows for of_subround in divided for rows in of_subround if rows is not None]
    self._pool.bytes_sent += sum(map(wire.num_bytes, present))
    work = ray_worker.Subrounds(divided, self._workload.stored, self._sources)
    return lambda: self._pool.submit(ray_worker.train, self._key, self._stage, self._common, work)

  def _divided(self, part: int) -> list[Any]:
    """For each input the values of a subround's clients, or their keys; see `Subrounds`."""
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
    has, it = ('have', 'them') if call.is_several else ('has', 'it')
    pool.report(pool.line(f'{call} {has} taken {seconds:.0f} s: another worker does {it} too'))
    pool.retried += len(call.subrounds) or 1
    call.is_late = True
    copies = call.copies + 1
    again = dataclasses.replace(call, began=time.monotonic(), is_late=False, copies=copies)
    self._submit(again)

  def _end_call(self, reference: Any) -> None:
    if reference not in self._calls:  # Another call of the same has ended, in the same instant.
      return
    call, (sums, results, _) = self._calls.pop(reference)
    info = _get(reference)
    self._pool.note(call, info)
    others = [other for other, (c, _) in self._calls.items() if c.node == call.node]
    for other in others:  # It counts once; the other ends when it ends.
      del self._calls[other]
    if call.subrounds:
      self._results[call.subrounds[0]] = results
      self._trained += len(call.subrounds)
      self._pool.note_pace(self._key, info.seconds / self._waiting.cost(call.node))
    if self._has_sums:
      # On one machine it has them without their being sent.
      is_near = self._pool.is_here or info.sum_bytes <= _SMALL_BYTES
      self._know(call.node, sums, is_near)

  def _know(self, node: Node, sums: Any, is_near: bool) -> None:
    self._sums[node] = sums
    if node == self._tree.root:
      self._last = [sums]
      return
    parent = self._tree.parent(node)
    children = self._tree.children(parent)
    if len(children) == 1:
      self._know(parent, sums, is_near)
    elif all(child in self._sums for child in children):
      if parent == self._tree.root and is_near:
        self._last = [self._sums[child] for child in children]
      else:
        self._merges.append(parent)


def _get(reference: Any) -> ray_worker.Info:
  try:
    return ray.get(reference)
  except ray.exceptions.RayTaskError as error:
    raise ray_worker.cause(error) from None
