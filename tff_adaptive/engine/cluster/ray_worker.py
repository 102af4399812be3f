"""The functions that run in a Ray worker. TensorFlow is imported after its options are set."""

import contextlib
import functools
import gc
import os
import pickle
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import cachetools

from tff_adaptive._utils import client_references, private_apis, value_text
from tff_adaptive.engine.cluster import errors
from tff_adaptive.kernels import library

CACHE_BYTES = 256 * 10**6

_stages: Any = cachetools.LRUCache(16)  # By digest.
_sources: Any = cachetools.LRUCache(4)  # By name. A run has one.


class Settings(NamedTuple):
  """The resources and options of a worker.

  Attributes:
    cpus: The number of clients that a worker trains at once, with one thread for each operation.
    gpus: The worker's number of GPUs, or share of one; 0 hides all GPUs.
    memory: The bytes of memory that Ray reserves for the worker; 0 reserves none.
  """

  cpus: int = 1
  gpus: float = 0
  memory: int = 0

  def resources(self) -> dict[str, float]:
    """Returns the resources that a worker takes on a node, by Ray's names."""
    taken = {'CPU': self.cpus, 'GPU': self.gpus, 'memory': self.memory}
    return {name: amount for name, amount in taken.items() if amount}


class Info(NamedTuple):
  """What a worker reports about a call.

  Attributes:
    attempt: The number of earlier attempts, which were lost with their workers.
    where: The worker, such as 'process 123 on 10.0.0.2'.
    versions: The result of `versions` in the worker.
    seconds: The duration of the call.
  """

  attempt: int
  where: str
  versions: str
  seconds: float


def versions() -> str:
  """Returns text with the versions that all processes must share, except Ray's and Python's."""
  import tensorflow as tf
  import tensorflow_federated as tff

  import tff_adaptive

  return (
    f'TensorFlow {tf.__version__}, TFF {tff.__version__}, tff-adaptive {tff_adaptive.__version__}'
  )


def warm_up(settings: Settings) -> None:
  """Imports the modules that the first call needs."""
  _engine(settings)


class Subrounds(NamedTuple):
  """The inputs of the subrounds of one call. Inputs that all calls share are sent separately.

  Attributes:
    divided: For each subround a list with an entry for each input of the stage: a list with the
      result of `wire.encode` for each client, or the `wire.Keys` of these values, or None if the
      input is not divided among clients.
    sources: By the name of a source, a list with Ray's reference to the source.
  """

  divided: list[list[Any]]
  sources: dict[str, list[Any]]


def train(
  settings: Settings, key: str, reference: list[Any], common: list[Any], subrounds: Subrounds
) -> tuple[Any, Any, Info]:
  """Trains the clients of some subrounds, one subround after another.

  Args:
    settings: The worker's settings.
    key: The stage's digest.
    reference: A list with Ray's reference to `Stage.octets`, for workers that lack the stage.
    common: For each input of the stage the result of `wire.encode`; None for divided inputs.
    subrounds: The divided inputs.

  Returns:
    The merged accumulators, the other results of each subround, and the call's `Info`.
  """
  began = time.monotonic()
  with _as_text():
    stage = _stage(settings, key, reference)
    from tff_adaptive.engine.cluster import schedule, wire

    shared = _shared(stage, common)
    sums: dict[tuple[int, int], Any] = {}
    results = []
    for divided in subrounds.divided:
      inputs = _for_clients(stage, shared, divided, subrounds.sources)
      accumulators, trained = stage.train(inputs)
      sums[0, len(sums)] = accumulators
      results.append([wire.encode(value, t) for value, t in zip(trained, stage.result_types)])
    merged = wire.as_arrays(schedule.MergeTree(len(sums)).fold(sums, stage.merged))
    seconds = time.monotonic() - began
    return merged, results, Info(private_apis.ray_attempt(), _where(), versions(), seconds)


@contextlib.contextmanager
def _as_text() -> Iterator[None]:
  """A context manager that turns errors of user code into an `errors.Failure`."""
  try:
    yield
  except (errors.WorkerError, errors.Failure, KeyboardInterrupt):
    raise
  except library.KernelError as error:  # This machine may lack a compiler.
    raise errors.WorkerError(f'Worker {_where()}: {error}') from None
  except BaseException as error:  # At SystemExit Ray would silently end the worker.
    raise errors.Failure.of(error, _where()) from None


def _shared(stage: Any, common: list[Any]) -> list[Any]:
  """Returns the value of each of the stage's inputs; None if it is divided among clients."""
  from tff_adaptive.engine.cluster import wire

  shared: list[Any] = []
  for flat, t in zip(common, stage.input_types):
    if flat is None:
      shared.append(None)
    else:
      shared.append(wire.decode(wire.as_tensors(flat), t))
  return shared


def _for_clients(
  stage: Any, shared: list[Any], divided: list[Any], sources: dict[str, list[Any]]
) -> list[Any]:
  """Returns the value of each of the stage's inputs for the clients of a subround."""
  from tff_adaptive.engine.cluster import wire

  inputs = []
  for value, rows, t in zip(shared, divided, stage.input_types):
    if isinstance(rows, wire.Keys):
      value = _loaded(opened(rows.source, sources), pickle.loads(rows.pickled))
    elif wire.is_divided(t):
      value = wire.decode(rows, t)
    inputs.append(value)
  return inputs


class OpenSource:
  """A source of clients' values that is open in this worker, with a cache of recent values."""

  def __init__(self, source: Any, cache_bytes: int = CACHE_BYTES):
    """Creates a cache of at most `cache_bytes` for an opened `client_references.Source`."""
    self.source = source
    self._cache: Any = cachetools.LRUCache(cache_bytes, getsizeof=num_bytes)

  def load(self, keys: Sequence[Any]) -> list[Any]:
    """Returns the values of the keys."""
    # All are collected first: what is put into the cache below may displace others of the keys.
    by_key = {key: self._cache[key] for key in keys if key in self._cache}
    missing = [key for key in keys if key not in by_key]
    if missing:
      by_key.update(zip(missing, self.source.load(missing)))
    for key in keys:
      with contextlib.suppress(ValueError):  # The value is larger than the cache.
        self._cache[key] = by_key[key]
    return [by_key[key] for key in keys]


def opened(name: str, references: Mapping[str, Any]) -> OpenSource:
  """Returns the source `name` of `Subrounds.sources`, which is opened unless it is still open."""
  if name not in _sources:
    _sources[name] = OpenSource(_open(references[name][0]))
  source: OpenSource = _sources[name]
  return source


def _open(reference: Any) -> Any:
  """Opens a source from Ray's object store, whose arrays a node's workers share."""
  import ray

  octets, buffers = ray.get(reference)
  try:
    return pickle.loads(octets, buffers=buffers)
  except Exception as error:  # Of any kind: files may be missing, or differ.
    reason = ' '.join(str(error).split())
    raise errors.WorkerError(f'Worker {_where()} cannot open client data: {reason}') from None


def _loaded(source: OpenSource, keys: list[Any]) -> list[Any]:
  """Returns the values of keys; an error names the client whose value cannot be loaded."""
  try:
    return source.load(keys)
  except Exception:
    # Loading many keys at once does not say which one fails; one by one it does.
    for key in keys:
      try:
        source.load([key])
      except Exception as error:
        client = f'client {value_text.in_text(client_references.client_of(key))}'
        raise errors.Failure.of(error, f'{client} in {_where()}') from None
    raise


def num_bytes(value: Any) -> int:
  """Returns the bytes in nested lists, tuples and mappings; values without a size count 64."""
  if isinstance(value, Mapping):
    value = list(value.values())
  if isinstance(value, (list, tuple)):
    return sum(map(num_bytes, value))
  if isinstance(value, (bytes, str)):
    return len(value)
  size: int = getattr(value, 'nbytes', 64)
  return size


def merge(
  settings: Settings, key: str, reference: list[Any], one: list[Any], other: list[Any]
) -> Any:
  """Returns the merged accumulators of two calls; for the other arguments see `train`."""
  from tff_adaptive.engine.cluster import wire

  with _as_text():
    return wire.as_arrays(_stage(settings, key, reference).merged(one, other))


def _stage(settings: Settings, key: str, reference: list[Any]) -> Any:
  if key not in _stages:
    import ray

    engine = _engine(settings)
    from tff_adaptive.engine.cluster import stages

    _stages[key] = stages.Stage.read(ray.get(reference[0]), engine)
  return _stages[key]


@functools.cache
def _engine(settings: Settings) -> Any:
  """Returns this process's engine, with the threads and devices that the settings allow."""
  # With several threads the order of some sums, and so their last bits, would differ.
  os.environ['TF_NUM_INTRAOP_THREADS'] = '1'
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '2')
  gc.disable()  # This saves a fifth of the time of imports, whose objects stay anyhow.
  from tff_adaptive.devices import placement
  from tff_adaptive.engine.graph import context

  gc.freeze()
  gc.enable()

  if settings.gpus:
    device = 'gpu'
    os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')  # Others may share the GPU.
  else:
    device = 'cpu'
    # More threads would pass operations to each other, which takes a fifth of the time.
    os.environ['TF_NUM_INTEROP_THREADS'] = str(settings.cpus)
    placement.hide_gpus()
  return context.GraphContext(parallel_clients=settings.cpus, device=device, results='tensors')


def _where() -> str:
  import ray

  return f'process {os.getpid()} on {ray.util.get_node_ip_address()}'
