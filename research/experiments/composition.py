"""Each drift correction with each server optimizer, every pair tuned by itself.

usage: python -m research.experiments.composition --data_dir=DIR [--flag=value ...]

Trains {none, FedProx, SCAFFOLD, FedDyn, AdaBest} x {SGD, Adagrad, Adam, Yogi} in AdaBest's setting:
first each pair with some client and server rates, on a partition of its own seed, judged on the
held-out clients; then the best of each with other seeds. RESULTS.md has the accuracy on the test
data, and the rates that were chosen. The same command again skips what is complete and goes on with
the rest; Ctrl-C ends after saving.

  python -m research.experiments.composition --data_dir=DIR --results=results/composition
  python -m research.experiments.composition --task=digits --seeds=0 --rounds=40    No data needed.
  python -m research.experiments.composition --report_only    Of what is complete.
"""

import collections
import os
import pathlib
import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from scripts.cli import command, flags, grid, shared_runs
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import cross_table, scores, tables
from tff_adaptive.runs import names, run as run_lib

CORRECTIONS = ('none', 'fed_prox', 'scaffold', 'fed_dyn', 'ada_best')
_PLAIN = {'sgd': 'fed_avg', 'adagrad': 'fed_adagrad', 'adam': 'fed_adam', 'yogi': 'fed_yogi'}
# Around what the papers found for tasks like this one.
_CLIENT_RATES = ('0.03', '0.1', '0.3')
_SERVER_RATES = {**dict.fromkeys(_PLAIN, ('0.01', '0.03', '0.1')), 'sgd': ('0.3', '1')}
_RATES = ('client_learning_rate', 'server_learning_rate')
_FILES = {'mnist': ('mnist.npz', 'mnist_digits.npz'), 'digits': ()}
_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_enum('task', 'mnist', [*_FILES], 'mnist or digits.', flag_values=_FLAGS)
absl_flags.DEFINE_float('alpha', 0.03, 'Of the label Dirichlet.', flag_values=_FLAGS)
absl_flags.DEFINE_list('seeds', ['0', '1', '2'], 'Of the runs that count.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'tuning_seed', '100', 'Of those that choose the rates.', flag_values=_FLAGS
)
absl_flags.DEFINE_integer(
  'rounds', 150, 'Rounds of a run that counts.', lower_bound=1, flag_values=_FLAGS
)
absl_flags.DEFINE_integer(
  'tuning_rounds', 50, 'Rounds of one that chooses.', lower_bound=1, flag_values=_FLAGS
)
absl_flags.DEFINE_string('data_dir', None, "Folder with the task's file.", flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'output_dir', 'runs/composition', "Where the runs' folders go.", flag_values=_FLAGS
)
absl_flags.DEFINE_string(
  'results', 'results/composition', 'Where to write: RESULTS.md.', flag_values=_FLAGS
)
absl_flags.DEFINE_boolean('report_only', False, 'Train nothing.', flag_values=_FLAGS)


@command.entry('composition.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run failed, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  _check_flags()
  command.check_output('results', _FLAGS.results)
  code = command.DONE
  if not _FLAGS.report_only:
    for jobs, label_by in ((tuning_jobs, _RATES), (final_jobs, ['algorithm'])):
      code = max(code, shared_runs.train_all(jobs(), label_by))
      if code not in (command.DONE, command.FAILED):  # One that diverges is a result too.
        return code
  atomic_files.write_text(f'{_FLAGS.results}.md', report())
  command.show(f'{_FLAGS.results}.md is written.\n')
  return code


def _check_flags() -> None:
  """ValueError if a flag is bad: some of it would be found after hours only."""
  for name, values in (('seeds', _FLAGS.seeds), ('tuning_seed', [_FLAGS.tuning_seed])):
    if not values or not all(seed.isdecimal() for seed in values):
      raise ValueError(f'--{name}={",".join(values)}: give whole numbers from 0 on.')
  if _FLAGS.tuning_seed in _FLAGS.seeds:
    raise ValueError(
      f'--tuning_seed={_FLAGS.tuning_seed} is one of --seeds: rates would be chosen on the clients'
      ' that count; give another.'
    )
  if not _FLAGS.alpha > 0:
    raise ValueError(f'--alpha={_FLAGS.alpha}: give a number above 0, such as 0.3.')
  files = _FILES[_FLAGS.task]
  paths = [os.path.join(_FLAGS.data_dir or '', name) for name in files]
  needs_data = bool(files) and not _FLAGS.report_only
  if needs_data and not (_FLAGS.data_dir and any(map(os.path.isfile, paths))):
    raise ValueError(f'{_FLAGS.task} needs a folder with {" or ".join(files)}: give --data_dir.')


def tuning_jobs() -> dict[str, list[grid.Settings]]:
  """The runs that choose the rates, by the folder of each pair."""
  return {
    folder: grid.jobs(
      folder,
      {'client_learning_rate': _CLIENT_RATES, 'server_learning_rate': _SERVER_RATES[server]},
      _given(correction, server, _FLAGS.tuning_rounds, _FLAGS.tuning_seed),
    )
    for correction, server, folder in _pairs('tuning')
  }


def final_jobs() -> dict[str, list[grid.Settings]]:
  """The runs that count: each pair with the rates that were best on the held-out clients."""
  found = {}
  for correction, server, folder in _pairs('final'):
    tuning = os.path.join(_FLAGS.output_dir, 'tuning', os.path.basename(folder))
    tried = run_lib.find_runs([tuning])
    _, best = scores.best_runs(tried, tables.default_metric(tried))
    given = _given(correction, server, _FLAGS.rounds, _FLAGS.tuning_seed)
    given |= {name: best[0].settings[name] for name in _RATES}
    given.pop('seed')
    found[folder] = grid.jobs(folder, {'seed': _FLAGS.seeds}, given)
  return found


def _pairs(stage: str) -> list[tuple[str, str, str]]:
  """Correction, server optimizer, and the folder of a stage's runs."""
  return [
    (correction, server, os.path.join(_FLAGS.output_dir, stage, f'{correction}_{server}'))
    for correction in CORRECTIONS
    for server in _PLAIN
  ]


def _given(correction: str, server: str, rounds: int, seed: str) -> dict[str, object]:
  """What the runs of a pair share."""
  configs = str(pathlib.Path(__file__).parents[2] / 'scripts' / 'configs')
  algorithm = _PLAIN[server] if correction == 'none' else correction
  arguments = [
    f'--flagfile={os.path.join(configs, f"drift_{_FLAGS.task}.flags")}',
    *(f'--task_option=alpha={_FLAGS.alpha}', '--task_option=validation=clients'),
    *(f'--algorithm={algorithm}', f'--rounds={rounds}', f'--seed={seed}'),
    *([] if correction == 'none' else [f'--server_optimizer={server}']),
    *([f'--data_dir={_FLAGS.data_dir}'] if _FILES[_FLAGS.task] else []),
  ]
  return flags.parse(['composition.py', *arguments]) or {}


def report() -> str:
  """The text of RESULTS.md."""
  found = run_lib.find_runs([os.path.join(_FLAGS.output_dir, 'final')])
  complete = [run for run in found if run.is_complete]
  if not complete:
    raise ValueError(f'no run that counts is complete in {_FLAGS.output_dir}.')
  parts = [_INTRODUCTION]
  for metric in (cross_table.TEST, tables.default_metric(complete)):
    made = cross_table.build(complete, 'correction', 'server_optimizer', metric)
    parts.append(made.markdown())
  parts += _left_out(found)
  chosen = {_names(run): run for run in complete}
  rows = [[*pair, *(str(run.settings[name]) for name in _RATES)] for pair, run in chosen.items()]
  heading = ['correction', 'server optimizer', 'client rate', 'server rate']
  parts += ['Rates that were chosen on the held-out clients:\n', tables.markdown(heading, rows)]
  return '\n'.join(parts)


_INTRODUCTION = (
  'Test accuracy is of theta-bar, the mean of the client models, with SCAFFOLD, FedDyn and AdaBest,'
  ' and of theta, the global model, with the others. Validation accuracy is of theta, and chose the'
  ' rates: its mean over all rounds, or the last 100, of a run with another seed.\n'
)


def _names(run: run_lib.Run) -> tuple[str, str]:
  """A run's correction and server optimizer, as papers call them."""
  return names.correction(run.settings), names.server_optimizer(run.settings)


def _left_out(found: Sequence[run_lib.Run]) -> list[str]:
  """A line that says of which pairs runs were begun and are not in the tables, if there are any."""
  begun = collections.Counter(map(_names, found))
  missing = collections.Counter(_names(run) for run in found if not run.is_complete)
  pairs = [f'{" x ".join(pair)} {count} of {begun[pair]}' for pair, count in missing.items()]
  return [f'Runs that are not complete and were left out: {"; ".join(pairs)}.\n'] if pairs else []


if __name__ == '__main__':
  sys.exit(main())
