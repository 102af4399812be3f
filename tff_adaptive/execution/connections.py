"""A connection to one of TFF's workers, and whether it is one of this TFF's."""

import asyncio
import collections
import functools
import os
import re
import socket
import time
from typing import Any, Optional

import grpc
import tensorflow as tf
import tensorflow_federated as tff

_CONNECT_SECONDS = 3.0
_ANSWER_SECONDS = 6.0
_OPTIONS = [
  ('grpc.max_receive_message_length', -1),
  ('grpc.max_send_message_length', -1),
  ('grpc.enable_http_proxy', 0),
]
_KNOCK = '/tff_adaptive/Knock'
_KNOCK_SECONDS = 10.0
# A connection of its own: a large message on the other one does not hold it up.
_KNOCK_OPTIONS = [('grpc.use_local_subchannel_pool', 1), ('grpc.enable_http_proxy', 0)]
# What a call ends with when the worker, not the computation, is the reason. FAILED_PRECONDITION:
# it began anew and does not know what the one before it was given.
_LOST = (
  grpc.StatusCode.UNAVAILABLE,
  grpc.StatusCode.CANCELLED,
  grpc.StatusCode.DEADLINE_EXCEEDED,
  grpc.StatusCode.FAILED_PRECONDITION,
)
_HEADER_BYTES = 1024  # Of an ELF file; its build ID is among them.
_BUILD_ID = re.compile(rb'\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0(.{20})', re.DOTALL)


class WorkerError(RuntimeError):
  """No worker at an address, or not one of this TFF."""


class WorkerLost(grpc.RpcError):
  """A worker ended, or cannot be reached any more."""


class Connection:
  """A TFF context that runs computations on one worker.

  Attributes:
    address: 'host:port'.
    bytes_sent: Of the requests so far.
    bytes_received: Of the answers so far.
  """

  def __init__(self, address: str):
    self.address = address
    self._wire = _Wire()
    self._channel: Optional[grpc.Channel] = None
    self._is_closed = True
    self._context: Any = None
    self._num_clients = 0

  @property
  def bytes_sent(self) -> int:
    return self._wire.sent

  @property
  def bytes_received(self) -> int:
    return self._wire.received

  def connect(self) -> None:
    """Connects, and makes sure that a worker of this TFF answers; takes seconds at most.

    Raises:
      WorkerError: If not; the message says what is wrong and how to mend it.
    """
    try:
      self._reach()
    except OSError as error:
      port = self.address.rpartition(':')[2]
      raise WorkerError(
        f'no worker at {self.address} ({error.strerror or error}): start one there with'
        f' scripts/worker.py --port={port}, or mend the address'
      ) from None
    self._open()
    try:
      self._wire.deadline = time.monotonic() + _ANSWER_SECONDS
      build = _build_id(bytes(self.run(_worker_header(), None, 0)))
    except WorkerLost as error:
      self.close()
      raise WorkerError(
        f'what listens at {self.address} is no TFF worker, or a dead one: it did not answer as'
        f' such within {_ANSWER_SECONDS:.0f} s ({error!s:.100})'
      ) from None
    except Exception as error:
      self.close()
      raise WorkerError(
        f'the worker at {self.address} does not speak as TFF {tff.__version__} does: install the'
        f' same version there ({" ".join(str(error).split()):.200})'
      ) from None
    self._wire.deadline = None
    if build != local_build_id():
      self.close()
      raise WorkerError(
        f'the worker at {self.address} is of another TFF than the {tff.__version__} here (build'
        f' {build}, here {local_build_id()}): install the same version there'
      )

  def knock(self) -> None:
    """Raises OSError if no worker answers at the address.

    It is asked for a method that no worker has, which gRPC itself answers, in the midst of work and
    without a trace. A connection alone would say less: the system accepts it for a stopped process.
    """
    with grpc.insecure_channel(self.address, _KNOCK_OPTIONS) as channel:
      try:
        channel.unary_unary(_KNOCK)(b'', timeout=_KNOCK_SECONDS)
      except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
          raise OSError(f'{error.code().name}: {error.details()}') from None

  def _reach(self):
    """Raises OSError if nobody listens at the address."""
    host, _, port = self.address.rpartition(':')
    with socket.create_connection((host.strip('[]'), int(port)), timeout=_CONNECT_SECONDS):
      pass

  def run(self, comp: tff.framework.ConcreteComputation, arg: Any, num_clients: int) -> Any:
    """Runs a computation, in TFF's native form, on the worker.

    Args:
      comp: The computation.
      arg: Its argument, of NumPy values; None if it has none.
      num_clients: For how many clients.

    Returns:
      Its result, of NumPy values.

    Raises:
      WorkerLost: If the worker ended.
    """
    self._num_clients = num_clients
    try:
      return asyncio.run(self._context.invoke(comp, arg))
    except Exception:
      if self._is_closed:
        raise WorkerLost('it does not answer any more') from None
      raise

  def close(self) -> None:
    """Closes the connection; what is running ends with WorkerLost."""
    self._is_closed = True
    if self._channel is not None:
      self._channel.close()

  def _open(self):
    self.close()
    self._is_closed = False
    self._channel = grpc.insecure_channel(self.address, _OPTIONS)
    channel = grpc.intercept_channel(self._channel, self._wire)
    # The stub's subscription is a thread that complains when the channel is closed.
    channel.subscribe = lambda callback, try_to_connect=None: None
    stub = tff.framework.RemoteExecutorGrpcStub(channel)

    def executor(cardinalities):
      remote = tff.framework.RemoteExecutor(stub)
      remote.set_cardinalities({tff.CLIENTS: 0, **cardinalities})  # None without an argument.
      return remote

    # In the default retry a worker that has ended would be waited for without end: `_Wire` makes
    # of it an error that is not retried.
    self._context = tff.framework.AsyncExecutionContext(
      tff.framework.ResourceManagingExecutorFactory(executor),
      cardinality_inference_fn=lambda arg, type_spec: {tff.CLIENTS: self._num_clients},
    )


class _Wire(grpc.UnaryUnaryClientInterceptor):
  """Counts bytes, keeps a deadline, and tells the end of a worker from other errors."""

  def __init__(self):
    self.deadline: Optional[float] = None
    self.sent = self.received = 0

  def intercept_unary_unary(self, continuation, client_call_details, request):
    if self.deadline is not None:
      timeout = max(0.1, self.deadline - time.monotonic())
      client_call_details = _Details(
        client_call_details.method, timeout, client_call_details.metadata, None, None, None
      )
    self.sent += request.ByteSize()
    call = continuation(client_call_details, request)
    code = call.code()
    if code in _LOST:
      raise WorkerLost(f'{code.name}: {call.details()}')
    if code is grpc.StatusCode.OK:
      self.received += call.result().ByteSize()
    return call


class _Details(
  collections.namedtuple(
    '_Details', 'method timeout metadata credentials wait_for_ready compression'
  ),
  grpc.ClientCallDetails,
):
  """Details of a call, with a timeout."""


@functools.cache
def _worker_header():
  """The computation of the beginning of the worker's own program file.

  TFF's protocol has no version; the build ID of the program is as good, for it is another one in
  each release.
  """

  @tff.tensorflow.computation
  def header():
    octets = tf.data.FixedLengthRecordDataset('/proc/self/exe', 1)  # Of any length, unlike more.
    return octets.take(_HEADER_BYTES).reduce(tf.constant(b''), lambda head, octet: head + octet)

  return tff.backends.native.desugar_and_transform_to_native(header)


@functools.cache
def local_build_id() -> str:
  """The build ID of the worker of the TFF that is installed here."""
  with open(worker_binary(), 'rb') as file:
    return _build_id(file.read(_HEADER_BYTES))


def worker_binary() -> str:
  """The path of TFF's worker."""
  return os.path.join(os.path.dirname(tff.__file__), 'data', 'worker_binary')


def _build_id(header: bytes) -> str:
  found = _BUILD_ID.search(header)
  return found.group(1).hex() if found else 'unknown'
