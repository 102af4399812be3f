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
import sys
from collections.abc import Sequence

from absl import flags as absl_flags

from scripts.cli import command, search_space
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import cross_tables, report as report_lib, scores, tables
from tff_adaptive.runs import names, run as run_lib

from . import frame

CORRECTIONS = ('none', 'fed_prox', 'scaffold', 'fed_dyn', 'ada_best')
_PLAIN = {'sgd': 'fed_avg', 'adagrad': 'fed_adagrad', 'adam': 'fed_adam', 'yogi': 'fed_yogi'}
# Around what the papers found for tasks like this one.
_CLIENT_RATES = ('0.03', '0.1', '0.3')
_SERVER_RATES = {**dict.fromkeys(_PLAIN, ('0.01', '0.03', '0.1')), 'sgd': ('0.3', '1')}
_RATES = ('client_learning_rate', 'server_learning_rate')
_FILES = {'mnist': frame.MNIST, 'digits': ()}
_FLAGS = frame.flags('composition', rounds=150, tuning_rounds=50)
absl_flags.DEFINE_enum('task', 'mnist', [*_FILES], 'mnist or digits.', flag_values=_FLAGS)
absl_flags.DEFINE_float('alpha', 0.03, 'Of the label Dirichlet.', flag_values=_FLAGS)


@command.entry('composition.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if a run failed, 2 for bad input, 128 + signal if stopped."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  if not _FLAGS.alpha > 0:
    raise ValueError(f'--alpha={_FLAGS.alpha}: give a number above 0, such as 0.3.')
  frame.check(_FLAGS, {}, {_FLAGS.task: _FILES[_FLAGS.task]})
  stages = [(tuning_jobs, _RATES), (final_jobs, ['algorithm'])]
  return frame.run(
    _FLAGS, stages, lambda: atomic_files.write_text(f'{_FLAGS.results}.md', report())
  )


def tuning_jobs() -> frame.Jobs:
  """The runs that choose the rates, by the folder of each pair."""
  return {
    folder: search_space.Space(
      {'client_learning_rate': _CLIENT_RATES, 'server_learning_rate': _SERVER_RATES[server]},
      _given(correction, server, _FLAGS.tuning_rounds) | {'seed': int(_FLAGS.tuning_seed)},
    ).grid(folder)
    for correction, server, folder in _pairs('tuning')
  }


def final_jobs() -> frame.Jobs:
  """The runs that count: each pair with the rates that were best on the held-out clients."""
  found = {}
  for correction, server, folder in _pairs('final'):
    tuned = os.path.join(_FLAGS.output_dir, 'tuning', os.path.basename(folder))
    given = _given(correction, server, _FLAGS.rounds) | frame.best(tuned, _RATES)
    found[folder] = search_space.Space({'seed': _FLAGS.seeds}, given).grid(folder)
  return found


def _pairs(stage: str) -> list[tuple[str, str, str]]:
  """Correction, server optimizer, and the folder of a stage's runs."""
  return [
    (correction, server, os.path.join(_FLAGS.output_dir, stage, f'{correction}_{server}'))
    for correction in CORRECTIONS
    for server in _PLAIN
  ]


def _given(correction: str, server: str, rounds: int) -> dict[str, object]:
  """What the runs of a pair share, but for the seed."""
  algorithm = _PLAIN[server] if correction == 'none' else correction
  return frame.settings(
    f'--flagfile={frame.CONFIGS}/drift_{_FLAGS.task}.flags',
    *(f'--task_option=alpha={_FLAGS.alpha}', '--task_option=validation=clients'),
    *(f'--algorithm={algorithm}', f'--rounds={rounds}'),
    *([] if correction == 'none' else [f'--server_optimizer={server}']),
    *([f'--data_dir={_FLAGS.data_dir}'] if _FILES[_FLAGS.task] else []),
  )


def report() -> str:
  """The text of RESULTS.md."""
  found = run_lib.find_runs([os.path.join(_FLAGS.output_dir, 'final')])
  complete = [run for run in found if run.is_complete]
  if not complete:
    raise ValueError(f'no run that counts is complete in {_FLAGS.output_dir}.')
  metrics = scores.TEST, tables.default_metric(complete)
  crossed = [cross_tables.build(complete, 'correction', 'server_optimizer', m) for m in metrics]
  parts = [_INTRODUCTION, *(table.markdown() for table in crossed)]
  begun = collections.Counter(map(_names, found))
  missing = collections.Counter(_names(run) for run in found if not run.is_complete)
  pairs = [f'{" x ".join(pair)} {count} of {begun[pair]}' for pair, count in missing.items()]
  if pairs:
    parts.append(f'Runs that are not complete and were left out: {"; ".join(pairs)}.\n')
  chosen = {_names(run): run for run in complete}
  rows = [[*pair, *(str(run.settings[name]) for name in _RATES)] for pair, run in chosen.items()]
  heading = ['correction', 'server optimizer', 'client rate', 'server rate']
  chosen_rates = report_lib.Table(heading, rows).markdown()
  parts += ['Rates that were chosen on the held-out clients:\n', chosen_rates]
  return '\n'.join(parts)


_INTRODUCTION = (
  'Test accuracy is of theta-bar, the mean of the client models, with SCAFFOLD, FedDyn and AdaBest,'
  ' and of theta, the global model, with the others. Validation accuracy is of theta, and chose the'
  ' rates: its mean over all rounds, or the last 100, of a run with another seed.\n'
)


def _names(run: run_lib.Run) -> tuple[str, str]:
  """A run's correction and server optimizer, as papers call them."""
  return names.correction(run.shown), names.server_optimizer(run.shown)


if __name__ == '__main__':
  sys.exit(main())
