"""Trains every combination of some flags' values, one run after another.

usage: python scripts/sweep.py --output_dir=DIR --grid=FLAG=VALUE,VALUE ... -- [train.py's flags]

  python scripts/sweep.py --output_dir=runs/rates --grid=client_learning_rate=0.03,0.1,0.3 \\
      --grid=seed=0,1,2 -- --algorithm=fed_avg --rounds=100

Each run has a folder of its own in DIR. The same command again skips what is complete and goes
on with the rest; Ctrl-C ends after saving. At the end a table, also in DIR/sweep.md.
"""

import os
import signal
import sys
from collections.abc import Sequence

if not __package__:  # Run as a file.
  __package__ = __import__('_as_file').PACKAGE

from absl import flags as absl_flags

from .cli import command, flags, grid, run_folder, run_table, train_process

_STOPPED = 'Stopped; the same command goes on from here.'
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


@command.entry('sweep.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run failed, 2 for bad input, 128 + signal if stopped."""
  arguments = list(arguments)
  split = arguments.index('--') if '--' in arguments else len(arguments)
  own, fixed = arguments[:split], arguments[split + 1 :]
  rest = _parse(own)
  if rest is None:
    return command.DONE
  if rest:
    raise ValueError(f"unexpected argument {rest[0]!r}; train.py's flags go after ' -- '.")
  if not _FLAGS.output_dir:
    raise ValueError('--output_dir is missing.')
  axes = grid.axes(_FLAGS.grid)
  _check_fixed(fixed, list(axes))
  given = flags.parse(['train.py', *fixed])
  if given is None:
    raise ValueError("--help belongs before ' -- '; for train.py's: scripts/train.py --help.")
  jobs = grid.jobs(_FLAGS.output_dir, axes, given)
  if _FLAGS.dry_run:
    lines = [' '.join(['train.py', *flags.command_line(job.given)]) for job in jobs]
    command.show(''.join(line + '\n' for line in lines))
    return command.DONE
  label_by = [name for name in axes if name != 'seed'] or None
  return train_all(jobs, _FLAGS.output_dir, label_by, _FLAGS.metric)


def _parse(arguments: Sequence[str]) -> list[str] | None:
  """As `command.parse`; says where train.py's flags go."""
  try:
    return command.parse(_FLAGS, __doc__, arguments)
  except ValueError as error:
    if 'Unknown command line flag' not in str(error):
      raise
    raise ValueError(f"{error}; train.py's flags go after ' -- '.") from None


def _check_fixed(fixed: Sequence[str], varied: Sequence[str]) -> None:
  """ValueError if a flag after ' -- ' would be overridden; in a --flagfile it may be."""
  given = {text.lstrip('-').partition('=')[0] for text in fixed if text.startswith('-')}
  if 'output_dir' in given:
    raise ValueError("--output_dir belongs before ' -- ': each run has a folder of its own in it.")
  repeated = {flag.name for flag in flags.table() if flag.kind is list}  # They add up.
  for name in varied:
    if name not in repeated and {name, f'no{name}'} & given:
      raise ValueError(f"--{name} is in --grid and after ' -- ': give it in one place only.")


def train_all(
  jobs: Sequence[grid.Settings],
  output_dir: str,
  label_by: Sequence[str] | None = None,
  metric: str | None = None,
) -> int:
  """Trains runs one after another, each in a process of its own, and writes their table.

  Args:
    jobs: What to train; a run whose folder is complete is skipped.
    output_dir: Where sweep.md goes.
    label_by: Settings that distinguish runs in the table; default: all that differ.
    metric: The table's column of metrics.csv; default: the task's metric.

  Returns:
    0, 1 if a run failed, 2 if the table could not be made, 128 + signal if stopped.
  """
  failed = []
  for number, job in enumerate(jobs, 1):
    folder = job.output_dir
    if run_folder.is_complete(folder, job.rounds):
      command.say(f'[{number}/{len(jobs)}] {folder}: complete already')
      continue
    command.say(f'[{number}/{len(jobs)}] {folder}')
    try:
      code, stopped_by = train_process.train(job)
    except KeyboardInterrupt:  # Between two runs.
      code, stopped_by = 0, signal.SIGINT
    if stopped_by:
      command.say(_STOPPED)
      return 128 + stopped_by
    if code:
      failed.append(f'{folder} (exit code {code})')
  is_written = run_table.write(
    os.path.join(output_dir, 'sweep.md'),
    [job.output_dir for job in jobs],
    label_by=label_by,
    metric=metric,
    note='Failed: ' + ', '.join(failed) if failed else '',
  )
  for line in failed:
    command.say(f'failed: {line}')
  if failed:
    return command.FAILED
  return command.DONE if is_written else command.BAD_INPUT


if __name__ == '__main__':
  sys.exit(main())
