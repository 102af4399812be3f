"""Starts TFF's worker service on this machine; `--help` says how."""

import argparse
import contextlib
import importlib.metadata
import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

if not __package__:  # Run as a file: the checkout's packages, not this folder, are importable.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from scripts import children, forwarding
from tff_adaptive import threads

BAD_INPUT = 2
_ALL = ('0.0.0.0', '::')
_PRIVATE_PORT = 10000  # In the worker's own network, where nothing else is.
_START_SECONDS = 60.0

_DESCRIPTION = """\
Starts TensorFlow Federated's worker service, which trains the clients of a round for a trainer:

  here, and on other machines:    python scripts/worker.py --port=8000 --host=ADDRESS
  on the trainer's:               python scripts/train.py --workers=ADDRESS:8000,ADDRESS:8000 ...

Whoever reaches the port can have the worker run any TensorFlow program, read and write files with
its rights, and reads what is sent: nothing is encrypted or asked for. Give only addresses of a
private network. Both sides need the same version of TFF.
"""

_EPILOG = """\
Ctrl-C or SIGTERM ends it at once: it keeps nothing, and a trainer gives its clients to the other
workers. It prints one line when it is ready.
"""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
  """Parses a command line, without its program; --help and mistakes end the program."""
  parser = argparse.ArgumentParser(
    prog='worker.py',
    description=_DESCRIPTION,
    epilog=_EPILOG,
    formatter_class=argparse.RawDescriptionHelpFormatter,
    allow_abbrev=False,
  )
  parser.add_argument(
    '--port', type=_port, required=True, help='the port to listen at; 0 picks a free one'
  )
  parser.add_argument(
    '--host',
    default='127.0.0.1',
    help='the address of this machine to listen at, default %(default)s: this machine alone;'
    ' 0.0.0.0 is all its addresses',
  )
  parser.add_argument(
    '--parallel_clients',
    type=_at_least_one,
    default=threads.num_processors(),
    help='how many clients train at once; memory grows with it; default: the processors here,'
    ' %(default)s',
  )
  parser.add_argument(
    '--end_with_parent',
    action='store_true',
    help='end when the program that started this one ends',
  )
  return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
  """Runs the command.

  Args:
    arguments: The program's name and its arguments.

  Returns:
    The exit code: 128 + the signal's number after a signal, 2 for bad input, 1 if TFF's worker
    ended by itself.
  """
  options = parse(arguments[1:])
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, _end)
  if options.end_with_parent:
    children.end_with_parent()
  binary = _binary()
  if binary is None:
    return _complain('TensorFlow Federated is not installed here: see README.md.', BAD_INPUT)
  try:
    listener = _listen(options.host, options.port)
  except OSError as error:
    return _complain(_why_not(options, error), BAD_INPUT)
  port = listener.getsockname()[1]
  is_private = options.host not in _ALL
  if is_private:
    try:
      forwarding.enter_private_network()
    except OSError as error:
      return _complain(
        f"--host={options.host} cannot be kept to: TFF's worker listens on all addresses, and this"
        f' system lets nobody confine it ({error.strerror}); give --host=0.0.0.0, and have a'
        ' firewall or the container guard the port.',
        BAD_INPUT,
      )
  else:
    listener.close()  # TFF's worker opens it itself.
  inner = _PRIVATE_PORT if is_private else port
  worker = subprocess.Popen(
    [
      binary,
      f'--port={inner}',
      f'--max_concurrent_computation_calls={options.parallel_clients}',
    ],
    stdin=subprocess.DEVNULL,
    stdout=subprocess.DEVNULL,
    env={'TF_CPP_MIN_LOG_LEVEL': '2', **_threads(options.parallel_clients), **os.environ},
    preexec_fn=children.end_with_parent,
    start_new_session=True,
  )
  try:
    if _wait_for(worker, inner):
      if is_private:
        forwarding.forward(listener, inner)
      version = importlib.metadata.version('tensorflow-federated')
      print(f'TFF {version} worker listens at {_address(options.host, port)}', flush=True)
      worker.wait()
    if worker.poll() is None:
      return _complain(f"TFF's worker does not listen after {_START_SECONDS:.0f} s.", 1)
    return _complain(f"TFF's worker ended by itself, with code {worker.poll()}.", 1)
  finally:
    worker.kill()
    worker.wait()


def _threads(parallel_clients):
  """As `threads.one_an_operation` does, for another process."""
  return {'TF_NUM_INTRAOP_THREADS': '1'} if threads.fill_processors(parallel_clients) else {}


def _binary():
  package = importlib.util.find_spec('tensorflow_federated')  # Does not import it.
  if package is None or not package.submodule_search_locations:
    return None
  path = os.path.join(next(iter(package.submodule_search_locations)), 'data', 'worker_binary')
  return path if os.path.isfile(path) else None


def _listen(host, port):
  family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
  listener = socket.socket(family, socket.SOCK_STREAM)
  # A port of which old connections remain is free; one at which somebody listens is not.
  listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
  listener.bind((host, port))
  listener.listen(128)
  return listener


def _why_not(options, error):
  if isinstance(error, socket.gaierror):
    return f'--host={options.host} is no address of this machine: {error.strerror}.'
  if isinstance(error, PermissionError):
    return f'--port={options.port} is for root alone: give one from 1024 to 65535.'
  if error.errno == 98:
    return f'--port={options.port} is in use: give another one, or 0 for any that is free.'
  return f'cannot listen at {_address(options.host, options.port)}: {error.strerror}.'


def _wait_for(worker, port):
  """Whether the worker listens, before it ends or too long a time."""
  end = time.monotonic() + _START_SECONDS
  while worker.poll() is None and time.monotonic() < end:
    with contextlib.suppress(OSError), socket.create_connection(('127.0.0.1', port), timeout=1.0):
      return True
    time.sleep(0.05)
  return False


def _address(host, port):
  return f'[{host}]:{port}' if ':' in host else f'{host}:{port}'


def _end(number, frame):
  del frame
  sys.exit(128 + number)


def _port(text):
  port = int(text)
  if not 0 <= port <= 65535:
    raise argparse.ArgumentTypeError(f'must be from 0 to 65535, found {port}: give 8000, say')
  return port


def _at_least_one(text):
  number = int(text)
  if number < 1:
    raise argparse.ArgumentTypeError(f'must be at least 1, found {number}')
  return number


def _complain(line, code):
  sys.stderr.write(f'worker.py: {line}\n')
  return code


def main_cli() -> None:
  """The console entry point."""
  sys.exit(main(sys.argv))


if __name__ == '__main__':
  main_cli()
