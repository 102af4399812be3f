"""Trains every combination of some flags' values, one run after another.

usage: python scripts/sweep.py --output_dir=DIR --grid=FLAG=VALUE,VALUE ... -- [train.py's flags]

  python scripts/sweep.py --output_dir=runs/rates --grid=client_learning_rate=0.03,0.1,0.3 \\
      --grid=seed=0,1,2 -- --algorithm=fed_avg --rounds=100

Each run has a folder of its own in DIR. The same command again skips what is complete and goes
on with the rest; Ctrl-C ends after saving. At the end a table, also in DIR/sweep.md.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Optional

if not __package__:  # Run as a file: the checkout's packages, not this folder, are importable.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from absl import flags as absl_flags

from scripts import children, flags, run_folder, run_table
from scripts import command as command_lib
from scripts import settings as settings_lib

_STOPPED = 'Stopped; the same command goes on from here.\n'
_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_multi_string(
  'grid', [], 'A flag of train.py and its values: FLAG=VALUE,VALUE.', flag_values=_FLAGS
)
absl_flags.DEFINE_string('output_dir', None, "Where the runs' folders go.", flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'metric',
  None,
  "Column of metrics.csv for the table. Default: the task's metric on the validation data.",
  flag_values=_FLAGS,
)
absl_flags.DEFINE_boolean('dry_run', False, 'Only say what would be run.', flag_values=_FLAGS)


def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run failed, 2 for bad input, 128 + signal if stopped."""
  arguments = list(arguments)
  split = arguments.index('--') if '--' in arguments else len(arguments)
  own, fixed = arguments[:split], arguments[split + 1 :]
  try:
    rest = _parse(own)
    if rest is None:
      return 0
    if rest:
      raise ValueError(f"unexpected argument {rest[0]!r}; train.py's flags go after ' -- '.")
    if not _FLAGS.output_dir:
      raise ValueError('--output_dir is missing.')
    combinations = _combinations(_FLAGS.grid)
    _check_fixed(fixed, combinations[0])
    jobs = [_job(combination, fixed) for combination in combinations]
    _check_different(jobs)
  except ValueError as error:
    sys.stderr.write(f'sweep.py: {" ".join(str(error).split())}\n')
    return 2
  if _FLAGS.dry_run:
    sys.stdout.write(''.join(' '.join(command) + '\n' for _, command, _ in jobs))
    return 0
  try:
    return _run_all(jobs)
  except KeyboardInterrupt:  # Between two runs.
    sys.stderr.write(_STOPPED)
    return 128 + signal.SIGINT


def _parse(arguments: Sequence[str]) -> Optional[list[str]]:
  """As `command.parse`; tells where train.py's flags go."""
  try:
    return command_lib.parse(_FLAGS, __doc__, arguments)
  except ValueError as error:
    if 'Unknown command line flag' not in str(error):
      raise
    raise ValueError(f"{error}; train.py's flags go after ' -- '.") from None


def _check_fixed(fixed: Sequence[str], varied: Mapping[str, str]) -> None:
  """ValueError if a flag after ' -- ' would be overridden; in a --flagfile it may be."""
  given = {text.lstrip('-').partition('=')[0] for text in fixed if text.startswith('-')}
  if 'output_dir' in given:
    raise ValueError("--output_dir belongs before ' -- ': each run has a folder of its own in it.")
  values = flags.define()
  for name in varied:
    # Flags that may be repeated add up.
    if values[name].default != [] and {name, f'no{name}'} & given:
      raise ValueError(f"--{name} is in --grid and after ' -- ': give it in one place only.")


def _combinations(grid: Sequence[str]) -> list[dict[str, str]]:
  """Returns flag -> value for each point of the grid, the last flag varying fastest."""
  axes = []
  for text in grid:
    name, equals, values = text.partition('=')
    if name not in flags.NAMES or not equals or not all(values.split(',')):
      raise ValueError(f'--grid={text}: write it as FLAG=VALUE,VALUE with a flag of train.py.')
    if name == 'output_dir':
      raise ValueError('--grid=output_dir: the sweep names the folders itself.')
    axes.append([(name, value) for value in values.split(',')])
  names = [axis[0][0] for axis in axes]
  if len(set(names)) < len(names) or not axes:
    raise ValueError('give --grid at least once, and each flag in one --grid only.')
  return [dict(point) for point in itertools.product(*axes)]


def _job(combination: Mapping[str, str], fixed: Sequence[str]):
  """Returns a run's folder, command and settings; ValueError if its flags are bad."""
  name = ','.join(f'{flag}={value}' for flag, value in combination.items())
  folder = os.path.join(_FLAGS.output_dir, name.replace(os.sep, '_'))
  varied = [f'--{flag}={value}' for flag, value in combination.items()]
  command = ['train.py', *fixed, *varied, f'--output_dir={folder}']
  given = flags.parse(command)
  if given is None:
    raise ValueError("--help belongs before ' -- '; for train.py's: scripts/train.py --help.")
  settings = settings_lib.resolve(given)
  run_folder.check_writable(folder)
  run_folder.read_config(folder, settings)
  return folder, command, settings


def _check_different(jobs) -> None:
  """ValueError if two runs are the same, as of seed=0,00."""
  seen: dict[str, str] = {}
  for folder, _, settings in jobs:
    key = json.dumps({**settings, 'output_dir': None}, sort_keys=True)
    if key in seen:
      raise ValueError(f'--grid: {seen[key]} and {folder} are the same run; give each value once.')
    seen[key] = folder


def _run_all(jobs) -> int:
  failed = []
  for number, (folder, command, settings) in enumerate(jobs, 1):
    if run_folder.is_complete(folder, settings['rounds']):
      sys.stderr.write(f'[{number}/{len(jobs)}] {folder}: complete already\n')
      continue
    sys.stderr.write(f'[{number}/{len(jobs)}] {folder}\n')
    code, stopped_by = _run(command)
    if stopped_by:
      sys.stderr.write(_STOPPED)
      return 128 + stopped_by
    if code:
      failed.append(f'{folder} (exit code {code})')
  varied = [text.partition('=')[0] for text in _FLAGS.grid]
  is_written = run_table.write(
    os.path.join(_FLAGS.output_dir, 'sweep.md'),
    [folder for folder, _, _ in jobs],
    label_by=[name for name in varied if name != 'seed'] or None,
    metric=_FLAGS.metric,
    note='Failed: ' + ', '.join(failed) if failed else '',
  )
  for line in failed:
    sys.stderr.write(f'failed: {line}\n')
  return 1 if failed else 0 if is_written else 2


def _run(command: Sequence[str]) -> tuple[int, Optional[int]]:
  """Runs train.py; returns its exit code, and the signal that stopped the sweep meanwhile.

  The run has a session of its own, so that Ctrl-C reaches it once: through this process. It ends,
  after saving, with this process, however that ends.
  """
  script = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'train.py')
  received: list[int] = []
  child: Optional[subprocess.Popen] = None

  def forward(number, unused_frame):
    received.append(number)
    if child is not None:
      child.send_signal(number)

  before = [(n, signal.signal(n, forward)) for n in (signal.SIGINT, signal.SIGTERM)]
  try:
    child = subprocess.Popen(
      [sys.executable, script, *command[1:]],
      start_new_session=True,
      preexec_fn=children.end_with_parent,
    )
    if received:  # While it was started.
      child.send_signal(received[0])
    code = child.wait()
  finally:
    for number, handler in before:
      signal.signal(number, handler)
  return code, received[0] if received else None


def main_cli() -> None:
  """Console entry point."""
  sys.exit(main(sys.argv))


if __name__ == '__main__':
  main_cli()
