"""Which correction, with which server optimizer, survives clients as they are.

usage: python -m research.experiments.real_clients --data_dir=DIR [--flag=value ...]

Trains FedAvg, FedProx, SCAFFOLD, FedDyn and AdaBest with SGD and with Yogi on the server, with
clients that are ideal, that fail (30 %), that are there for a part of the day, and that have a
deadline: those who are late are dropped, or hand in part of their work. Each is given the rates
that were best with ideal clients, with a seed that does not count. Then writes RESULTS.md, tables
of the accuracy on all examples, of the worst tenth of the clients and of clients that never
trained, and of the virtual time to a target; and RESULTS.png, the accuracy by virtual time. The
same command again skips what is complete and goes on with the rest; Ctrl-C ends after saving.
Runs keep their clients' states, up to 450 MB each, 50 GB in all; of a complete run its folder
checkpoints/ may be removed.

  python -m research.experiments.real_clients --data_dir=DIR --results=results/real_clients
  python -m research.experiments.real_clients --tasks=digits --seeds=0 --rounds=20   No data needed.
  python -m research.experiments.real_clients --report_only    Of what is complete.
"""

import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags as absl_flags

from scripts.cli import command, flags, grid, shared_runs
from tff_adaptive._utils import atomic_files, suggestions
from tff_adaptive.reports import scores, tables
from tff_adaptive.runs import run as run_lib

from . import real_clients_report as of

# What every run has: a clock, clients that are evaluated, and clients that never train.
_COMMON = (
  *('--speed_sigma=1', '--downlink=10', '--uplink=2', '--bandwidth_sigma=0.5'),
  '--heldout_clients=0.1',
)
_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_list('tasks', ['mnist', 'emnist'], ', '.join(of.TASKS), flag_values=_FLAGS)
absl_flags.DEFINE_list('algorithms', [*of.ALGORITHMS], ', '.join(of.ALGORITHMS), flag_values=_FLAGS)
absl_flags.DEFINE_list('servers', [*of.SERVERS], ', '.join(of.SERVERS), flag_values=_FLAGS)
absl_flags.DEFINE_list('scenarios', [*of.SCENARIOS], ', '.join(of.SCENARIOS), flag_values=_FLAGS)
absl_flags.DEFINE_list('seeds', ['0', '1', '2'], 'Seeds, of the clients too.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'tuning_seed', '100', 'Of the runs that choose the rates.', flag_values=_FLAGS
)
absl_flags.DEFINE_integer(
  'tuning_rounds', 100, 'Rounds of one of them.', lower_bound=1, flag_values=_FLAGS
)
absl_flags.DEFINE_integer('rounds', 300, 'Rounds of a run.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_string('data_dir', None, "Folder with the tasks' files.", flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'output_dir', 'runs/real_clients', "Where the runs' folders go.", flag_values=_FLAGS
)
absl_flags.DEFINE_string(
  'results', 'results/real_clients', 'Where to write: RESULTS.md, RESULTS.png.', flag_values=_FLAGS
)
absl_flags.DEFINE_boolean('report_only', False, 'Train nothing.', flag_values=_FLAGS)


@command.entry('real_clients.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run failed, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  _check_flags()
  command.check_output('results', _FLAGS.results)
  failed = command.DONE
  if not _FLAGS.report_only:
    for jobs, label_by in ((_tuning_jobs, of.TUNED), (_jobs, ['algorithm'])):
      failed = max(failed, shared_runs.train_all(jobs(), label_by))
      if failed not in (command.DONE, command.FAILED):  # One that diverges is a result too.
        return failed
  cells, begun = of.collect(_FLAGS.output_dir)
  atomic_files.write_text(f'{_FLAGS.results}.md', of.report(cells, begun))
  of.draw(f'{_FLAGS.results}.png', cells)
  command.show(f'{_FLAGS.results}.md and {_FLAGS.results}.png are written.\n')
  return failed


def _check_flags() -> None:
  """ValueError if a flag is bad: the sweeps would find some of it after hours only."""
  known: dict[str, Mapping[str, object]] = dict(
    tasks=of.TASKS, algorithms=of.ALGORITHMS, servers=of.SERVERS, scenarios=of.SCENARIOS
  )
  for flag, names in known.items():
    for name in _FLAGS[flag].value:
      if name not in names:
        raise ValueError(f'--{flag}: {suggestions.unknown(flag.rstrip("s"), name, names)}')
  for flag in (*known, 'seeds'):
    if not _FLAGS[flag].value:
      raise ValueError(f'--{flag}= is empty: give one value or more, or leave it out.')
  for flag, seeds in (('seeds', _FLAGS.seeds), ('tuning_seed', [_FLAGS.tuning_seed])):
    for seed in seeds:
      if not seed.isdecimal():
        raise ValueError(f'--{flag}={seed}: give whole numbers from 0 on, such as 0,1,2.')
  if _FLAGS.tuning_seed in _FLAGS.seeds:
    raise ValueError(f'--tuning_seed={_FLAGS.tuning_seed} is one of --seeds: give another.')
  for task in [] if _FLAGS.report_only else _FLAGS.tasks:
    files = of.TASKS[task].files
    paths = [os.path.join(_FLAGS.data_dir or '', name) for name in files]
    if files and not (_FLAGS.data_dir and any(map(os.path.isfile, paths))):
      raise ValueError(f'{task} needs a folder with {" or ".join(files)}: give --data_dir.')


def _tuning_jobs() -> dict[str, list[grid.Settings]]:
  """The runs that choose rates and beta, by the folder of each pair: ideal clients."""
  found: dict[str, list[grid.Settings]] = {}
  for name in _FLAGS.tasks:
    for server, algorithm in _pairs():
      rounds = f'--rounds={_FLAGS.tuning_rounds}'
      arguments = [*_shared(name), *of.TASKS[name].held_out, rounds]
      folder = _tuning_folder(name, server, algorithm)
      axes = {
        'client_learning_rate': of.TASKS[name].client_rates,
        'server_learning_rate': of.SERVER_RATES[server],
      }
      if (server, algorithm) == ('sgd', 'ada_best'):
        axes['beta'] = of.BETAS
      given = _given(arguments, server, algorithm)
      found[folder] = grid.jobs(folder, axes, given | {'seed': int(_FLAGS.tuning_seed)})
  return found


def _jobs() -> dict[str, list[grid.Settings]]:
  """The runs by their folder, one for each task, scenario and server optimizer."""
  found: dict[str, list[grid.Settings]] = {}
  for name in _FLAGS.tasks:
    best = {pair: _best(_tuning_folder(name, *pair)) for pair in _pairs()}
    for scenario in _FLAGS.scenarios:
      arguments = [
        *(*_shared(name), *_behaviour(of.TASKS[name], scenario)),
        *(f'--rounds={_FLAGS.rounds}', f'--rounds_per_client_evaluation={_FLAGS.rounds}'),
      ]
      for server, algorithm in _pairs():
        folder = os.path.join(_FLAGS.output_dir, name, scenario, server)
        given = _given(arguments, server, algorithm) | best[server, algorithm]
        runs = grid.jobs(
          folder, {'seed': _FLAGS.seeds, 'algorithm': [_name(server, algorithm)]}, given
        )
        found.setdefault(folder, []).extend(runs)
  # Seed by seed: what is stopped early has all algorithms of its first seeds.
  return {folder: sorted(runs, key=lambda run: run.seed) for folder, runs in found.items()}


def _pairs() -> list[tuple[str, str]]:
  """Server optimizer and algorithm of all runs."""
  return [(server, algorithm) for server in _FLAGS.servers for algorithm in _FLAGS.algorithms]


def _name(server: str, algorithm: str) -> str:
  """FedAvg with Yogi on the server is FedYogi."""
  return 'fed_yogi' if (server, algorithm) == ('yogi', 'fed_avg') else algorithm


def _shared(name: str) -> list[str]:
  """The flags of all runs of a task."""
  task = of.TASKS[name]
  configs = str(pathlib.Path(__file__).parents[2] / 'scripts' / 'configs')
  return [
    f'--flagfile={os.path.join(configs, task.config)}.flags',
    *(*task.options, *_COMMON, f'--seconds_per_step={task.seconds_per_step}'),
    f'--target={task.target}',
    *([f'--data_dir={_FLAGS.data_dir}'] if task.files else []),
  ]


def _given(arguments: Sequence[str], server: str, algorithm: str) -> dict[str, Any]:
  """What the runs of a server optimizer and an algorithm share, but for the seed."""
  own = [] if algorithm == 'fed_avg' else [f'--server_optimizer={server}']
  name = f'--algorithm={_name(server, algorithm)}'
  given = flags.parse(['real_clients.py', *arguments, name, *own]) or {}
  given.pop('seed', None)
  return given


def _tuning_folder(task: str, server: str, algorithm: str) -> str:
  return os.path.join(_FLAGS.output_dir, of.TUNING, task, f'{algorithm}_{server}')


def _best(folder: str) -> dict[str, Any]:
  """The settings of the runs in a folder that were best on the validation data."""
  tried = run_lib.find_runs([folder])
  _, best = scores.best_runs(tried, tables.default_metric(tried))
  return {name: best[0].settings[name] for name in of.TUNED if best[0].settings.get(name)}


def _behaviour(task: of.Task, scenario: str) -> list[str]:
  """The flags of a scenario."""
  if scenario == 'dropout':
    return ['--dropout_rate=0.3']
  if scenario == 'diurnal':
    options = {'unit': 'rounds', 'period': 50, 'share': 0.3}
    pairs = [f'--availability_option={name}={value}' for name, value in options.items()]
    return ['--availability=diurnal', *pairs]
  if scenario == 'ideal':
    return []
  return [f'--round_deadline={task.deadline}', f'--stragglers={scenario}']


if __name__ == '__main__':
  sys.exit(main())
