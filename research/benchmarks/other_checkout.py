"""Rounds in another checkout of this project, such as a release, with its own environment."""

import json
import os
import subprocess
from concurrent import futures
from typing import Any

# What the other checkout's Python runs: its `do_round` for each line that it is given.
_PROGRAM = """
import json, multiprocessing, sys, types
# `children` ends with the process that started it; this one ends with its standard input.
multiprocessing.parent_process = lambda: types.SimpleNamespace(is_alive=lambda: True)
from research.benchmarks import children
answers = sys.stdout
sys.stdout = sys.stderr
for line in sys.stdin:
  print(json.dumps(children.do_round(*json.loads(line))), file=answers, flush=True)
"""


class OtherCheckout:
  """Does rounds in a process of another checkout; `submit` is as an executor's."""

  def __init__(self, folder: str):
    self._process = subprocess.Popen(
      [python(folder), '-c', _PROGRAM],
      cwd=folder,
      env={**os.environ, 'PYTHONPATH': os.path.abspath(folder)},
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )

  def submit(self, do_round: Any, *arguments: Any) -> futures.Future[dict[str, float]]:
    """Does the round at once, by the other checkout's own `do_round`."""
    del do_round
    done: futures.Future[dict[str, float]] = futures.Future()
    assert self._process.stdin is not None
    assert self._process.stdout is not None
    self._process.stdin.write(f'{json.dumps(arguments)}\n')
    self._process.stdin.flush()
    answer = self._process.stdout.readline()
    if answer:
      done.set_result(json.loads(answer))
    else:
      done.set_exception(RuntimeError(f'it ended with exit status {self._process.wait()}'))
    return done

  def shutdown(self) -> None:
    """Ends the process."""
    self._process.communicate()


def python(folder: str) -> str:
  """Returns the path of the checkout's Python; ValueError if it has none."""
  path = os.path.join(os.path.abspath(folder), '.venv', 'bin', 'python')
  if not os.path.exists(path):
    raise ValueError(f'{folder} has no .venv/bin/python: run `make env` there first.')
  return path
