"""The workers of a Ray cluster as a pool, with retries when workers or nodes are lost."""

import contextlib
import hashlib
import sys
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import numpy as np
import ray
from ray.autoscaler import sdk
from ray.util import scheduling_strategies

from tff_adaptive._utils import client_references, private_apis, user_code
from tff_adaptive.engine.cluster import errors, joining, ray_worker, schedule
from tff_adaptive.engine.cluster.stages import Stage
from tff_adaptive.engine.graph import context

_RETRIES = 3  # How often Ray repeats a call whose worker or node has ended.
_LOOK_SECONDS = 2.0
_LISTEN_SECONDS = 1.0
_SILENCE_SECONDS = 600.0  # If no call ends for so long, a message names the nodes that have calls.
_CALL_SECONDS = 0.25  # The least training that is worth a call, which costs some 10 ms.


class RayPool:
  """The workers of a cluster that `ray.init` has joined; for the arguments see `RayContext`.

  Attributes:
    settings: The settings of each worker.
    report: A function that shows a line of text to the user. The default gives a warning.
    occasion: A text such as 'round 7', with which reported lines and errors begin.
    counters: See `ray_context.RayContext.counters`.
  """

  def __init__(self, workers: int | None, settings: ray_worker.Settings, patience: float):
    self.settings = settings
    self._workers = workers
    self._patience = patience
    self._nodes: dict[str, str] | None = None
    self._left_out: set[str] = set()  # Nodes that are short of memory.
    self._rooms: dict[str, int] = {}
    self._only_on: str | None = None  # The node that gets all calls; None for all nodes.
    self._processes: dict[str, str] = {}  # Name -> address of the processes that Ray needs.
    self._programs = context.Cache()
    self._sources: dict[int, tuple[str, list[Any], Any]] = {}
    self._heard = time.monotonic()  # When a call last ended, or the first of a stage began.
    self._next_notice = _SILENCE_SECONDS  # After how many seconds of silence the message comes.
    self._paces: dict[str, float] = {}  # Digest of a stage -> its seconds for a unit of cost.
    self._room = 0  # How many workers the cluster has room for.
    self._without_room = time.monotonic()  # Since when it has room for none.
    self.report: Callable[[str], None] = lambda line: warnings.warn(line, stacklevel=2)
    self.occasion = ''
    names = ('seconds_waiting', 'bytes_to_workers', 'bytes_from_workers', 'subrounds_retried')
    self.counters: dict[str, float] = dict.fromkeys(names, 0)
    self._remote: dict[Callable[..., Any], Any] = {}
    # The functions that run in workers, and the number of their results.
    functions: Any = {ray_worker.train: 3, ray_worker.merge: 1, ray_worker.warm_up: 1}
    for function, num_returns in functions.items():
      self._remote[function] = ray.remote(
        num_cpus=settings.cpus,
        num_gpus=settings.gpus,
        memory=settings.memory,  # With 0 Ray reserves none.
        num_returns=num_returns,
        max_retries=_RETRIES,
        max_calls=0,  # Never ends a worker, not even one with a GPU: it has traced the stage.
      )(function)
    self._look()
    for _ in range(self.size):  # Workers start while the trainer does other work.
      self._remote[ray_worker.warm_up].remote(settings)

  def ask_for_room(self, workers: int) -> None:
    """Asks an autoscaling cluster to keep room for `workers` workers until the next request."""
    if ray.is_initialized():
      with contextlib.suppress(errors.WorkersLost):  # Ray would wait for a head that is lost.
        self._check_processes()
        sdk.request_resources(bundles=[self.settings.resources()] * workers)

  @property
  def size(self) -> int:
    """The number of workers in use: those requested, as far as the cluster has room for them."""
    if self._workers is None:
      return self._room
    return min(self._workers, self._room)

  @contextlib.contextmanager
  def losses(self) -> Iterator[None]:
    """A context manager that turns Ray's errors about lost workers into `WorkersLost`."""
    try:
      yield
    except ray.exceptions.RayError as error:
      if isinstance(error, ray.exceptions.RayTaskError):
        raise
      reason = ' '.join(str(error).split())
      raise errors.WorkersLost(self.line(f'the workers are lost ({reason:.200})')) from None

  def fail(self, error: ray.exceptions.RayTaskError, what: str = 'a call') -> NoReturn:
    """Raises the error of a call, after reporting which call (`what`) failed in which worker."""
    cause = error.cause
    if isinstance(cause, errors.Failure):
      self.say(f'{what} failed: {cause.line}')
      raise cause.original() from cause
    if isinstance(cause, Exception):
      raise cause from None
    raise error from None

  def line(self, text: str) -> str:
    """Returns a line for the user: the occasion, if any, and a text."""
    if self.occasion:
      text = f'{self.occasion}: {text}'
    return text[0].upper() + text[1:]

  def say(self, text: str) -> None:
    """Reports a text to the user, in the form of `line`."""
    self.report(self.line(text))

  def worthwhile(self, key: str) -> float:
    """Returns the least cost, in examples, that is worth a call; 0 if the stage `key` is new."""
    if key not in self._paces:
      return 0.0
    return _CALL_SECONDS / self._paces[key]

  def note_pace(self, key: str, seconds: float) -> None:
    """Records the seconds for an example in a call of the stage `key`; keeps the least."""
    self._paces[key] = min(seconds, self._paces.get(key, seconds))

  def serialized(self, stage: Stage) -> tuple[str, list[Any]]:
    """Returns a stage's digest, and a list with Ray's reference to its `Stage.octets`."""
    entry = self._programs.of(stage)
    if not entry:
      octets = stage.octets()
      comp, merge, _ = octets
      key = hashlib.sha256(comp + (merge or b'')).hexdigest()
      # Ray would replace a bare reference in a call's arguments by its value.
      entry['stage'] = key, [ray.put(octets)]
    return entry['stage']

  def source(self, source: client_references.Source) -> tuple[str, list[Any]]:
    """Puts a pickled source into Ray, once. Returns a random name for it, and [Ray's reference]."""
    if id(source) not in self._sources:
      for name, module in list(sys.modules.items()):
        if user_code.is_module(name):  # Workers cannot import it.
          ray.cloudpickle.register_pickle_by_value(module)
      self._sources[id(source)] = uuid.uuid4().hex, [_put(source)], source
    name, reference, _ = self._sources[id(source)]
    return name, reference

  def get(self, references: list[Any], what: str = 'a call') -> list[Any]:
    """Returns the results of calls like `ray.get`. Raises WorkersLost if no node is left."""
    # `ray.get` alone would wait for ever if no node were left. So the cluster is looked at, too.
    left = references
    while left:
      ended, left = ray.wait(left, num_returns=len(left), timeout=_LOOK_SECONDS)
      if not left:
        break
      self._listen(ended, left)
      self._look()
      self._check_room()
    try:
      return ray.get(references)
    except ray.exceptions.RayTaskError as error:
      self.fail(error, what)

  def _check_room(self) -> None:
    if self._room or time.monotonic() - self._without_room <= self._patience:
      return
    cpus, gpus, memory = self.settings
    needed = f'{cpus} CPUs and {gpus:g} GPUs'
    if memory:
      needed += f', and {memory / 1e9:g} GB for a worker'
    raise errors.WorkersLost(self.line(f'no worker is left: no node of the cluster has {needed}'))

  def remote(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Returns a function that submits calls to Ray and returns references of their results.

    Ray shows the task as 'train: round 7: subround 3', for example.
    """
    options: dict[str, Any] = {
      'name': ': '.join(filter(None, [function.__name__, self.occasion, name]))
    }
    if self._only_on is not None:
      options['scheduling_strategy'] = _on_node(self._only_on)
    elif self._left_out:
      options['label_selector'] = {'ray.io/node-id': f'!in({",".join(sorted(self._left_out))})'}
    remote: Callable[..., Any] = self._remote[function].options(**options).remote
    return remote

  def each_node(self) -> Iterator[str]:
    """Yields the name of each node with room for a worker, which alone gets the calls then."""
    self._look()
    names = self._nodes or {}
    try:
      for node in list(self._rooms):
        self._only_on = node
        yield names[node]
    finally:
      self._only_on = None

  def leave_out(self, error: Exception, then: str) -> bool:
    """Stops using the node that `error` calls short of memory; returns False if no other is left.

    Before the error Ray has repeated the call there, as often as `joining.join` allows.
    """
    nodes = self._nodes or {}
    short = next((node for node in nodes if node in str(error)), '')
    if not short or not self._rooms.keys() - {short}:
      return False
    self._left_out.add(short)
    self.say(f'node {nodes[short]} is short of memory and left out; {then}')
    self._look()
    return True

  def on_nodes(self, references: Sequence[Any]) -> str:
    """Names the nodes that got some calls, as far as Ray knows, such as ' on 10.0.0.2 (ab12cd)'."""
    nodes: list[str] = []
    for reference in references:
      nodes.extend(private_apis.ray_nodes(reference.task_id().binary()))
    if not nodes:
      return ''
    known = self._nodes or {}
    names = dict.fromkeys(known.get(node, node[:6]) for node in nodes)
    return f' on {", ".join(names)}'

  def begin(self) -> None:
    """Begins a stage: looks at the cluster, for which a short round may have no other time."""
    self._listen([True], [])
    self.look()

  def wait(self, references: list[Any]) -> list[Any]:
    """Returns a list with a reference that is ready, or an empty list after two seconds."""
    began = time.monotonic()
    # `fetch_local`: results stay in the workers' memory until somebody needs them.
    ready, left = ray.wait(references, num_returns=1, timeout=_LOOK_SECONDS, fetch_local=False)
    self.counters['seconds_waiting'] += time.monotonic() - began
    self._listen(ready, left)
    return ready

  def _listen(self, ended: Sequence[Any], left: Sequence[Any]) -> None:
    """Tells the user if no call has ended for long; again after twice that time, and so on.

    The call may be long, or its worker may be stopped. Only the user knows which. If the worker is
    killed, Ray gives its call to another one.
    """
    now = time.monotonic()
    if ended:
      self._heard = now
      self._next_notice = _SILENCE_SECONDS
    elif now - self._heard >= self._next_notice:
      self._next_notice *= 2
      self.say(
        f'no worker has finished a call for {now - self._heard:.0f} s, {len(left)} are'
        f' pending{self.on_nodes(left)}: if a worker is stopped or hangs, kill it, and Ray gives'
        ' its work to another'
      )

  def look(self) -> None:
    """Looks at the cluster if the last look is some seconds old."""
    if time.monotonic() - self._looked >= _LOOK_SECONDS:
      self._look()
      self._check_room()

  def note(self, info: ray_worker.Info, what: str, subrounds: int) -> None:
    """Reports a retry by Ray of a call for so many `subrounds`; `what` names them.

    Raises WorkerError if the worker has other versions than this process.
    """
    # Other versions may compute other bits, or misread the stage.
    if info.versions != ray_worker.versions():
      raise errors.WorkerError(
        self.line(
          f'the worker {info.where} has {info.versions}; here are {ray_worker.versions()}: install'
          ' the same on all nodes'
        )
      )
    if info.attempt:
      self.counters['subrounds_retried'] += subrounds
      self.say(f'a worker was lost; {info.where} did {what} again (try {info.attempt + 1})')

  def _look(self) -> None:
    """Counts the room for workers, and reports nodes that have come or gone."""
    self._check_processes()
    self._looked = time.monotonic()
    nodes = {n['NodeID']: n for n in ray.nodes() if n['Alive']}
    rooms = {
      key: schedule.room(n['Resources'], *self.settings)
      for key, n in nodes.items()
      if key not in self._left_out
    }
    self._rooms = {key: room for key, room in rooms.items() if room}
    had_room = self._room > 0
    self._room = sum(self._rooms.values())
    if had_room and not self._room:
      self._without_room = self._looked
    if self._nodes is not None:  # Not at the first look, to which every node is new.
      self._report_changes(self._nodes, nodes, rooms)
    self._nodes = {key: _name(node) for key, node in nodes.items()}
    at_ray = ray.get_runtime_context()
    here = nodes.get(at_ray.get_node_id())
    if here is None:
      raise errors.WorkersLost(self.line("Ray's node process of this machine is lost"))
    raylet = f'{here["NodeManagerAddress"]}:{here["NodeManagerPort"]}'
    self._processes = {
      'the head of the Ray cluster': at_ray.gcs_address,
      "Ray's node process of this machine": raylet,
    }

  def _report_changes(
    self, before: dict[str, str], nodes: dict[str, Any], rooms: dict[str, int]
  ) -> None:
    """Reports nodes that have come or gone, and starts workers on the new ones."""
    usable = f'{len(self._rooms)} with room'
    for lost in before.keys() - nodes.keys():
      self.say(f'node {before[lost]} is lost; {usable} left')
    for node in nodes.keys() - before.keys():
      self.say(f'node {_name(nodes[node])} has joined; {usable}')
      warm_up = self._remote[ray_worker.warm_up]
      for _ in range(rooms.get(node, 0)):
        warm_up.options(scheduling_strategy=_on_node(node)).remote(self.settings)

  def _check_processes(self) -> None:
    """Raises WorkersLost if Ray's processes do not listen, before Ray itself ends this process."""
    for what, address in self._processes.items():
      try:
        joining.check_listener(address, _LISTEN_SECONDS)
      except OSError as error:
        raise errors.WorkersLost(self.line(f'{what} at {address} is lost ({error})')) from None


def _put(source: Any) -> Any:
  """Puts an object into Ray's store; its arrays are separate, so a node's workers share them."""
  buffers: list[Any] = []
  octets = ray.cloudpickle.dumps(source, protocol=5, buffer_callback=buffers.append)
  return ray.put((octets, [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]))


def _on_node(node: str) -> scheduling_strategies.NodeAffinitySchedulingStrategy:
  return scheduling_strategies.NodeAffinitySchedulingStrategy(node, soft=False)


def _name(node: dict[str, Any]) -> str:
  return f'{node["NodeManagerAddress"]} ({node["NodeID"][:6]})'
