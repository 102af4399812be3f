"""Virtual seconds to a target accuracy by rule for cohorts, under traces of speed and availability.

usage: python -m research.experiments.cohorts --data_dir=DIR [--flag=value ...]

300 clients hold MNIST, unlike (alpha 0.1) or alike (inf). A server step has 20 clients: the server
waits for the 20 that were chosen, or for the first 20 of 26. The traces are drawn once with a fixed
seed: each client is available in sessions of log-normal length, and has a log-normal speed, with
sigma 1. A row of RESULTS.csv is written when it is known, and the same command goes on. Writes
RESULTS.csv and RESULTS.md.

  python -m research.experiments.cohorts --data_dir=DIR --results=results/cohorts/cohorts
  python -m research.experiments.cohorts --smoke --results=/tmp/cohorts
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command

from . import frame, unlike_clients

_COHORT = 20
RULES = ('uniform', 'power_of_choice, d = 40', 'power_of_choice, d = 80', 'oort')
# Title -> the factor of over-selection.
SERVERS: Mapping[str, float] = {'all 20': 1.0, '20 of 26': 1.3}
_KEYS = ['problem', 'alpha', 'rule', 'server', 'seed']
_TRACE_SEED = 2026
_TRACE_SECONDS = 3600.0
_SESSION = 300.0  # Median virtual seconds in which a client is available, and is away.

_FLAGS = frame.flags('cohorts')
for _name, _values in (
  ('rules', list(RULES)),
  ('servers', list(SERVERS)),
  ('alphas', ['0.1', 'inf']),
):
  absl_flags.DEFINE_list(_name, _values, 'Which.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('rounds', 150, 'Of a run.', lower_bound=2, flag_values=_FLAGS)
absl_flags.DEFINE_float('target', 0.85, 'Accuracy on the test data.', flag_values=_FLAGS)
absl_flags.DEFINE_boolean('smoke', False, 'Seconds on small data.', flag_values=_FLAGS)


def rule(title: str) -> Any:
  """Returns the rule of a title; None for uniform draws."""
  from tff_adaptive import population

  if title == 'uniform':
    return None
  if title == 'oort':
    return population.Oort()
  return population.PowerOfChoice(int(title.rpartition(' ')[2]))


def traces(client_ids: Sequence[str]) -> tuple[Any, Any]:
  """Returns the availability and the speed of clients, the same for all runs."""
  from tff_adaptive import population

  generator = np.random.default_rng(_TRACE_SEED)
  intervals = {}
  seconds = {}
  for client_id in client_ids:
    intervals[client_id] = _sessions(generator)
    seconds[client_id] = float(0.1 * np.exp(generator.standard_normal()))
  # The trace repeats after the end of the last interval of any client.
  speed = population.Speed(uplink=1.0, bandwidth_sigma=0.5, profiles={'seconds_per_step': seconds})
  return population.Trace(intervals), speed


def _sessions(generator: np.random.Generator) -> list[tuple[float, float]]:
  """Draws the intervals in which a client is available, up to the end of the trace."""
  sessions = []
  begin = float(generator.uniform(0, 2 * _SESSION)) - _SESSION
  while begin < _TRACE_SECONDS:
    end = begin + _SESSION * float(np.exp(generator.standard_normal()))
    inside = max(begin, 0.0), min(end, _TRACE_SECONDS)
    if inside[0] < inside[1]:
      sessions.append(inside)
    begin = end + _SESSION * float(np.exp(generator.standard_normal()))
  return sessions


class Bench:
  """A problem with its data, its traces and the process that trains on it."""

  def __init__(self, problem: str, alpha: float, seed: int) -> None:
    from tff_adaptive import training

    self._seed = seed
    self._problem = unlike_clients.load(problem, _FLAGS.data_dir, alpha, seed)
    self._process = unlike_clients.build_process(self._problem.model, seed)
    self._losses = training.build_client_losses(self._problem.model)
    self._availability, self._speed = traces(self._problem.task.train.client_ids)

  def run(self, title: str, server: str) -> dict[str, float]:
    """Trains all rounds; returns what the target took, and the last accuracy."""
    from tff_adaptive import population, training

    cohort_rule = rule(title)
    config = training.TrainingConfig(
      rounds=_FLAGS.rounds,
      clients_per_round=_COHORT,
      seed=self._seed,
      rounds_per_evaluation=2,
      rounds_per_checkpoint=_FLAGS.rounds,
      max_examples_per_client=unlike_clients.MOST_EXAMPLES,
      cohort=cohort_rule,
      population=population.Population(
        self._availability, self._speed, over_select=SERVERS[server]
      ),
      cost_model=unlike_clients.cost_model(self._problem.model),
    )
    rows = unlike_clients.run(self._problem, self._process, config, client_losses=self._losses)
    return {**to_target(rows, _FLAGS.target), 'accuracy': unlike_clients.last_accuracy(rows)}


def to_target(rows: Sequence[Mapping[str, Any]], target: float) -> dict[str, float]:
  """Returns rounds, virtual seconds and megabytes to the first evaluation at a target, or inf."""
  spent = {'rounds': 0.0, 'seconds': 0.0, 'megabytes': 0.0}
  for row in rows:
    if row.get('round'):
      spent['rounds'] += 1
    spent['seconds'] += row.get('virtual_seconds', 0.0)
    spent['megabytes'] += row.get('megabytes_down', 0.0) + row.get('megabytes_up', 0.0)
    if row.get('validation_accuracy', 0.0) >= target:
      return spent
  return dict.fromkeys(spent, np.inf)


def train(path: str) -> None:
  """Trains what the CSV file lacks, and writes row after row."""
  known = frame.read_rows(path)
  problem = unlike_clients.DIGITS if _FLAGS.smoke else unlike_clients.MNIST
  alphas = [float(alpha) for alpha in _FLAGS.alphas]
  for seed, alpha in itertools.product(map(int, _FLAGS.seeds), alphas):
    bench: Bench | None = None
    for title, server in itertools.product(_FLAGS.rules, _FLAGS.servers):
      key = dict(zip(_KEYS, (problem, alpha, title, server, seed)))
      if any(key.items() <= row.items() for row in known):
        continue
      if bench is None:
        bench = Bench(problem, alpha, seed)
      row = key | bench.run(title, server)
      known.append(row)
      command.say(' '.join(f'{value}' for value in row.values()))
      frame.write_rows(path, known)


def report(table: pd.DataFrame) -> list[str]:
  """Returns the parts of RESULTS.md: a table for each heterogeneity."""
  parts = [_INTRODUCTION]
  for (problem, alpha), part in table.groupby(['problem', 'alpha'], sort=False):
    lines = part.groupby(['server', 'rule'], sort=False).agg(
      seconds=('seconds', _median),
      rounds=('rounds', _median),
      megabytes=('megabytes', _median),
      accuracy=('accuracy', frame.spread),
    )
    gain = gains(part)
    lines.insert(1, 'times as quick as uniform', [gain.get(key, '') for key in lines.index])
    title = f'## {problem}, alpha = {alpha:g}: to {100 * _FLAGS.target:g} percent\n'
    parts += [title, frame.table(lines)]
  flags = f'experiments.cohorts --rounds={_FLAGS.rounds} --target={_FLAGS.target:g}'
  if _FLAGS.smoke:
    flags += ' --smoke'
  return [*parts, frame.made_by(flags, f'seeds {", ".join(_FLAGS.seeds)}')]


def gains(table: pd.DataFrame) -> dict[tuple[str, str], str]:
  """Returns, by server and rule, the seconds of uniform draws over those of the rule.

  It is the range over the seeds in which both reached the target; other rules are left out.
  """
  by_seed = table.pivot_table(index=['server', 'seed'], columns='rule', values='seconds')
  if 'uniform' not in by_seed:
    return {}
  texts = {}
  for name in by_seed.columns.drop('uniform'):
    ratios = by_seed['uniform'] / by_seed[name]
    both = np.isfinite(by_seed['uniform']) & np.isfinite(by_seed[name])
    for server, part in ratios[both].groupby('server'):
      texts[server, name] = f'{part.min():.2f} to {part.max():.2f}'
      if len(part) == 1:
        texts[server, name] = f'{part.iloc[0]:.2f}'
  return texts


def _median(values: pd.Series) -> str:
  """The median of the seeds that reached the target, and how many did where not all."""
  reached = values[np.isfinite(values)]
  text = '-'
  if len(reached):
    text = f'{reached.median():,.0f}'
  if len(reached) < len(values):
    text += f' ({len(reached)}/{len(values)})'
  return text


_INTRODUCTION = frame.paragraph(f"""
  Virtual seconds, rounds and megabytes (in both directions) until the test accuracy was first at
  the target, with an evaluation every second round: the median over the seeds that reached it;
  (k/n) says how many did where not all. "times as quick" is the range over seeds of the seconds of
  uniform draws over those of the rule. The last column is the accuracy in percent after all rounds,
  mean and standard deviation. FedAvg with uniform weights, a perceptron with 50 hidden units, at
  most {unlike_clients.MOST_EXAMPLES} examples of a client, one epoch of batches of
  {unlike_clients.BATCH_SIZE}, client rate {unlike_clients.CLIENT_RATE:g}. A local step takes 0.1 s
  in the median, with sigma 1 over clients; uplink 1 and downlink 10 megabytes a second, sigma 0.5.
  A client is available for {_SESSION:.0f} s, then away for {_SESSION:.0f} s, in the median, with
  sigma 1; the trace repeats after an hour. Candidates' downloads and evaluations are counted.
""")


@command.entry('cohorts.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  if _FLAGS.smoke:
    _shorten()
  files = {}
  if not _FLAGS.smoke:
    files = {unlike_clients.MNIST: unlike_clients.FILES[unlike_clients.MNIST]}
  frame.check(_FLAGS, {'rules': RULES, 'servers': SERVERS}, files)
  frame.write(_FLAGS.results, report(frame.trained(_FLAGS, train)))
  return command.DONE


def _shorten() -> None:
  """Leaves of the study what takes seconds."""
  shorter = {
    'rounds': 4,
    'rules': ['uniform', 'oort'],
    'servers': ['20 of 26'],
    'alphas': ['0.1'],
    'seeds': ['0'],
    'target': 0.2,
  }
  frame.shorten(_FLAGS, shorter)


if __name__ == '__main__':
  sys.exit(main())
