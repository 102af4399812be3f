"""Which ways of running a command give the same bits, and how far the others are apart.

    python -m research.faults.reproducibility --rounds=10 --markdown=table.md

trains the digits by a stateless and a stateful algorithm, each in a process of its own that is kept
to some processors, and compares metrics.csv (but for the clock's columns) and the last weights with
those of the first way, or of the one named beside it. It fails (exit code 1) if a way that promises
the same bits gives others, or one that promises to be close is further away than `CLOSE`.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple

import numpy as np
import pandas as pd

from tff_adaptive import runs
from tff_adaptive.reports import report

ROOT = pathlib.Path(__file__).parents[2]
ALGORITHMS = {'fed_yogi': (), 'ada_best': ('--server_optimizer=yogi',)}
CLOSE = 1e-3  # Largest difference of the weights after 10 rounds, relative to the largest weight.
_OF_THE_PLACE = r'^(seconds_|bytes_to_workers|bytes_from_workers|subrounds_)'


class Way(NamedTuple):
  """A way to run a command."""

  name: str  # What it is called in the table.
  flags: tuple[str, ...] = ()  # Those added to the command.
  processors: int = 2  # How many it may use.
  threads: str = ''  # TF_NUM_INTRAOP_THREADS; '' leaves it to the command.
  parts: int = 1  # Into how many commands the rounds are divided, each resuming the one before.
  base: str = 'graph engine, 2 processors'  # The way that it is compared with.
  is_equal: bool = True  # Whether it promises the same bits.


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
Course = tuple[pd.DataFrame, tuple[np.ndarray, ...]]  # Rows and weights that a run came to.


def run(way: Way, algorithm: str, rounds: int, folder: str) -> Course:
  """Trains in a folder as `way` says and reads what came of it."""
  environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
  environment.pop('TF_NUM_INTRAOP_THREADS', None)
  if way.threads:
    environment['TF_NUM_INTRAOP_THREADS'] = way.threads
  processors = sorted(os.sched_getaffinity(0))[: way.processors]
  for part in range(way.parts):
    end = rounds * (part + 1) // way.parts
    subprocess.run(
      [
        *(sys.executable, str(ROOT / 'scripts' / 'train.py'), '--task=digits', '--seed=5'),
        *(f'--algorithm={algorithm}', *ALGORITHMS[algorithm], f'--rounds={end}'),
        *('--rounds_per_evaluation=1', f'--output_dir={folder}', *way.flags),
      ],
      check=True,
      env=environment,
      stdout=subprocess.DEVNULL,
      preexec_fn=lambda: os.sched_setaffinity(0, processors),
    )
  rows = pd.read_csv(os.path.join(folder, 'metrics.csv'), dtype=str)
  return rows.loc[:, ~rows.columns.str.contains(_OF_THE_PLACE)], runs.load_run(folder).weights


def compared(one: Course, other: Course) -> tuple[bool, float]:
  """Whether two are equal to the bit; their largest difference relative to the largest weight."""
  pairs = list(zip(one[1], other[1]))
  is_same = one[0].equals(other[0]) and all(a.tobytes() == b.tobytes() for a, b in pairs)
  largest = max(float(np.abs(b).max()) for _, b in pairs)
  return is_same, max(float(np.abs(a - b).max()) for a, b in pairs) / largest


def main() -> int:
  """Runs the command."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--rounds', type=int, default=10)
  parser.add_argument('--markdown', help='also write the table to this file')
  given = parser.parse_args()
  table = pd.DataFrame(index=pd.Index([way.name for way in WAYS], name='way'))
  table['compared with'] = [way.base for way in WAYS]
  broken = False
  for algorithm in ALGORITHMS:
    courses: dict[str, Course] = {}
    for way in WAYS:
      with tempfile.TemporaryDirectory() as folder:
        courses[way.name] = run(way, algorithm, rounds=given.rounds, folder=f'{folder}/run')
      same, away = compared(courses[way.name], courses[way.base])
      broken |= not (same if way.is_equal else away <= CLOSE)
      table.loc[way.name, algorithm] = found = 'equal' if same else f'{away:.0e}'
      sys.stdout.write(f'{algorithm}: {way.name}: {found}{" BROKEN" if broken else ""}\n')
      sys.stdout.flush()
  if given.markdown:
    text = report.Table(['way', *table.columns], table.reset_index().to_numpy()).markdown()
    pathlib.Path(given.markdown).write_text(text, encoding='utf-8')
  return int(broken)


if __name__ == '__main__':
  sys.exit(main())
