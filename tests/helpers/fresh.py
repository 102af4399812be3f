"""Fresh Python processes that have imported TensorFlow and TFF, forked from one that did it once.

`[*fresh.python(), '-c', code]` is a command as `[sys.executable, '-c', code]` is, for a program
that needs TFF in a process of its own; `-m MODULE` and FILE do too. Streams, environment, working
folder, processors, signals and the exit code are those of the command. Nothing of this project is
imported before the program does it, and nothing was computed.

A server imports and forks, one for all workers of a test run. What a test starts is a client of
it, which Python starts in an instant: it hands over its streams and ends as the program ends.
"""

import atexit
import contextlib
import fcntl
import functools
import json
import os
import select
import signal
import socket
import sys
import time

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)


def python() -> list[str]:
  """What to write for `sys.executable`; starts the server if there is none."""
  return [sys.executable, '-S', '-E', __file__, _server()]


@functools.cache
def _server() -> str:
  """The path of the server's socket."""
  import subprocess
  import tempfile

  # The process of pytest itself: the server ends with it.
  tests = os.getppid() if 'PYTEST_XDIST_WORKER' in os.environ else os.getpid()
  folder = os.path.join(tempfile.gettempdir(), f'fresh-{os.getuid()}-{tests}')
  path = os.path.join(folder, 'socket')
  os.makedirs(folder, mode=0o700, exist_ok=True)
  with open(os.path.join(folder, 'lock'), 'w') as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    if not os.path.exists(path):
      process = subprocess.Popen(
        [sys.executable, __file__, path, '--serve', str(tests)],
        env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
        stdin=subprocess.DEVNULL,
        start_new_session=True,
      )
      while not os.path.exists(path):
        assert process.poll() is None, 'the server of fresh processes has ended'
        time.sleep(0.05)
      process.returncode = 0  # It outlives this worker: nobody waits for it.
  return path


def _request(path: str, command: list[str]) -> None:
  """Asks for a process, passes signals on to it and ends as it ends."""
  connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  connection.connect(path)
  message = {
    'command': command,
    'environment': dict(os.environ),
    'folder': os.getcwd(),
    'processors': sorted(os.sched_getaffinity(0)),
    'ignored': [n for n in _FORWARDED if signal.getsignal(n) is signal.SIG_IGN],
  }
  signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
  socket.send_fds(connection, [json.dumps(message).encode()], [0, 1, 2])
  process = int(connection.recv(64))
  for number in _FORWARDED:
    signal.signal(number, lambda n, _: os.kill(process, n))
  signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
  for stream in (0, 1, 2):
    os.close(stream)
  status = int(connection.recv(64) or signal.SIGKILL)
  if os.WIFSIGNALED(status):
    number = os.WTERMSIG(status)
    if number != signal.SIGKILL:
      signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
  os._exit(os.waitstatus_to_exitcode(status))


def _serve(path: str, tests: int) -> tuple[dict, list[int]]:
  """Forks at each request until the tests have ended; returns in the forked processes only."""
  import gc

  import tensorflow_federated  # noqa: F401
  from tensorflow.python.eager import context

  assert not context.context()._initialized, 'TensorFlow has threads, which no fork survives'
  gc.freeze()
  woken, wake = os.pipe()
  os.set_blocking(wake, False)
  os.set_blocking(woken, False)
  signal.signal(signal.SIGCHLD, lambda *_: None)
  signal.set_wakeup_fd(wake)
  listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  listener.bind(f'{path}.new')
  listener.listen(64)
  os.rename(f'{path}.new', path)
  clients: dict[socket.socket, int] = {}
  while os.path.exists(f'/proc/{tests}'):
    ready, _, _ = select.select([listener, woken, *clients], [], [], 1.0)
    if woken in ready:
      os.read(woken, 4096)
      for client, process in list(clients.items()):
        ended, status = os.waitpid(process, os.WNOHANG)
        if ended:
          _send(client, status)
          client.close()
          del clients[client]
    for client in (client for client in ready if client in clients):
      os.kill(clients[client], signal.SIGKILL)  # Its client was killed.
    if listener in ready:
      client, _ = listener.accept()
      message, streams, _, _ = socket.recv_fds(client, 1 << 20, 3)
      process = os.fork()
      if not process:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for other in (listener, client, *clients):
          other.close()
        os.close(woken)
        os.close(wake)
        return json.loads(message), streams
      for stream in streams:
        os.close(stream)
      clients[client] = process
      _send(client, process)
  for process in clients.values():
    os.kill(process, signal.SIGKILL)
  for name in (path, os.path.join(os.path.dirname(path), 'lock')):
    os.remove(name)
  os.rmdir(os.path.dirname(path))
  os._exit(0)


def _send(client: socket.socket, number: int) -> None:
  with contextlib.suppress(OSError):  # It was killed.
    client.send(b'%d' % number)


def _run(message: dict, streams: list[int]) -> None:
  """Becomes the process that was asked for."""
  import runpy
  import types

  import numpy as np
  import tensorflow_federated as tff

  os.setpgid(0, 0)
  for i, stream in enumerate(streams):
    os.dup2(stream, i)
    os.close(stream)
  sys.stdin, sys.stdout, sys.stderr = (
    os.fdopen(0, closefd=False),
    os.fdopen(1, 'w', closefd=False),
    os.fdopen(2, 'w', buffering=1, errors='backslashreplace', closefd=False),
  )
  old = os.environ.get('PYTHONPATH', '').split(os.pathsep)
  os.environ.clear()
  os.environ.update(message['environment'])
  os.chdir(message['folder'])
  os.sched_setaffinity(0, message['processors'])
  for number in message['ignored']:
    signal.signal(number, signal.SIG_IGN)
  if signal.SIGINT not in message['ignored']:
    signal.signal(signal.SIGINT, signal.default_int_handler)
  np.random.seed()
  # TFF's default context has a thread since it was imported, which did not survive the fork.
  tff.backends.native.set_sync_local_cpp_execution_context()
  kind, *rest = message['command']
  new = [p for p in os.environ.get('PYTHONPATH', '').split(os.pathsep) if p]
  sys.path[:] = [*new, *(p for p in sys.path[1:] if p not in old)]
  if kind == '-c':
    code, *arguments = rest
    sys.argv = ['-c', *arguments]
    sys.path.insert(0, '')
    main = sys.modules['__main__'] = types.ModuleType('__main__')
    exec(compile(code, '<string>', 'exec'), main.__dict__)
  elif kind == '-m':
    sys.argv = rest
    sys.path.insert(0, os.getcwd())
    runpy.run_module(rest[0], run_name='__main__', alter_sys=True)
  else:
    sys.argv = [kind, *rest]
    sys.path.insert(0, os.path.dirname(os.path.abspath(kind)))
    runpy.run_path(kind, run_name='__main__')


def _main(path: str, tests: int) -> None:
  """Serves; what is forked becomes a program and leaves without taking TFF's modules apart."""
  code: object = None

  def leave() -> None:
    if code is not None:
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(code if isinstance(code, int) else 1)

  atexit.register(leave)  # The first that is registered is the last that is called.
  try:
    _run(*_serve(path, tests))
    code = 0
  except SystemExit as error:
    code = error.code or 0
    raise
  except Exception:
    code = 1
    raise


if __name__ == '__main__':
  if sys.argv[2:3] == ['--serve']:
    _main(sys.argv[1], int(sys.argv[3]))
  else:
    _request(sys.argv[1], sys.argv[2:])
