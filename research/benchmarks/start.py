"""Measures how long train.py takes to the first row of metrics.csv and to its end.

usage: python -m research.benchmarks.start [--flag=value ...]

A start is a process of its own: one round on digits. The first start of a checkout, which compiles
its modules, does not count. Beside another checkout both start in turn. Example:

  python -m research.benchmarks.start --beside=../tff-adaptive-0.2.0 --starts=8
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive._utils import temporary_folders

from . import other_checkout

_COMMAND = ('scripts/train.py', '--flagfile=scripts/configs/digits.flags', '--rounds=1')
_SECONDS_PER_LOOK = 0.005

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_string(
  'beside', None, 'A checkout of another version, with its .venv.', flag_values=_FLAGS
)
absl_flags.DEFINE_integer(
  'starts', 5, 'Measured starts of each.', lower_bound=1, flag_values=_FLAGS
)


class Start(NamedTuple):
  """How many seconds after its start a process wrote its first row, and ended."""

  first_row: float
  end: float


def measure(folder: str) -> Start:
  """Starts train.py of a checkout.

  Raises:
    FailureError: If it fails.
  """
  # Without bytecode each start would compile the checkout's modules.
  environment = {k: v for k, v in os.environ.items() if k != 'PYTHONDONTWRITEBYTECODE'}
  first_row = None
  with temporary_folders.folder('tff-adaptive-start-') as temporary:
    output = os.path.join(temporary, 'run')
    start = time.perf_counter()
    process = subprocess.Popen(
      [other_checkout.python(folder), *_COMMAND, f'--output_dir={output}'],
      cwd=folder,
      env=environment,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
    )
    while process.poll() is None:
      if first_row is None and _has_row(os.path.join(output, 'metrics.csv')):
        first_row = time.perf_counter() - start
      time.sleep(_SECONDS_PER_LOOK)
    end = time.perf_counter() - start
  if process.returncode or first_row is None:
    raise command.FailureError(f'train.py in {folder} ended with exit status {process.returncode}')
  return Start(first_row, end)


def _has_row(path: str) -> bool:
  """Returns whether the file has a line after its header."""
  if not os.path.exists(path):
    return False
  with open(path) as file:
    return file.read().count('\n') >= 2


def table(starts: dict[str, list[Start]]) -> pd.DataFrame:
  """Returns medians and minima of each checkout, also divided by those of the last one."""
  rows = []
  for measure_name in Start._fields:
    seconds: dict[str, list[float]] = {}
    for name, of_name in starts.items():
      seconds[name] = [getattr(start, measure_name) for start in of_name]
    last = list(seconds.values())[-1]
    for name, of_checkout in seconds.items():
      median = statistics.median(of_checkout)
      row = {
        'checkout': name,
        'to': measure_name.replace('_', ' '),
        'median s': median,
        'minimum s': min(of_checkout),
        'ratio of medians': median / statistics.median(last),
        'ratio of minima': min(of_checkout) / min(last),
      }
      rows.append(row)
  return pd.DataFrame(rows)


@command.entry('start.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  folders = {'here': os.getcwd()}
  if _FLAGS.beside:
    folders['beside'] = os.path.abspath(_FLAGS.beside)
  for folder in folders.values():
    other_checkout.python(folder)
  starts: dict[str, list[Start]] = {name: [] for name in folders}
  for number in range(_FLAGS.starts + 1):
    for name, folder in folders.items():
      start = measure(folder)
      if number:
        starts[name].append(start)
        command.say(f'{name}: first row after {start.first_row:.2f} s, end {start.end:.2f} s')
  command.show(f'{table(starts).round(3).to_string(index=False)}\n')
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
