"""Starts a peer's script in several processes that torch.distributed can join.

usage: PYTHON launch.py PROCESSES SCRIPT [ARGUMENT ...]

This process becomes the first of them and keeps standard input and output. The others end when it
has ended, however it ends.
"""

import os
import socket
import subprocess
import sys


def main() -> None:
  """Starts the others, then turns into the first."""
  processes, script, *arguments = int(sys.argv[1]), *sys.argv[2:]
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  joint = {
    **os.environ,
    'TORCHELASTIC_RUN_ID': 'benchmark',
    'MASTER_ADDR': '127.0.0.1',
    'MASTER_PORT': str(port),
    'WORLD_SIZE': str(processes),
    'LOCAL_WORLD_SIZE': str(processes),
    'OMP_NUM_THREADS': '1',
  }
  command = [sys.executable, script, *arguments]
  for rank in range(1, processes):
    other = subprocess.Popen(
      command,
      env={**joint, 'RANK': str(rank), 'LOCAL_RANK': str(rank)},
      stdin=subprocess.PIPE,  # Closed with this process: what the other ends by.
      stdout=subprocess.DEVNULL,
    )
    assert other.stdin is not None
    os.set_inheritable(other.stdin.fileno(), True)
  os.execve(sys.executable, command, {**joint, 'RANK': '0', 'LOCAL_RANK': '0'})


if __name__ == '__main__':
  main()
