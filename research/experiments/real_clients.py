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
import sys
from collections.abc import Sequence
from typing import Any

from absl import flags as absl_flags

from scripts.cli import command, search_space
from tff_adaptive._utils import atomic_files

from . import frame, real_clients_report as of

# What every run has: a clock, clients that are evaluated, and clients that never train.
_COMMON = (
  *('--speed_sigma=1', '--downlink=10', '--uplink=2', '--bandwidth_sigma=0.5'),
  '--heldout_clients=0.1',
)
_KNOWN = {
  'tasks': [*of.TASKS],
  'algorithms': [*of.ALGORITHMS],
  'servers': [*of.SERVERS],
  'scenarios': [*of.SCENARIOS],
}
_FLAGS = frame.flags('real_clients', rounds=300, tuning_rounds=100)
for _flag, _names in _KNOWN.items():
  _default = ['mnist', 'emnist'] if _flag == 'tasks' else _names
  absl_flags.DEFINE_list(_flag, _default, ', '.join(_names), flag_values=_FLAGS)


@command.entry('real_clients.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run failed, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  files = {task: of.TASKS[task].files for task in _FLAGS.tasks if task in of.TASKS}
  frame.check(_FLAGS, _KNOWN, files)
  return frame.run(_FLAGS, [(_tuning_jobs, of.TUNED), (_jobs, ['algorithm'])], _write)


def _write() -> None:
  cells, begun = of.collect(_FLAGS.output_dir)
  atomic_files.write_text(f'{_FLAGS.results}.md', of.report(cells, begun))
  of.draw(f'{_FLAGS.results}.png', cells)


def _tuning_jobs() -> frame.Jobs:
  """The runs that choose rates and beta, by the folder of each pair: ideal clients."""
  found: frame.Jobs = {}
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
      seed = {'seed': int(_FLAGS.tuning_seed)}
      found[folder] = search_space.Space(axes, given | seed).grid(folder)
  return found


def _jobs() -> frame.Jobs:
  """The runs by their folder, one for each task, scenario and server optimizer."""
  found: frame.Jobs = {}
  for name in _FLAGS.tasks:
    best = {pair: frame.best(_tuning_folder(name, *pair), of.TUNED) for pair in _pairs()}
    for scenario in _FLAGS.scenarios:
      arguments = [
        *(*_shared(name), *_behaviour(of.TASKS[name], scenario)),
        *(f'--rounds={_FLAGS.rounds}', f'--rounds_per_client_evaluation={_FLAGS.rounds}'),
      ]
      for server, algorithm in _pairs():
        folder = os.path.join(_FLAGS.output_dir, name, scenario, server)
        given = _given(arguments, server, algorithm) | best[server, algorithm]
        varied = {'seed': _FLAGS.seeds, 'algorithm': [_name(server, algorithm)]}
        runs = search_space.Space(varied, given).grid(folder)
        found.setdefault(folder, []).extend(runs)
  # Seed by seed: what is stopped early has all algorithms of its first seeds.
  return {folder: sorted(runs, key=lambda run: run.what.seed) for folder, runs in found.items()}


def _pairs() -> list[tuple[str, str]]:
  """Server optimizer and algorithm of all runs."""
  return [(server, algorithm) for server in _FLAGS.servers for algorithm in _FLAGS.algorithms]


def _name(server: str, algorithm: str) -> str:
  """FedAvg with Yogi on the server is FedYogi."""
  return 'fed_yogi' if (server, algorithm) == ('yogi', 'fed_avg') else algorithm


def _shared(name: str) -> list[str]:
  """The flags of all runs of a task."""
  task = of.TASKS[name]
  return [
    f'--flagfile={frame.CONFIGS}/{task.config}.flags',
    *(*task.options, *_COMMON, f'--seconds_per_step={task.seconds_per_step}'),
    f'--target={task.target}',
    *([f'--data_dir={_FLAGS.data_dir}'] if task.files else []),
  ]


def _given(arguments: Sequence[str], server: str, algorithm: str) -> dict[str, Any]:
  """What the runs of a server optimizer and an algorithm share, but for the seed."""
  own = [] if algorithm == 'fed_avg' else [f'--server_optimizer={server}']
  name = f'--algorithm={_name(server, algorithm)}'
  return frame.settings(*arguments, name, *own)


def _tuning_folder(task: str, server: str, algorithm: str) -> str:
  return os.path.join(_FLAGS.output_dir, of.TUNING, task, f'{algorithm}_{server}')


def _behaviour(task: of.Task, scenario: str) -> list[str]:
  """The flags of a scenario."""
  deadline = f'--round_deadline={task.deadline}'
  diurnal = ('unit=rounds', 'period=50', 'share=0.3')
  return {
    'ideal': [],
    'dropout': ['--dropout_rate=0.3'],
    'diurnal': ['--availability=diurnal', *(f'--availability_option={pair}' for pair in diurnal)],
    'drop': [deadline, '--stragglers=drop'],
    'partial': [deadline, '--stragglers=partial'],
  }[scenario]


if __name__ == '__main__':
  sys.exit(main())
