"""Trains one client of a finished round of a run again, and shows its local steps.

usage: {replay} RUN --round=ROUND --client=ID [--flag=value ...]

RUN is the folder of a run of train.py; nothing in it changes. The rounds since the last checkpoint
before ROUND, or since the beginning, are trained again first. The client then has the same bits as
in the run, in the same engine on the same kind of machine. With --eager its operations run one by
one, so that `breakpoint()` in the code of a correction, a model or a loss stops there.

  {replay} runs/digits_scaffold --round=12 --client=client_003
  {replay} runs/digits_scaffold --round=12 --client=client_003 --eager --output=steps.csv
"""

import dataclasses
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

if not __package__:  # Run as a file, which is in no package.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  __package__ = 'scripts'
  importlib.import_module('scripts._entry').begin()

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import report
from tff_adaptive.runs import config as config_lib

from .cli import command, fields, flags, repeat, resolve, tensorflow_start


@dataclasses.dataclass(frozen=True)
class _Replay(fields.Group):
  """The flags of replay.py."""

  TITLE = 'Replay'

  round: int | None = fields.count('The round, which the run has done.', None)
  client: str | None = fields.flag('The id of a client that took part in it.')
  eager: bool | None = fields.flag(
    'Run its operations one by one, for a debugger. Results are the same up to rounding.'
  )
  output: str | None = fields.flag('Write the steps to this CSV file. Default: print.')


_FLAGS = flags.define(flags.of_group(_Replay))
# Where a run trained and what it told changes no number, and would start clusters and trackers.
_OF_THE_PLACE = ('ray', 'ray_workers', 'cpus_per_worker', 'memory_per_worker', 'gpus_per_worker')
_OF_MESSAGES = (
  'log_to',
  'json',
  'quiet',
  'resume_from',
  'accept_lost_rows',
  'config',
  'accept_other_versions',
  'output_dir',
)


@command.entry('replay.py', prints_result=lambda: not _FLAGS['output'].value)
def main(arguments: Sequence[str]) -> int:
  """Runs the command. Returns 0 for success, 1 for a failure and 2 for bad input."""
  rest = command.parse(_FLAGS, __doc__, arguments)
  if rest is None:
    return command.DONE
  if len(rest) != 1:
    raise ValueError(f'give the folder of one run, found {len(rest)}: replay.py RUN --round=3 ...')
  given: _Replay = flags.check(_FLAGS, _Replay)
  if given.round is None or given.client is None:
    raise ValueError('give --round and --client: which client of which round is to be replayed.')
  if given.output is not None:
    command.check_output('output', given.output)
  client = replay(os.path.expanduser(rest[0]), given.round, given.client, bool(given.eager))
  table = client.table
  table.insert(0, 'step', range(1, len(table) + 1))
  if given.output is not None:
    atomic_files.write_text(given.output, table.to_csv(index=False, float_format='%.9g'))
    command.say(f'{given.output} is written.')
  else:
    rows = []
    for step, *values in table.to_numpy():
      # A data frame of numbers gives the step as a float.
      rows.append([str(int(step)), *(f'{value:.6g}' for value in values)])
    command.show(report.Table([*table.columns], rows).markdown())
  used = 'counted' if client.is_used else 'did not count'
  command.say(f'{client.num_examples:.0f} examples; its update {used}.')
  return command.DONE


def replay(folder: str, round_number: int, client_id: str, eager: bool = False) -> Any:
  """Returns the `training.ReplayedClient` of a run of train.py, from its folder alone.

  Args:
    folder: The run's folder.
    round_number: The round, which the run has done.
    client_id: A client that took part in it.
    eager: Whether its operations run one by one.

  Raises:
    ValueError: If the folder is not that of a run, or see `training.replay_client`.
  """
  try:
    config = config_lib.read(folder)
  except FileNotFoundError:
    raise ValueError(f'{folder} is not the folder of a run: it has no config.json.') from None
  if not config['command']:
    raise ValueError(
      f'{folder} was not trained by train.py: call training.replay_client with the arguments with'
      ' which it was trained.'
    )
  # The flags of the run's own command, so that process, data and cohorts are those of the run.
  settings = resolve.resolve(asked_for(folder, config), output_dir=folder, quiet=True)
  tensorflow_start.load()
  from tff_adaptive import training

  from .cli import build

  arguments = build.prepare(settings, config['command']).arguments
  return training.replay_client(
    folder,
    round_number,
    client_id,
    process=arguments['process'],
    clients=arguments['clients'],
    config=arguments['config'],
    client_losses=arguments['client_losses'],
    settings=arguments['settings'],
    eager=eager,
  )


def asked_for(folder: str, config: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the flags by name that make the run with a config.json again.

  Raises ValueError if the flags do not say what its task is.
  """
  if 'task_option' not in config['settings']:
    raise ValueError(
      f'{folder} was trained by a program on a task of its own: call training.replay_client with'
      ' the arguments with which it was trained.'
    )
  # A command with --config has the flags of the run that it repeats.
  parsed = repeat.with_config(flags.parse(config['command']) or {})
  left_out = (*_OF_THE_PLACE, *_OF_MESSAGES)
  asked = {name: value for name, value in parsed.items() if name not in left_out}
  # A resumed run may have more rounds than its first command asked for.
  asked['rounds'] = config['settings']['rounds']
  return asked


if __name__ == '__main__':
  sys.exit(main())
