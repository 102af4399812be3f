"""Subrounds in the workers of a Ray cluster, which Ray retries where one ends."""

import contextlib
import hashlib
import socket
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np
import ray
from ray.autoscaler import sdk
from ray.util import scheduling_strategies

from tff_adaptive._utils import client_references, user_code
from tff_adaptive.engine.cluster import errors, node_room, ray_round, ray_worker, stage_calls
from tff_adaptive.engine.cluster.subrounds import Outcome, Pool, Workload
from tff_adaptive.engine.graph import cache

_RETRIES = 3  # Of a call whose worker or node has ended, by Ray.
_LOOK_SECONDS = 2.0
_ANSWER_SECONDS = 5.0
_START_SECONDS = 600.0  # In which a worker, on a busy machine, has imported what it needs.
_MANY_TIMES = 10  # A call is late if it takes so many times as long as the longest of late.
_CALL_SECONDS = 0.25  # Of training for which a call, of some 10 ms, is worth its while.


class RayPool(Pool):
  """Workers of a cluster that `ray.init` has joined.

  Attributes:
    settings: How each worker computes.
    report: Takes a line for the user; by default a warning.
    occasion: What is trained for, such as 'round 7'; lines and errors begin with it.
    bytes_sent: To the workers so far.
    bytes_received: From them so far.
    retried: Subrounds that were done again, so far.
    seconds_waiting: In which there was nothing to do but wait for them, so far.
  """

  def __init__(self, workers: int | None, settings: ray_worker.Settings, patience: float):
    """Begins to start workers.

    Args:
      workers: How many at most; None: as many as the cluster has room for.
      settings: How each computes.
      patience: Seconds after which a call may be late, and without any worker the round is lost.
    """
    self.settings = settings
    self._workers, self._patience = workers, patience
    self._nodes: dict[str, str] | None = None
    self._processes: dict[str, str] = {}  # Addresses of those without which Ray is lost.
    self._programs = cache.Cache()
    self._sources: dict[int, tuple[str, list[Any], Any]] = {}
    self._longest = [0.0, 0.0]  # Seconds of a call, in the stage before and in this one.
    self._paces: dict[str, float] = {}  # Seconds for a unit of cost, of a stage by its digest.
    self._room, self._without_room = 0, time.monotonic()  # Since when, if there is none.
    self.report: Callable[[str], None] = lambda line: warnings.warn(line, stacklevel=2)
    self.occasion = ''
    self.bytes_sent = self.bytes_received = self.retried = 0
    self.seconds_waiting = 0.0
    returns: dict[Callable[..., Any], int] = {
      ray_worker.train: 3,
      ray_worker.merge: 1,
      ray_worker.warm_up: 1,
      ray_worker.call: 1,
    }
    self._remote = {function: _remote(function, settings, n) for function, n in returns.items()}
    self._remote[ray_worker.processes] = _remote(ray_worker.processes, ray_worker.Settings(0), 1)
    self._left_out: set[str] = set()  # Nodes that are short of memory.
    self._look()
    # Begun while the trainer makes ready; nobody waits for them, or calls anybody late meanwhile.
    self._warm_ups = [self._warm_up() for _ in range(self.size)]
    self._warm_since = time.monotonic()

  def ask_for_room(self, workers: int) -> None:
    """Asks a cluster that grows by itself for room for some workers, until it is asked again."""
    if ray.is_initialized():
      resources = {'CPU': self.settings.cpus, 'GPU': self.settings.gpus}
      bundle = {name: amount for name, amount in resources.items() if amount}
      sdk.request_resources(bundles=[bundle] * workers)

  @property
  def is_here(self) -> bool:
    """Whether this process's node is the only one."""
    return {*(self._nodes or {})} == {ray.get_runtime_context().get_node_id()}

  @property
  def size(self) -> int:
    """How many workers there is room for, and use."""
    return self._room if self._workers is None else min(self._workers, self._room)

  @property
  def is_look_due(self) -> bool:
    """Whether it is some seconds since the cluster was looked at."""
    return time.monotonic() - self._looked > _LOOK_SECONDS

  def run(self, workload: Workload) -> Outcome:
    """Trains all subrounds, each counted once; the costliest first, by whoever is idle."""
    self._longest = [self._longest[1], 0.0]  # The first, with its trace, is soon forgotten.
    if self.is_look_due:  # Short rounds never wait so long.
      self._look()
    try:
      return ray_round.Round(self, workload).run()
    except ray_round.LOST as error:
      raise self._lost(error) from None

  def _lost(self, error: Exception) -> errors.WorkersLost:
    reason = ' '.join(str(error).split())
    return errors.WorkersLost(self.line(f'the workers are lost ({reason:.200})'))

  def leave_out(self, error: Exception, what: str) -> None:
    """Gives no more calls to a node that is short of memory; `WorkersLost` if it is the last."""
    names = self._nodes or {}
    short = next((node for node in names if node in str(error)), None)
    if short is None or not self._rooms.keys() - {short, *self._left_out}:
      raise errors.WorkersLost(
        self.line(f'{what} needs more memory than a node has ({error!s:.300})')
      )
    self._left_out.add(short)
    self.retried += 1
    self.report(
      self.line(f'node {names[short]} is short of memory and left out; {what} goes to another')
    )
    self._look()

  def where(self, name: str) -> list[str]:
    """The workers that do a call of a name now, as far as their nodes answer."""
    look = self._remote[ray_worker.processes].options
    calls = [look(scheduling_strategy=_on_node(node)).remote(name) for node in self._rooms]
    ready, _ = ray.wait(calls, num_returns=len(calls), timeout=self._patience)
    found: set[str] = set()
    for reference in ready:
      with contextlib.suppress(ray.exceptions.RayError):  # Its node has died meanwhile.
        found.update(ray.get(reference))
    return sorted(found)

  def is_overdue(self, call: ray_round.Call) -> bool:
    """Whether a call that was given again, too, has taken so long that it must hang."""
    longest = max(self._longest)
    most = max(_MANY_TIMES**2 * longest, self._patience * (10 if longest else 60))
    return call.copies > 0 and time.monotonic() - call.first > most

  def fail(self, error: ray.exceptions.RayTaskError, what: str = 'a call') -> NoReturn:
    """Raises what a call raised; a line says in which worker, and for which clients."""
    cause = error.cause
    if isinstance(cause, errors.Failure):
      self.report(self.line(f'{what} failed: {cause.line}'))
      raise cause.original() from cause.in_worker
    raise (cause if isinstance(cause, Exception) else error) from None

  def line(self, text: str) -> str:
    """A line for the user."""
    line = f'{self.occasion}: {text}' if self.occasion else text
    return line[0].upper() + line[1:]

  def worthwhile(self, key: str) -> float:
    """The cost that is worth a call of its own; 0 of a stage that nobody has trained."""
    return _CALL_SECONDS / self._paces[key] if key in self._paces else 0.0

  def note_pace(self, key: str, seconds: float) -> None:
    """Notes how long a unit of cost took; a call that traced the stage is soon forgotten."""
    self._paces[key] = min(seconds, self._paces.get(key, seconds))

  def serialized(self, stage: Any) -> tuple[str, list[Any]]:
    """A stage's digest, and a list with a reference to the stage."""
    made = self._programs.of(stage.comp)
    if not made:
      octets = stage_calls.serialize(stage)
      key = hashlib.sha256(b''.join([octets.comp, octets.merge or b''])).hexdigest()
      made['stage'] = key, [ray.put(octets)]
    return made['stage']

  def source(self, source: client_references.Source) -> tuple[str, list[Any]]:
    """A source's name, and a list with a reference to it.

    Raises:
      Exception: Of many kinds, if it cannot be pickled.
    """
    if id(source) not in self._sources:
      for name, module in list(sys.modules.items()):
        if user_code.is_module(name):  # Workers have no module of that name.
          ray.cloudpickle.register_pickle_by_value(module)
      self._sources[id(source)] = uuid.uuid4().hex, [_put(source)], source
    name, reference, _ = self._sources[id(source)]
    return name, reference

  def each(
    self, function: Callable[[Any], Any], arguments: Sequence[Any], seconds: float = 0.0
  ) -> list[Any]:
    """Has workers call a function with each argument; what Ray retries is called again.

    Args:
      function: What is called.
      arguments: The arguments.
      seconds: That a call may take.

    Returns:
      The results.

    Raises:
      WorkersLost: If no worker is left, or none ends a call for `seconds`, for `patience` and for
        ten times as long as subrounds take; a line says so.
    """
    calls = [self._remote[ray_worker.call].remote(function, a) for a in arguments]
    try:
      self._wait_for_all(calls, max(self._late_after(), seconds))
    except ray_round.LOST as error:
      raise self._lost(error) from None
    return self._get(calls)

  def _wait_for_all(self, calls: list[Any], most: float) -> None:
    """Waits while any of the calls ends every so many seconds; else `WorkersLost`."""
    left = calls
    while left:
      ended, left = ray.wait(left, timeout=most)
      if not ended and not self._is_starting():
        self._look()
        self._check_room()
        line = self.line(
          f'no worker has ended a call for {most:.0f} s, {len(left)} are waited for: is one'
          ' stopped, or the cluster busy?'
        )
        self.report(f'{line} This process goes on without them.')
        raise errors.WorkersLost(line)

  def on_each_node(self, function: Callable[[Any], Any], argument: Any) -> list[Any]:
    """Has a worker of each node call a function; pairs of the node's name and the result.

    Raises:
      WorkersLost: If for some time there has been no node with room for a worker.
    """
    self._look()
    while not self._room:
      time.sleep(_LOOK_SECONDS)
      self._look()
      self._check_room()
    call = self._remote[ray_worker.call]
    calls = {
      node: call.options(scheduling_strategy=_on_node(node)).remote(function, argument)
      for node in self._rooms
    }
    names, found = self._nodes or {}, []
    for node, reference in calls.items():
      while not ray.wait([reference], timeout=self._patience)[0]:
        if not self._is_starting():
          line = f'waiting for a worker of node {names[node]}: is it stopped, or busy?'
          self.report(self.line(line))
          break
      with contextlib.suppress(errors.WorkersLost):  # A node that is lost sees nothing.
        found.append((names[node], *self._get([reference])))
    return found

  def _get(self, references: list[Any]) -> list[Any]:
    try:
      return self.get(references)
    except ray.exceptions.RayTaskError as error:
      self.fail(error)
    except ray_round.LOST as error:
      raise self._lost(error) from None

  def get(self, references: Any, times: float = np.inf) -> Any:
    """As `ray.get`, which would wait for ever where no node is left that could do a call again.

    Args:
      references: What is waited for.
      times: After so many times what makes a call late it raises Ray's GetTimeoutError.

    Raises:
      WorkersLost: If for some time there has been no room for a worker.
    """
    began = time.monotonic()
    while True:
      try:
        return ray.get(references, timeout=_LOOK_SECONDS)
      except ray.exceptions.GetTimeoutError:
        self._look()
        self._check_room()
        if time.monotonic() - began > times * self._late_after():
          raise

  def _check_room(self) -> None:
    if self._room or time.monotonic() - self._without_room <= self._patience:
      return
    raise errors.WorkersLost(
      self.line(
        'no worker is left: no node of the cluster has'
        f' {self.settings.cpus} CPUs and {self.settings.gpus:g} GPUs'
      )
    )

  def remote(self, function: Callable[..., Any], name: str, **options: Any) -> Callable[..., Any]:
    """A function that gives a call to Ray, by a name, and returns references of its results."""
    if self._left_out:
      options['label_selector'] = {'ray.io/node-id': f'!in({",".join(sorted(self._left_out))})'}
    name = self.name(function, name)
    remote: Callable[..., Any] = self._remote[function].options(name=name, **options).remote
    return remote

  def name(self, function: Callable[..., Any], name: str) -> str:
    """What Ray calls a task: 'train: round 7: subround 3'."""
    return ': '.join(filter(None, [function.__name__, self.occasion, name]))

  def wait(self, references: list[Any]) -> list[Any]:
    """Those of the references that are ready; none after some seconds."""
    began = time.monotonic()
    ready, _ = ray.wait(references, num_returns=1, timeout=_LOOK_SECONDS, fetch_local=False)
    self.seconds_waiting += time.monotonic() - began
    return ready

  def look(self, calls: list[ray_round.Call]) -> list[ray_round.Call]:
    """Looks at the cluster and at the calls; returns those that are late for the first time."""
    self._look()
    self._check_room()
    now = time.monotonic()
    if self._is_starting() or not self._room:
      return []
    most = self._late_after()
    # Each time twice as long: they may all wait for a cluster that others keep busy.
    return [
      call
      for call in calls
      if not call.is_late and now - max(call.began, self._warm_since) > most * 2**call.copies
    ]

  def _late_after(self) -> float:
    """Seconds after which a call is late."""
    return max(self._patience, _MANY_TIMES * max(self._longest))

  def note(self, call: ray_round.Call, info: ray_worker.Info) -> None:
    """Counts a call that has ended well, and says how if it was tried before.

    Raises:
      WorkerError: If the worker has other versions than this process.
    """
    if info.versions != ray_worker.versions():
      raise errors.WorkerError(
        self.line(
          f'the worker {info.where} has {info.versions}; here are {ray_worker.versions()}: install'
          ' the same on all nodes'
        )
      )
    if not call.is_late:
      self._longest[1] = max(self._longest[1], time.monotonic() - call.began)
    if info.attempt:
      self.retried += len(call.subrounds)
      were = 'were' if call.is_several else 'was'
      self.report(
        self.line(
          f'a worker was lost; {call} {were} done again, by {info.where}'
          + (f' (try {info.attempt + 1})' if info.attempt > 1 else '')
        )
      )

  def _warm_up(self, **options: Any) -> tuple[Any, float]:
    """Has a worker import what it needs; a reference, and when this was."""
    call = self._remote[ray_worker.warm_up].options(**options)
    return call.remote(self.settings), time.monotonic()

  def _is_starting(self) -> bool:
    """Whether a worker still imports what it needs, as far as one can say."""
    if not self._warm_ups:
      return False
    now = time.monotonic()
    references = [reference for reference, _ in self._warm_ups]
    _, waiting = ray.wait(references, num_returns=len(references), timeout=0)
    self._warm_ups = [
      (reference, began)
      for reference, began in self._warm_ups
      if reference in waiting and now - began < _START_SECONDS
    ]
    self._warm_since = now
    return bool(self._warm_ups)

  def _look(self) -> None:
    """Counts the room for workers, and reports nodes that have come and gone.

    Raises:
      WorkersLost: If the head, or this machine's node, has ended.
    """
    self._check_processes()
    self._looked = time.monotonic()
    nodes = {n['NodeID']: n for n in ray.nodes() if n['Alive']}
    cpus, gpus = self.settings
    rooms = {key: node_room.room(n['Resources'], cpus, gpus) for key, n in nodes.items()}
    self._rooms = {k: room for k, room in rooms.items() if room and k not in self._left_out}
    had_room, self._room = self._room, sum(self._rooms.values())
    if had_room and not self._room:
      self._without_room = self._looked
    if self._nodes is not None:
      usable = f'{len(self._rooms)} with room'
      for lost in self._nodes.keys() - nodes.keys():
        self.report(self.line(f'node {self._nodes[lost]} is lost; {usable} left'))
      for node in nodes.keys() - self._nodes.keys():
        self.report(self.line(f'node {_name(nodes[node])} has joined; {usable}'))
        self._warm_ups += [
          self._warm_up(scheduling_strategy=_on_node(node)) for _ in range(rooms[node])
        ]
    self._nodes = {key: _name(node) for key, node in nodes.items()}
    context = ray.get_runtime_context()
    here = nodes.get(context.get_node_id())
    if here is None:
      raise errors.WorkersLost(self.line("Ray's node process of this machine is lost"))
    raylet = f'{here["NodeManagerAddress"]}:{here["NodeManagerPort"]}'
    self._processes = {
      'the head of the Ray cluster': context.gcs_address,
      "Ray's node process of this machine": raylet,
    }

  def _check_processes(self) -> None:
    """Sees whether Ray's processes listen: Ray waits for a minute, and ends this one in silence."""
    for what, address in self._processes.items():
      host, _, port = address.rpartition(':')
      for is_last in (False, False, True):
        try:
          socket.create_connection((host.strip('[]'), int(port)), _ANSWER_SECONDS).close()
          break
        except OSError as error:
          if is_last:
            raise errors.WorkersLost(self.line(f'{what} at {address} is lost ({error})')) from None
          time.sleep(0.5)


def _remote(function: Callable[..., Any], settings: ray_worker.Settings, num_returns: int) -> Any:
  return ray.remote(
    num_cpus=settings.cpus,
    num_gpus=settings.gpus,
    num_returns=num_returns,
    max_retries=_RETRIES,
    max_calls=0,  # A worker is used again, also one with a GPU: it has traced the stage.
  )(function)


def _put(source: Any) -> Any:
  """A reference of a pickled object, its arrays apart: a node's workers share them."""
  buffers: list[Any] = []
  octets = ray.cloudpickle.dumps(source, protocol=5, buffer_callback=buffers.append)
  return ray.put((octets, [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]))


def _on_node(node: str) -> scheduling_strategies.NodeAffinitySchedulingStrategy:
  return scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)


def _name(node: dict[str, Any]) -> str:
  return f'{node["NodeManagerAddress"]} ({node["NodeID"][:6]})'
