"""Kills a sweep, its workers or both at random instants, and resumes it until it is done.

At the end the table (its seconds aside) and each run's rows must be those of a sweep in peace.
Processes are real: a start takes some ten seconds.

    python -m research.faults.sweep_kills --kills=10 --seed=1
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from typing import Any

import pandas as pd
import psutil

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLAGS = [
  *('--grid=client_learning_rate=0.03,0.1', '--grid=seed=0,1', '--jobs=2', '--'),
  *('--task=digits', '--algorithm=ada_best', '--beta=0.5', '--mu=0.02'),
  *('--clients_per_round=3', '--rounds=200', '--rounds_per_evaluation=50'),
  '--rounds_per_checkpoint=5',
]
KINDS = ('the sweep', 'its workers', 'both')


def start(folder: str) -> subprocess.Popen[str]:
  """Starts the sweep."""
  script = os.path.join(ROOT, 'scripts', 'sweep.py')
  environment = {**os.environ, 'PYTHONPATH': ROOT, 'TF_CPP_MIN_LOG_LEVEL': '3'}
  command = [sys.executable, script, f'--output_dir={folder}', *FLAGS]
  return subprocess.Popen(
    command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
  )


def kill(process: subprocess.Popen[str], kind: str) -> int:
  """Kills as one of `KINDS` says, and waits; returns how the sweep ended."""
  workers = psutil.Process(process.pid).children(recursive=True)
  if kind != 'its workers':
    process.kill()
  if kind != 'the sweep':
    for worker in workers:
      worker.kill()
  process.communicate()
  psutil.wait_procs(workers)  # They end with the sweep; until then they hold their runs.
  return int(process.returncode)


def outcome(folder: str) -> dict[str, Any]:
  """The table and each run's rows, without the clock's columns."""
  with open(os.path.join(folder, 'sweep.md'), encoding='utf-8') as file:
    table = [re.sub(r'[^|]*\|([^|]*)\|$', r'\1', line.strip()) for line in file]
  found: dict[str, Any] = {'table': table}
  for run in sorted(name for name in os.listdir(folder) if '=' in name):
    rows = pd.read_csv(os.path.join(folder, run, 'metrics.csv'), dtype=str)
    found[run] = rows.filter(regex='^(?!seconds_)').to_csv()
  return found


def main() -> int:
  """Runs the command; exit code 1 if the sweep ended otherwise."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--kills', type=int, default=5)
  parser.add_argument('--seed', type=int, default=0)
  parser.add_argument('--longest', type=float, default=25.0, help='seconds until a kill')
  given = parser.parse_args()
  rng = random.Random(given.seed)
  done: list[str] = []
  with tempfile.TemporaryDirectory() as folder:
    whole, killed = os.path.join(folder, 'whole'), os.path.join(folder, 'killed')
    _, error = (process := start(whole)).communicate()
    assert process.returncode == 0, error
    while len(done) < given.kills:
      process, kind = start(killed), rng.choice(KINDS)
      try:
        _, error = process.communicate(timeout=rng.uniform(0.5, given.longest))
        break  # It was done before.
      except subprocess.TimeoutExpired:
        code = kill(process, kind)
        expected = (1,) if kind == 'its workers' else (-signal.SIGKILL,)
        done.append(kind)
        if code not in (*expected, 0):
          sys.stdout.write(f'{kind} killed: exit code {code}\n')
    _, error = (process := start(killed)).communicate()
    same = process.returncode == 0 and outcome(killed) == outcome(whole)
  sys.stdout.write(f'{len(done)} kills ({", ".join(done)}): {"equal" if same else error}\n')
  return int(not same)


if __name__ == '__main__':
  sys.exit(main())
