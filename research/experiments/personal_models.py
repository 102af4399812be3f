"""Accuracy of a model for each client on Fashion-MNIST or CIFAR-100, beside PFLlib's leaderboard.

usage: python -m research.experiments.personal_models --data_dir=DIR [--flag=value ...]

The clients, their images for training and for tests, the CNN and its initial distribution are those
of PFLlib (--task). So are the settings, as far as its code has them: 20 clients, all in
every round, one epoch of batches of 10, SGD with rate 0.005, clients weighted by their examples.
Methods train in turns of --rounds_per_turn rounds, up to --rounds, so that all have as many. A run
is saved after every round: the same command goes on, also with more --rounds.
Writes a folder of runs, RUNS, and RESULTS.csv and RESULTS.md.

  python -m research.experiments.personal_models --data_dir=DIR --rounds=2000
  python -m research.experiments.personal_models --task=cifar100_pfllib --data_dir=DIR \\
      --results=results/personal_models/cifar100 --runs=runs/personal_models_cifar100
  python -m research.experiments.personal_models --smoke --results=/tmp/smoke --runs=/tmp/runs
"""

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command

from . import frame

_OWN = 'clients_test_own_accuracy_by_examples'
_GLOBAL = 'clients_test_accuracy_by_examples'
_FINE_TUNED = 'clients_test_personalized_accuracy_by_examples'


@dataclasses.dataclass(frozen=True)
class Method:
  """A method of the leaderboard.

  Attributes:
    algorithm: Its name in the registry.
    published: By task its accuracy in percent in PFLlib's table, with the deviation of three runs.
    column: The column of metrics.csv with the accuracy of the models that PFLlib evaluates.
    values: The hyperparameters.
    epochs: Passes over a client's examples in a round.
    program: The arguments of PFLlib's main.py for these settings, but for its defaults.
    tuning: The fine-tuning that belongs to the method: arguments of `Batching`; None for none.
    note: What PFLlib's code says of the hyperparameters.
    module: The program of this project that runs PFLlib's main.py.
  """

  algorithm: str
  published: Mapping[str, str]
  column: str
  values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  epochs: int = 1
  program: Sequence[str] = ()
  tuning: Mapping[str, Any] | None = None
  note: str = ''
  module: str = 'research.peers.program'


def _published(of_fashion: str, of_cifar: str) -> Mapping[str, str]:
  return {'fashion_mnist': of_fashion, 'cifar100_pfllib': of_cifar}


METHODS: Mapping[str, Method] = {
  'FedAvg': Method(
    'fed_avg', _published('85.85 ± 0.19', '31.89 ± 0.47'), _GLOBAL, program=('-algo', 'FedAvg')
  ),
  'FedProx': Method(
    'fed_prox',
    _published('85.63 ± 0.57', '31.99 ± 0.41'),
    _GLOBAL,
    {'mu': 0.001},
    note='mu = 0.001; the default there is 0',
    program=('-algo', 'FedProx', '-mu', '0.001'),
  ),
  'FedPer': Method(
    'fed_per', _published('97.44 ± 0.06', '49.63 ± 0.54'), _OWN, program=('-algo', 'FedPer')
  ),
  'FedRep': Method(
    'fed_rep',
    _published('97.56 ± 0.04', '52.39 ± 0.35'),
    _OWN,
    {'head_share': 0.5},
    epochs=2,
    note='one epoch of the head, then one of the body',
    program=('-algo', 'FedRep'),
  ),
  'Ditto': Method(
    'ditto',
    _published('97.47 ± 0.04', '52.87 ± 0.64'),
    _OWN,
    {'lam': 0.01},
    note='lambda = 0.01; the default there is 0',
    program=('-algo', 'Ditto', '-mu', '0.01'),
  ),
  'FedBABU': Method(
    'fed_babu',
    _published('97.46 ± 0.07', '55.02 ± 0.33'),
    _FINE_TUNED,
    tuning={'epochs': 10},
    note='after 10 epochs of fine-tuning of all weights',
    program=('-algo', 'FedBABU'),
  ),
  'Per-FedAvg': Method(
    'per_fed_avg',
    _published('95.10 ± 0.10', '44.28 ± 0.33'),
    _FINE_TUNED,
    {'inner_rate': 0.005},
    epochs=2,
    tuning={'local_steps': 1},
    note='two epochs, as its server calls them; evaluated after one step',
    program=('-algo', 'PerAvg'),
  ),
  'pFedMe': Method(
    'p_fed_me',
    _published('97.25 ± 0.17', '47.34 ± 0.46'),
    _OWN,
    {'moreau_lam': 15.0, 'inner_steps': 5, 'inner_rate': 0.01},
    note='lambda = 15 and beta = 1; the defaults there are 1 and 0',
    module='research.peers.pfedme',
    program=('-algo', 'pFedMe', '-lam', '15', '-bt', '1'),
  ),
}

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_enum(
  'task', 'fashion_mnist', ['fashion_mnist', 'cifar100_pfllib'], 'Which.', flag_values=_FLAGS
)
absl_flags.DEFINE_string('data_dir', None, "The folder of the task's files.", flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'results',
  'results/personal_models/personal_models',
  'Where to write: RESULTS.md, say.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_string('runs', 'runs/personal_models', 'The folder of runs.', flag_values=_FLAGS)
absl_flags.DEFINE_list('methods', list(METHODS), 'Which.', flag_values=_FLAGS)
absl_flags.DEFINE_list('seeds', ['0'], 'Of the runs.', flag_values=_FLAGS)
absl_flags.DEFINE_integer(
  'rounds', 200, 'Of a run; PFLlib: 2000.', lower_bound=1, flag_values=_FLAGS
)
absl_flags.DEFINE_integer(
  'rounds_per_turn', 10, 'Of one method before the next.', lower_bound=1, flag_values=_FLAGS
)
absl_flags.DEFINE_boolean('report_only', False, 'Train nothing.', flag_values=_FLAGS)
absl_flags.DEFINE_boolean('smoke', False, 'Seconds on small data.', flag_values=_FLAGS)


class Bench:
  """The data and the model, on which the methods train."""

  def __init__(self, seed: int):
    import tff_adaptive_tasks as tasks
    from tff_adaptive import models

    self._seed = seed
    self._rate = 0.005
    if _FLAGS.smoke:
      self._task = tasks.load('digits', seed=seed)
      self._rate = 0.1
    else:
      self._task = tasks.load(_FLAGS.task, data_dir=_FLAGS.data_dir, seed=seed)
    self._model = self._task.build_model(seed)
    evaluate = models.build_evaluation(self._model)
    self._evaluate = lambda weights: evaluate(weights, self._task.validation)

  def train(self, title: str, rounds: int, folder: str) -> None:
    """Trains a method up to a round, from where its run in the folder stopped."""
    from tff_adaptive import algorithms, client, training

    method = METHODS[title]
    batching = client.Batching(10, epochs=method.epochs)
    process = algorithms.build_process(
      method.algorithm,
      self._model,
      client_learning_rate=self._rate,
      values=method.values,
      training=client.ClientTraining(batching=batching, seed=self._seed),
      client_weighting='examples',
    )
    config = training.TrainingConfig(
      rounds=rounds,
      clients_per_round=len(self._task.train.client_ids),
      seed=self._seed,
      rounds_per_evaluation=_FLAGS.rounds_per_turn,
      rounds_per_checkpoint=1,
    )
    training.train(
      process,
      self._task.train,
      self._evaluate,
      config,
      output_dir=folder,
      client_evaluation=self._client_evaluation(method),
      show_progress=False,
      settings={'algorithm': method.algorithm, 'task': self._task.name},
    )

  def _client_evaluation(self, method: Method) -> Any:
    """Returns the evaluation on each client's images for tests, of which PFLlib takes the mean."""
    from tff_adaptive import client
    from tff_adaptive.training import client_evaluation, personalization

    personalize = None
    if method.tuning is not None:
      of_client = client.ClientTraining(
        batching=client.Batching(10, **method.tuning), seed=self._seed
      )
      personalize = personalization.build_personalization(
        self._model, of_client, lambda _: self._rate
      )
    tests = self._task.test_clients or self._task.train
    groups = {'test': client_evaluation.Group(tests, self._task.train)}
    return client_evaluation.ClientEvaluation(
      self._model,
      groups,
      rounds_per_evaluation=_FLAGS.rounds_per_turn,
      personalize=personalize,
      seed=self._seed,
    )


def check_methods(names: Sequence[str]) -> None:
  """Raises ValueError if --methods names what is no method."""
  for name in names:
    if name not in METHODS:
      raise ValueError(f'--methods: {name} is none of {", ".join(METHODS)}: give some of these.')


def _folder(title: str, seed: int) -> str:
  name = METHODS[title].algorithm
  return os.path.join(_FLAGS.runs, f'{name}_seed_{seed}')


def _rows(folder: str) -> pd.DataFrame:
  """Returns a run's rows; none if it has not begun, or was stopped before its first row."""
  path = os.path.join(folder, 'metrics.csv')
  if not os.path.exists(path) or not os.path.getsize(path):
    return pd.DataFrame({'round': []})
  return pd.read_csv(path)


def _done(folder: str) -> int:
  """Returns the number of rounds that the run in a folder has done."""
  return int(max(_rows(folder)['round'], default=0))


def train() -> None:
  """Trains all methods in turns, and writes the tables after each turn."""
  for seed in map(int, _FLAGS.seeds):
    bench = Bench(seed)
    turns = range(_FLAGS.rounds_per_turn, _FLAGS.rounds + 1, _FLAGS.rounds_per_turn)
    for rounds in turns:
      for title in _FLAGS.methods:
        folder = _folder(title, seed)
        if _done(folder) >= rounds:
          continue
        bench.train(title, rounds, folder)
        command.say(f'{title}, seed {seed}: {rounds} rounds')
        write()


def accuracies() -> pd.DataFrame:
  """Returns a row for each method, seed and evaluation of the runs, accuracies in percent."""
  rows = []
  for title, method in METHODS.items():
    for seed in map(int, _FLAGS.seeds):
      table = _rows(_folder(title, seed))
      if method.column not in table:
        continue
      for _, row in table.dropna(subset=[method.column]).iterrows():
        place = {'method': title, 'seed': seed, 'round': int(row['round'])}
        values = {'accuracy': 100 * row[method.column], 'of_global': 100 * row[_GLOBAL]}
        rows.append({**place, **values})
  return pd.DataFrame(rows, columns=['method', 'seed', 'round', 'accuracy', 'of_global'])


def _of_program() -> pd.DataFrame:
  """Returns the rows of `beside_pfllib`, if it has been run."""
  name = 'pfllib.csv'
  if _FLAGS.task != 'fashion_mnist':
    name = f'pfllib_{_FLAGS.task}.csv'
  path = os.path.join(os.path.dirname(_FLAGS.results), name)
  if not os.path.exists(path):
    return pd.DataFrame(columns=['method', 'round', 'accuracy'])
  return pd.read_csv(path)


def _beside(here: pd.DataFrame, program: pd.DataFrame) -> str:
  """Returns a method's accuracy here and in PFLlib's program after as many rounds as both have."""
  there = program.set_index('round')['accuracy'].rename('there')
  both = here.groupby('round')[['accuracy']].mean().join(there, how='inner')
  both = both[both.index > 0]
  if both.empty:
    return ''
  last = both.iloc[-1]
  return f'round {both.index[-1]}: {last["accuracy"]:.2f}, {last["there"]:.2f}'


def report(table: pd.DataFrame) -> list[str]:
  """Returns the parts of RESULTS.md: the last and the best accuracy beside the published one."""
  program = _of_program()
  lines = []
  for title, of_method in table.groupby('method', sort=False):
    method = METHODS[str(title)]
    by_seed = of_method.sort_values('round').groupby('seed')['accuracy']
    of_program = program[program['method'] == title]
    lines.append(
      {
        'method': title,
        'rounds': of_method['round'].max(),
        'last': f'{by_seed.last().mean():.2f}',
        'best': f'{by_seed.max().mean():.2f}',
        'PFLlib': method.published[_FLAGS.task],
        'same round: here, PFLlib': _beside(of_method, of_program),
        'settings': method.note,
      }
    )
  seeds = (
    f'{_FLAGS.task}, seed {", ".join(_FLAGS.seeds)},'
    f' {_FLAGS.rounds_per_turn} rounds between evaluations'
  )
  return [
    _INTRODUCTION,
    frame.table(pd.DataFrame(lines).set_index('method')),
    frame.made_by('experiments.personal_models', seeds),
  ]


_INTRODUCTION = frame.paragraph("""
  Accuracy in percent on the clients' own images for tests, all together, after the rounds that the
  runs have done so far. The table of PFLlib has the best of up to 2,000 rounds, the mean of three
  runs. Its code at d832e76 has the settings of the command, but not all hyperparameters with which
  the table was made; the column "settings" says what was taken instead. Three things differ: PFLlib
  leaves out the last batch of an epoch if it is smaller than 10; it evaluates after every round;
  and it draws the initial weights and the order of examples from other numbers. The clients' images
  are the same. "Same round" has what PFLlib's own program says at that commit. With pFedMe it
  evaluates the global model, because the clients' own weights are overwritten before; here they are
  kept (research/peers/pfedme.py).
""")


def with_rows_of_others(table: pd.DataFrame, before: pd.DataFrame) -> pd.DataFrame:
  """Returns the rows of the runs, and those of an earlier table for longer or other runs.

  Of a method and a seed the rows of the table with more rounds stay, those of the runs if both have
  as many.
  """
  runs = []
  for title in METHODS:
    for seed in sorted({*table['seed'], *before['seed']}):
      of_tables = []
      for rows in (table, before):
        of_tables.append(rows[(rows['method'] == title) & (rows['seed'] == seed)])
      runs.append(max(of_tables, key=lambda rows: max(rows['round'], default=-1)))
  return pd.concat(runs, ignore_index=True)


def write() -> None:
  """Writes RESULTS.csv and RESULTS.md from the runs, and from rows that were there before."""
  path = f'{_FLAGS.results}.csv'
  table = accuracies()
  if os.path.exists(path):
    table = with_rows_of_others(table, pd.read_csv(path))
  if table.empty:
    raise ValueError(f'{_FLAGS.runs} has no run with an evaluation: leave out --report_only.')
  frame.write_rows(path, table)
  frame.write(_FLAGS.results, report(table))


@command.entry('personal_models.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  check_methods(_FLAGS.methods)
  frame.check_seeds('seeds', _FLAGS.seeds)
  if _FLAGS.smoke:
    _FLAGS['rounds'].value = 2
    _FLAGS['rounds_per_turn'].value = 1
  command.check_output('results', _FLAGS.results)
  if _FLAGS.report_only:
    write()
    return command.DONE
  from tff_adaptive import engine

  engine.set_graph_context()
  train()
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
