"""Fresh Python processes that have imported TensorFlow and TFF, forked from one that did it once.

`[*fresh.python(), '-c', code]`, `-m MODULE` or FILE runs as by `sys.executable`, with the command's
streams, environment, folder and exit code, and without any module of this project. One server for
all workers of a test run imports and forks. A test starts a client of it, which takes no time.
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


def python() -> list[str]:
  """What to write for `sys.executable`; starts the server if there is none."""
  return [sys.executable, '-S', '-E', __file__, _server()]


@functools.cache
def _server() -> str:
  """The path of the server's socket."""
  import subprocess
  import tempfile

  # The process of pytest itself: the server ends with it.
  if 'PYTEST_XDIST_WORKER' in os.environ:
    tests = os.getppid()
  else:
    tests = os.getpid()
  with open(f'/proc/{tests}/stat') as stat:  # An older process may have had this number.
    began = stat.read().rpartition(')')[2].split()[19]
  folder = os.path.join(tempfile.gettempdir(), f'fresh-{os.getuid()}-{tests}-{began}')
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
  """Asks for a process, and ends as it ends; the process ends if this one is killed."""
  connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  connection.connect(path)
  message = {'command': command, 'environment': dict(os.environ), 'folder': os.getcwd()}
  socket.send_fds(connection, [json.dumps(message).encode()], [0, 1, 2])
  os._exit(int(connection.recv(64) or 1))


def _serve(path: str, tests: int) -> tuple[dict, list[int]]:
  """Forks at each request until the tests have ended; returns in the forked processes only."""
  import gc
  import shutil

  import tensorflow_federated  # noqa: F401
  from tensorflow.python.eager import context

  assert not context.context()._initialized, 'TensorFlow has threads, which no fork survives'
  gc.freeze()
  signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for the processes here.
  listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
  listener.bind(f'{path}.new')
  listener.listen(64)
  listener.settimeout(1.0)
  os.rename(f'{path}.new', path)
  while os.path.exists(f'/proc/{tests}'):
    try:
      connection, _ = listener.accept()
    except TimeoutError:
      continue
    if not os.fork():
      signal.signal(signal.SIGCHLD, signal.SIG_DFL)
      listener.close()
      connection.setblocking(True)
      message, streams, _, _ = socket.recv_fds(connection, 1 << 20, 3)
      process = os.fork()
      if not process:
        connection.close()
        return json.loads(message), streams
      for stream in streams:
        os.close(stream)
      # Waits for the program; kills it if its client was killed.
      if select.select([connection, os.pidfd_open(process)], [], [])[0] == [connection]:
        os.kill(process, signal.SIGKILL)
      _, status = os.waitpid(process, 0)
      code = os.waitstatus_to_exitcode(status)
      with contextlib.suppress(OSError):
        connection.send(b'%d' % (code if code >= 0 else 128 - code))
      os._exit(0)
    connection.close()
  shutil.rmtree(os.path.dirname(path))
  os._exit(0)


def _run(message: dict, streams: list[int]) -> None:
  """Becomes the process that was asked for."""
  import runpy
  import types

  import tensorflow_federated as tff

  for i, stream in enumerate(streams):
    os.dup2(stream, i)
    os.close(stream)
  old = os.environ.get('PYTHONPATH', '').split(os.pathsep)
  os.environ.clear()
  os.environ.update(message['environment'])
  os.chdir(message['folder'])
  signal.signal(signal.SIGINT, signal.default_int_handler)
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
  code = None

  def leave() -> None:
    if code is not None:
      sys.stdout.flush()
      sys.stderr.flush()
      os._exit(code)

  atexit.register(leave)  # The first that is registered is the last that is called.
  request = _serve(path, tests)
  code = 1
  try:
    _run(*request)
    code = 0
  except SystemExit as error:
    if isinstance(error.code, int):
      code = error.code
    else:
      code = int(error.code is not None)
    raise


if __name__ == '__main__':
  if sys.argv[2:3] == ['--serve']:
    _main(sys.argv[1], int(sys.argv[3]))
  else:
    _request(sys.argv[1], sys.argv[2:])
