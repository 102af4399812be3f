"""A network of a worker's own, reached through one address only.

TFF's worker listens on all addresses of its machine, and it runs whatever it is asked to. In a
network namespace of its own nobody reaches it but a forwarder, whose address was opened before.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
import threading

_CLONE_NEWUSER, _CLONE_NEWNET = 0x10000000, 0x40000000
_SIOCSIFFLAGS, _IFF_UP = 0x8914, 1
_CHUNK_BYTES = 1 << 20


def enter_private_network() -> None:
  """Moves this process, which must have one thread, into a network with only a loopback.

  Sockets that are open stay where they are.

  Raises:
    OSError: If the system does not let it.
  """
  if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number))
  with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack('16sh14x', b'lo', _IFF_UP))


def forward(listener: socket.socket, port: int) -> None:
  """Forwards connections to a port of this process's own loopback, in threads, until it ends."""
  threading.Thread(target=_accept, args=(listener, port), daemon=True).start()


def _accept(listener, port):
  while True:
    try:
      near, _ = listener.accept()
    except OSError:
      return
    try:
      far = socket.create_connection(('127.0.0.1', port))
    except OSError:
      near.close()
      continue
    for connection in (near, far):
      connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for source, sink in ((near, far), (far, near)):
      threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source, sink):
  buffer = memoryview(bytearray(_CHUNK_BYTES))
  with contextlib.suppress(OSError):
    while True:
      count = source.recv_into(buffer)
      if not count:
        break
      sink.sendall(buffer[:count])
  # Its other direction ends too, and then nobody holds either socket.
  for connection in (source, sink):
    with contextlib.suppress(OSError):
      connection.shutdown(socket.SHUT_RDWR)
