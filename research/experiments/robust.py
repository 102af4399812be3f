"""Robust rule by attack by heterogeneity: accuracies, and what a rule costs without an attack.

usage: python -m research.experiments.robust --data_dir=DIR [--flag=value ...]

300 clients hold MNIST, unlike (alpha 0.1) or alike (inf); 20 train in a round, and a fifth of all
clients attacks. Rules know the share: they expect 6 attackers in a cohort, or trim 0.3. A row of
RESULTS.csv is written when it is known, and the same command goes on. Writes RESULTS.csv and
RESULTS.md.

  python -m research.experiments.robust --data_dir=DIR --results=results/robust/robust
  python -m research.experiments.robust --smoke --results=/tmp/robust
"""

import itertools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command

from . import frame, unlike_clients

# Rule -> the options that it has here; those with `attackers` or `trim` are told of the attackers.
RULES: Mapping[str, Mapping[str, Any]] = {
  'mean': {},
  'median': {},
  'trimmed_mean': {'trim': 0.3},
  'krum': {'attackers': 6},
  'multi_krum': {'attackers': 6},
  'geometric_median': {},
  'norm_bounding': {},
  'centred_clipping': {},
}
NO_ATTACK = 'none'
# Title -> the attack and its scale. With s = 10 the mean of 16 honest clients and 4 attackers is
# turned round; with s = 1 attackers only make the steps of the mean shorter.
ATTACKS: Mapping[str, tuple[str, float | None]] = {
  NO_ATTACK: ('', None),
  'label_flip': ('label_flip', None),
  'free_rider': ('free_rider', None),
  'sign_flip': ('sign_flip', 1.0),
  'sign_flip x 10': ('sign_flip', 10.0),
  'noise x 10': ('noise', 10.0),
  'inner_product': ('inner_product', 1.0),
  'inner_product x 10': ('inner_product', 10.0),
}
_SHARE = 0.2
_COHORT = 20
_KEYS = ['problem', 'rule', 'attack', 'alpha', 'seed']

_FLAGS = frame.flags('robust')
for _name, _values in (
  ('rules', list(RULES)),
  ('attacks', list(ATTACKS)),
  ('alphas', ['0.1', 'inf']),
):
  absl_flags.DEFINE_list(_name, _values, 'Which.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('rounds', 60, 'Of a run.', lower_bound=2, flag_values=_FLAGS)
absl_flags.DEFINE_boolean('smoke', False, 'Seconds on small data.', flag_values=_FLAGS)


class Bench:
  """The problem of a seed, and its processes, which serve each heterogeneity."""

  def __init__(self, problem: str, seed: int) -> None:
    self._name = problem
    self._seed = seed
    self._problems: dict[float, unlike_clients.Problem] = {}
    self._built: tuple[Any, Any] = (None, None)  # The last process, with what it was built for.

  def run(self, rule: str, attack: str, alpha: float) -> dict[str, float]:
    """Trains, and returns the last accuracy."""
    from tff_adaptive import training

    if alpha not in self._problems:
      self._problems[alpha] = unlike_clients.load(self._name, _FLAGS.data_dir, alpha, self._seed)
    problem = self._problems[alpha]
    attackers = _attackers(attack)
    config = training.TrainingConfig(
      rounds=_FLAGS.rounds,
      clients_per_round=_COHORT,
      seed=self._seed,
      rounds_per_evaluation=_FLAGS.rounds,
      rounds_per_checkpoint=_FLAGS.rounds,
      max_examples_per_client=unlike_clients.MOST_EXAMPLES,
      attackers=attackers,
    )
    if self._built[0] != (rule, attack):
      self._built = (rule, attack), self._build(problem.model, rule, attackers)
    rows = unlike_clients.run(problem, self._built[1], config)
    return {'accuracy': unlike_clients.last_accuracy(rows)}

  def _build(self, model: Any, rule: str, attackers: Any) -> Any:
    """Builds FedAvg with a robust rule, whose clients may attack."""
    from tff_adaptive import aggregation

    weights = model.initial_weights[0]
    cohort = aggregation.Cohort(_COHORT, weights)
    factory: Any = aggregation.build_aggregator(rule, RULES[rule], cohort)
    of_updates = None
    if attackers is not None:
      of_updates = attackers.of_updates
    if of_updates == 'inner_product':
      factory = aggregation.InnerProductFactory(attackers.strength, factory)
    return unlike_clients.build_process(model, self._seed, factory, attack=of_updates)


def _attackers(title: str) -> Any:
  """Returns the attackers of a run; None without an attack."""
  from tff_adaptive import population

  attack, scale = ATTACKS[title]
  if not attack:
    return None
  classes = None
  if attack == 'label_flip':
    classes = 10
  return population.Attackers(_SHARE, attack, scale, classes)


def train(path: str) -> None:
  """Trains what the CSV file lacks, and writes row after row."""
  known = frame.read_rows(path)
  problem = unlike_clients.DIGITS if _FLAGS.smoke else unlike_clients.MNIST
  for seed in map(int, _FLAGS.seeds):
    bench = Bench(problem, seed)
    alphas = [float(alpha) for alpha in _FLAGS.alphas]
    for rule, attack, alpha in itertools.product(_FLAGS.rules, _FLAGS.attacks, alphas):
      key = dict(zip(_KEYS, (problem, rule, attack, alpha, seed)))
      if any(key.items() <= row.items() for row in known):
        continue
      row = key | bench.run(rule, attack, alpha)
      known.append(row)
      command.say(' '.join(f'{value}' for value in row.values()))
      frame.write_rows(path, known)


def report(table: pd.DataFrame) -> list[str]:
  """Returns the parts of RESULTS.md: accuracies, and differences to the mean without attack."""
  parts = [_INTRODUCTION]
  for (problem, alpha), part in table.groupby(['problem', 'alpha'], sort=False):
    cells = part.groupby(['rule', 'attack'], sort=False)['accuracy'].agg(frame.spread).unstack()
    columns = [attack for attack in ATTACKS if attack in cells]
    parts.append(f'## {problem}, alpha = {alpha:g}: accuracy in percent\n')
    parts.append(frame.table(cells[columns]))
  costs = price(table)
  if len(costs):
    parts.append('## What a rule costs without an attack\n')
    parts.append(
      'Percent of accuracy that a rule loses against the mean: the mean of the differences between'
      ' runs of the same seed, and their standard deviation.\n'
    )
    parts.append(frame.table(costs))
  flags = f'experiments.robust --rounds={_FLAGS.rounds}'
  if _FLAGS.smoke:
    flags += ' --smoke'
  return [*parts, frame.made_by(flags, f'seeds {", ".join(_FLAGS.seeds)}')]


def price(table: pd.DataFrame) -> pd.DataFrame:
  """Returns what each rule loses against the mean without an attack, by heterogeneity."""
  honest = table[table['attack'] == NO_ATTACK]
  by_seed = honest.pivot_table(index=['alpha', 'seed'], columns='rule', values='accuracy')
  if 'mean' not in by_seed:
    return pd.DataFrame()
  lost = by_seed.rsub(by_seed['mean'], axis=0).drop(columns='mean')
  rules = [rule for rule in RULES if rule in lost]
  columns = {}
  for alpha, part in lost[rules].groupby('alpha', sort=False):
    columns[f'alpha = {alpha:g}'] = part.agg(frame.spread)
  costs = pd.DataFrame(columns)
  costs.index.name = 'rule'
  return costs


_INTRODUCTION = frame.paragraph(f"""
  Accuracies on the test data after the last round: means and standard deviations over the seeds;
  NaN is a run that diverged. FedAvg with uniform weights, a perceptron with 50 hidden units, at
  most {unlike_clients.MOST_EXAMPLES} examples of a client, one epoch of batches of
  {unlike_clients.BATCH_SIZE}, client rate {unlike_clients.CLIENT_RATE:g}; {_COHORT} clients train
  in a round, and {100 * _SHARE:.0f} percent of all clients attack whenever they take part, with the
  scale 1, or 10 for x 10. trimmed_mean has trim=0.3, krum and multi_krum attackers=6; other options
  are the defaults.
""")


@command.entry('robust.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  if _FLAGS.smoke:
    _shorten()
  files = {}
  if not _FLAGS.smoke:
    files = {unlike_clients.MNIST: unlike_clients.FILES[unlike_clients.MNIST]}
  frame.check(_FLAGS, {'rules': RULES, 'attacks': ATTACKS}, files)
  frame.write(_FLAGS.results, report(frame.trained(_FLAGS, train)))
  return command.DONE


def _shorten() -> None:
  """Leaves of the study what takes seconds."""
  shorter = {
    'rounds': 3,
    'rules': ['mean', 'median'],
    'attacks': [NO_ATTACK, 'sign_flip'],
    'alphas': ['0.1'],
    'seeds': ['0'],
  }
  frame.shorten(_FLAGS, shorter)


if __name__ == '__main__':
  sys.exit(main())
