"""One stage in the workers: which subrounds are begun when, and what became of them."""

import dataclasses
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import ray

from tff_adaptive._utils import client_references
from tff_adaptive.engine.cluster import errors, local_ray, ray_worker, schedule, wire
from tff_adaptive.engine.cluster.subrounds import Outcome, Workload

if TYPE_CHECKING:
  from tff_adaptive.engine.cluster.ray_pool import RayPool

Node = tuple[int, int]

LOST = (
  ray.exceptions.WorkerCrashedError,
  ray.exceptions.NodeDiedError,
  ray.exceptions.OutOfMemoryError,
  ray.exceptions.ObjectLostError,
  ray.exceptions.LocalRayletDiedError,
  ray.exceptions.RaySystemError,
  ray.exceptions.RuntimeEnvSetupError,
  ray.exceptions.RpcError,
  ray.exceptions.TaskUnschedulableError,
)

_SMALL_BYTES = 2**20  # The trainer has two such sums, and merges them, before a call has begun.
_NAMED = 8  # So many clients a line names.
_AGAIN_TIMES = 10  # So much longer merges may take that are done once more.
_ALONE_SECONDS = 60.0  # In which it is found which client ends its worker.


@dataclasses.dataclass(eq=False)
class Call:
  """Subrounds' training under way; twice if it was late.

  Attributes:
    node: Whose sum it makes, in the `schedule.MergeTree`.
    subrounds: Those that it trains.
    work: What they are given.
    began: When it was given, or given again; `time.monotonic`.
    is_late: Whether it was given again.
    copies: How often it had been given before.
    first: When it was given for the first time.
  """

  node: Node
  subrounds: range
  work: ray_worker.Subrounds | None
  began: float
  is_late: bool = False
  copies: int = 0
  first: float = 0.0

  def __str__(self) -> str:
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
    self._calls: dict[Any, tuple[Call, list[Any]]] = {}  # By the reference of `Info`.
    self._trained_sums: dict[Node, Any] = {}  # References, of what calls have trained.
    self._sums: dict[Node, Any] = {}  # The same, and of what merges make of them.
    self._results: dict[int, Any] = {}  # By a call's first subround.
    self._trained = 0
    self._is_near = True  # Whether the trainer does the last merge itself; see `_last`.

  def run(self) -> Outcome:
    while self._trained < len(self._workload.parts):
      self._begin_calls()
      ready = self._pool.wait(list(self._calls))
      for reference in ready:
        self._end_call(reference)
      if not ready or self._pool.is_look_due:  # Calls may end all the time.
        for call in self._pool.look([call for call, _ in self._calls.values()]):
          self._begin_again(call)
        for call, _ in list(self._calls.values()):
          if self._pool.is_overdue(call):
            self._give_up(call)
    calls = self._pool.get([self._results[first] for first in sorted(self._results)])
    results = [of_subround for of_call in calls for of_subround in of_call]
    received = self._merged() if self._workload.stage.num_aggregates else []
    self._pool.bytes_received += wire.num_bytes(results) + wire.num_bytes(received)
    merge = self._workload.calls.merge
    sums = schedule.MergeTree(len(received)).fold(received, merge) if received else []
    return Outcome(sums, results)

  def _begin_calls(self) -> None:
    busy = len({call.node for call, _ in self._calls.values() if not call.is_late})
    workers = max(1, self._pool.size)
    while busy < workers and self._waiting:
      node = self._waiting.take(workers, self._pool.worthwhile(self._key))
      subrounds = self._tree.leaves(node)
      work = self._work([self._workload.parts[part] for part in subrounds], self._workload.stored)
      now = time.monotonic()
      self._submit(Call(node, subrounds, work, now, first=now))
      busy += 1

  def _work(self, parts: Sequence[list[int]], stored: dict[int, int]) -> ray_worker.Subrounds:
    """What a call is given for parts of the cohort."""
    divided = [self._divided(part) for part in parts]
    present = [rows for of_subround in divided for rows in of_subround if rows is not None]
    self._pool.bytes_sent += sum(map(wire.num_bytes, present))
    return ray_worker.Subrounds(divided, stored, self._sources)

  def _divided(self, part: list[int]) -> list[Any]:
    """For each input the values of a subround's clients, or their keys; see `Subrounds`."""
    divided: list[Any] = []
    for value, t in zip(self._workload.inputs, self._workload.calls.input_types):
      rows = [value[i] for i in part] if wire.is_divided(t) else None
      if rows is not None and client_references.is_referenced(rows):
        divided.append(wire.Keys.of(self._pool.source(rows[0].source)[0], rows))
      elif rows is not None:
        divided.append([wire.encode(row, wire.member(t)) for row in rows])
      else:
        divided.append(None)
    return divided

  def _submit(self, call: Call) -> None:
    train = self._pool.remote(ray_worker.train, str(call))
    references = train(self._pool.settings, self._key, self._stage, self._common, call.work)
    self._calls[references[2]] = call, references

  def _begin_again(self, call: Call) -> None:
    seconds = time.monotonic() - call.began
    pool = self._pool
    has, it = ('have', 'them') if call.is_several else ('has', 'it')
    pool.report(pool.line(f'{call} {has} taken {seconds:.0f} s: another worker does {it} too'))
    pool.retried += len(call.subrounds)
    call.is_late = True
    copies = call.copies + 1
    self._submit(dataclasses.replace(call, began=time.monotonic(), is_late=False, copies=copies))

  def _end_call(self, reference: Any) -> None:
    if reference not in self._calls:  # Another call of the same has ended, in the same instant.
      return
    call, (sums, results, _) = self._calls.pop(reference)
    try:
      info = ray.get(reference)
    except ray.exceptions.RayTaskError as error:
      self._pool.fail(error, self._named(call))
    except ray.exceptions.OutOfMemoryError as error:
      self._pool.leave_out(error, str(call))
      self._submit(dataclasses.replace(call, began=time.monotonic()))
      return
    except ray.exceptions.WorkerCrashedError:
      raise errors.WorkersLost(
        self._pool.line(
          f'{self._named(call)} ended all workers that it was given{self._deadly(call)}'
        )
      ) from None
    self._pool.note(call, info)
    others = [other for other, (c, _) in self._calls.items() if c.node == call.node]
    for other in others:  # It counts once; the other ends when it ends.
      del self._calls[other]
    self._results[call.subrounds[0]] = results
    if not self._trained:  # Decided once: a node may join while merges are under way.
      # On one machine it has the sums without their being sent.
      self._is_near = self._pool.is_here or info.sum_bytes <= _SMALL_BYTES
    self._trained += len(call.subrounds)
    self._pool.note_pace(self._key, info.seconds / self._waiting.cost(call.node))
    self._trained_sums[call.node] = sums
    self._know(call.node, sums)

  def _deadly(self, call: Call) -> str:
    """Says which clients of a call end their worker also when they are alone with it."""
    train = self._pool.remote(ray_worker.train, f'clients of {call}, one by one', max_retries=0)
    calls = {
      place: train(
        self._pool.settings, self._key, self._stage, self._common, self._work([[place]], {})
      )[2]
      for place in self._places(call)
    }
    ray.wait(list(calls.values()), num_returns=len(calls), timeout=_ALONE_SECONDS)
    found = []
    for place, reference in calls.items():
      try:
        ray.get(reference, timeout=0)
      except ray.exceptions.WorkerCrashedError:
        found.append(place)
      except ray.exceptions.RayError:  # Not done in time, or something else.
        pass
    return f'; alone, too, {self._clients(found)} did' if found else ''

  def _give_up(self, call: Call) -> None:
    """Ends the round if a call hangs in workers, and does not only wait for a busy cluster."""
    name = self._pool.name(ray_worker.train, str(call))
    if where := self._pool.where(name):
      seconds = time.monotonic() - call.first
      raise errors.WorkersLost(
        self._pool.line(
          f'{self._named(call)} has not ended for {seconds:.0f} s in {", ".join(where)}'
        )
      )
    call.first = time.monotonic()

  def _places(self, call: Call) -> list[int]:
    return [i for part in call.subrounds for i in self._workload.parts[part]]

  def _named(self, call: Call) -> str:
    return f'{call} ({self._clients(self._places(call))})'

  def _clients(self, places: Sequence[int]) -> str:
    """Some clients: their ids if there are references, else their places in the cohort."""
    workload = self._workload
    names = [str(i + 1) for i in places]
    for value, t in zip(workload.inputs, workload.calls.input_types):
      if wire.is_divided(t) and client_references.is_referenced(value):
        names = [str(client_references.client_of(value[i].key)) for i in places]
        break
    more = f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''
    return f'client{"s" if len(names) > 1 else ""} {", ".join(names[:_NAMED])}{more}'

  def _know(self, node: Node, sums: Any) -> None:
    """Begins merges: each is given references, and Ray waits until what they name is there."""
    self._sums[node] = sums
    while self._workload.stage.num_aggregates and node not in self._last():
      node = self._tree.parent(node)
      children = self._tree.children(node)
      if not all(child in self._sums for child in children):
        return
      sums = [self._sums[child] for child in children]
      self._sums[node] = self._merge(node, *sums) if len(sums) == 2 else sums[0]

  def _merge(self, node: Node, one: Any, other: Any) -> Any:
    leaves = self._tree.leaves(node)
    merge = self._pool.remote(ray_worker.merge, f'sums {leaves[0] + 1} to {leaves[-1] + 1}')
    return merge(self._pool.settings, self._key, self._stage, one, other)

  def _last(self) -> list[Node]:
    """The nodes that the trainer is sent: the root, or the two that it merges itself."""
    root = self._tree.root
    return self._tree.children(root) if self._is_near and root not in self._sums else [root]

  def _merged(self) -> list[Any]:
    """The sums of the last nodes; where a worker does not end a merge all are done once more."""
    try:
      return self._received(1)
    except ray.exceptions.GetTimeoutError:
      self._pool.report(self._pool.line('sums are merged again: is a worker stopped?'))
    self._sums = {}
    for node, sums in self._trained_sums.items():
      self._know(node, sums)
    try:
      return self._received(_AGAIN_TIMES)
    except ray.exceptions.GetTimeoutError:
      line = 'no worker has ended the merges of sums: is one stopped, or the cluster busy?'
      raise errors.WorkersLost(self._pool.line(line)) from None

  def _received(self, times: float) -> list[Any]:
    """The sums of the last nodes; Ray's GetTimeoutError after so many times what is late."""
    try:
      return self._pool.get([self._sums[node] for node in self._last()], times)
    except ray.exceptions.RayTaskError as error:
      self._pool.fail(error, 'a merge')
