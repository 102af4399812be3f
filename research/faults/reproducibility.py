"""Which ways of running a command give the same bits, and how far the others are apart.

    python -m research.faults.reproducibility --rounds=10 --markdown=table.md

trains the digits by a stateless and a stateful algorithm, each in a process of its own that is kept
to some processors, and compares metrics.csv (but for the clock's columns), the server's state and
the digest of the client states with those of the first way, or of the one named beside it. It fails
(exit code 1) if a way that promises the same bits gives others, or one that promises to be close
is further away than `CLOSE`.
"""

import argparse
import csv
import os
import pathlib
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

ROOT = pathlib.Path(__file__).parents[2]
ALGORITHMS = {'fed_yogi': (), 'ada_best': ('--server_optimizer=yogi',)}
CLOSE = 1e-3  # Largest difference of the weights after 10 rounds, relative to the largest weight.
_OF_THE_PLACE = ('seconds_', 'bytes_to_workers', 'bytes_from_workers', 'subrounds_')


class Way(NamedTuple):
  """A way to run a command.

  Attributes:
    name: What it is called in the table.
    flags: Those added to the command.
    processors: How many it may use.
    threads: TF_NUM_INTRAOP_THREADS; '' leaves it to the command.
    parts: Into how many commands the rounds are divided, each resuming the one before.
    base: The way that it is compared with.
    is_equal: Whether it promises the same bits.
  """

  name: str
  flags: tuple[str, ...] = ()
  processors: int = 2
  threads: str = ''
  parts: int = 1
  base: str = 'graph engine, 2 processors'
  is_equal: bool = True


_SUBROUNDS = ('--subrounds=4',)
_RAY = ('--ray=local', '--subrounds=4')
WAYS = (
  Way('graph engine, 2 processors'),
  Way('the same again'),
  Way('stopped twice and resumed', parts=3),
  Way('1 processor', processors=1),
  Way('1 client at a time', ('--parallel_clients=1',), threads='1'),
  Way('4 clients at a time', ('--parallel_clients=4',)),
  Way('2 threads an operation', threads='2'),
  Way('clients trained 5 together', ('--clients_per_step=5',), is_equal=False),
  Way("TFF's native runtime", ('--engine=native',), is_equal=False),
  Way('native, again', ('--engine=native',), base="TFF's native runtime"),
  Way('4 subrounds in one process', _SUBROUNDS, is_equal=False),
  Way('4 subrounds, 1 processor', _SUBROUNDS, processors=1, base='4 subrounds in one process'),
  Way('Ray, 2 workers', (*_RAY, '--ray_workers=2'), base='4 subrounds in one process'),
  Way('Ray, 1 worker', (*_RAY, '--ray_workers=1'), base='4 subrounds in one process'),
)


class Course(NamedTuple):
  """What a run came to: its rows, the server's last state, and the digest of the clients'."""

  rows: list[dict[str, str]]
  server: list[np.ndarray]
  digest: str


def run(way: Way, algorithm: str, rounds: int, folder: str) -> Course:
  """Trains in a folder as `way` says and reads what came of it."""
  ends = [rounds * (part + 1) // way.parts for part in range(way.parts)]
  environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
  environment.pop('TF_NUM_INTRAOP_THREADS', None)
  if way.threads:
    environment['TF_NUM_INTRAOP_THREADS'] = way.threads
  processors = sorted(os.sched_getaffinity(0))[: way.processors]
  for end in ends:
    subprocess.run(
      [
        *(sys.executable, str(ROOT / 'scripts' / 'train.py'), '--task=digits', '--seed=5'),
        *(f'--algorithm={algorithm}', *ALGORITHMS[algorithm], f'--rounds={end}'),
        *('--rounds_per_evaluation=1', f'--output_dir={folder}', *way.flags),
      ],
      check=True,
      env=environment,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.PIPE,
      preexec_fn=lambda: os.sched_setaffinity(0, processors),
    )
  return read(folder)


def read(folder: str) -> Course:
  """Returns what the run in a folder came to."""
  with open(os.path.join(folder, 'metrics.csv'), newline='', encoding='utf-8') as file:
    rows = [
      {k: v for k, v in row.items() if not k.startswith(_OF_THE_PLACE)}
      for row in csv.DictReader(file)
    ]
  with sqlite3.connect(os.path.join(folder, 'checkpoints', 'state.sqlite')) as db:
    ((last, digest),) = db.execute(
      'SELECT round, digest FROM checkpoint ORDER BY round DESC LIMIT 1'
    )
    server = [
      np.frombuffer(data, dtype)
      for dtype, data in db.execute(
        'SELECT dtype, data FROM server_state WHERE round = ? ORDER BY position', (last,)
      )
    ]
  return Course(rows, server, digest)


def is_same(one: Course, other: Course) -> bool:
  """Whether two courses are equal to the bit."""
  states = [(a.tobytes(), b.tobytes()) for a, b in zip(one.server, other.server)]
  return (one.rows, one.digest) == (other.rows, other.digest) and all(a == b for a, b in states)


def distance(one: Course, other: Course) -> float:
  """The largest difference of the weights, relative to the largest weight."""
  weights = [(a, b) for a, b in zip(one.server, other.server) if a.size > 9 and a.dtype.kind == 'f']
  difference = max(float(np.abs(a - b).max()) for a, b in weights[:2])
  return difference / max(float(np.abs(a).max()) for a, _ in weights[:2])


def measure(rounds: int, only: str) -> Iterator[tuple[Way, str, bool, float]]:
  """Yields each way, algorithm, whether it is equal to its base and how far away it is."""
  bases = {way.base for way in WAYS}
  for algorithm in ALGORITHMS:
    courses: dict[str, Course] = {}
    for way in WAYS:
      if only and only not in way.name and way.name not in bases:
        continue
      with tempfile.TemporaryDirectory() as folder:
        courses[way.name] = run(way, algorithm, rounds, os.path.join(folder, 'run'))
      if way.name != way.base:
        one, base = courses[way.name], courses[way.base]
        yield way, algorithm, is_same(one, base), distance(one, base)


def main() -> int:
  """Runs the command."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--rounds', type=int, default=10)
  parser.add_argument('--only', default='', help='ways with this in their name, and their bases')
  parser.add_argument('--markdown', help='also write the table to this file')
  given = parser.parse_args()
  table: dict[Way, dict[str, str]] = {}
  broken = 0
  for way, algorithm, same, away in measure(given.rounds, given.only):
    holds = same if way.is_equal else away <= CLOSE
    broken += not holds
    table.setdefault(way, {})[algorithm] = 'equal' if same else f'{away:.0e}'
    sys.stdout.write(
      f'{algorithm}: {way.name}: {table[way][algorithm]}{"" if holds else ", BROKEN"}\n'
    )
    sys.stdout.flush()
  lines = [f'| | compared with | {" | ".join(ALGORITHMS)} |', '|---' * (2 + len(ALGORITHMS)) + '|']
  lines += [f'| {way.name} | {way.base} | {" | ".join(r.values())} |' for way, r in table.items()]
  if given.markdown:
    pathlib.Path(given.markdown).write_text('\n'.join(lines) + '\n', encoding='utf-8')
  return int(broken > 0)


if __name__ == '__main__':
  sys.exit(main())
