"""The problems of the bench: data, models, clients, rounds, and the value by which methods rank.

Nothing here imports TensorFlow.
"""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence

_EMBEDDED = str(pathlib.Path(__file__).with_name('embedded.py'))
_FROM_FILES = str(pathlib.Path(__file__).with_name('from_files.py'))
EVALUATIONS = 10  # Of a run, after round 0.
AVERAGED = 2  # The value of a run is the mean over its last evaluations, of this number.


@dataclasses.dataclass(frozen=True)
class Problem:
  """A problem of the bench.

  Attributes:
    title: What tables call it.
    about: Its data, model and clients in one line, for the list and the page.
    flags: The flags of train.py, without the algorithm, the seed and the client rate.
    test: More flags for the runs that count.
    tuning: More flags for the runs that choose the rates, which are judged by other examples.
    metric: The metric of the model by which runs are compared, or 'log10_distance'.
    tuning_column: The column of metrics.csv that judges the runs that choose; '' for `metric` on
      the validation data.
    is_better_high: Whether high values are good.
    rates: Between which the client rate is searched.
    margin: Trials whose value is within this of the best count as good.
    files: One of these must be in --data_dir; empty if the problem needs no files.
  """

  title: str
  about: str
  flags: Sequence[str]
  metric: str
  rates: tuple[float, float]
  margin: float
  test: Sequence[str] = ()
  tuning: Sequence[str] = ()
  tuning_column: str = ''
  is_better_high: bool = True
  files: Sequence[str] = ()

  @property
  def factor(self) -> float:
    """What values are multiplied by in tables: shares are shown in percent."""
    if self.is_better_high:
      return 100.0
    return 1.0

  @property
  def direction(self) -> str:
    """Which values are good, in a word."""
    if self.is_better_high:
      return 'higher is better'
    return 'lower is better'

  @property
  def heading(self) -> str:
    """The title with the unit, for a column of a table."""
    if self.is_better_high:
      return f'{self.title}, %'
    return f'{self.title}, {self.metric} (low is good)'

  def rounds_of(self, evaluations: int) -> list[int]:
    """Returns the rounds of the first evaluations of a run, that of the initial model included."""
    by_name = dict(flag.removeprefix('--').split('=', 1) for flag in self.flags)
    every = int(by_name['rounds_per_evaluation'])
    return [min(every * number, int(by_name['rounds'])) for number in range(evaluations)]

  def worth(self, value: float) -> float:
    """Returns a value with the sign that makes large numbers good."""
    if self.is_better_high:
      return value
    return -value


def _rounds(count: int) -> tuple[str, str]:
  """Returns the flags for a number of rounds with ten evaluations."""
  return f'--rounds={count}', f'--rounds_per_evaluation={max(1, count // EVALUATIONS)}'


_BY_CLIENTS = ('--task_option=validation=clients',)
_BY_TEST = ('--task_option=validation=test',)
_PART_FOR_TUNING = ('--task_option=part=tuning',)
_HELD_OUT = ('--heldout_examples=0.2', '--rounds_per_client_evaluation=5')

# A classification of images, tuned by clients that do not train.
_with_held_out_clients = functools.partial(
  Problem,
  metric='accuracy',
  rates=(0.01, 1.0),
  margin=0.02,
  test=_BY_TEST,
  tuning=_BY_CLIENTS,
)

_OFFLINE: Mapping[str, Problem] = {
  'least_squares': Problem(
    'least squares',
    'random linear regression with 10 weights; 10 clients with solutions of their own, 5 of which'
    ' take 5 full gradient steps a round; 60 rounds',
    (
      *('--task=least_squares', '--task_option=num_clients=10', '--task_option=columns=10'),
      *('--clients_per_round=5', '--client_epochs=5', '--batch_size=0', *_rounds(60)),
    ),
    'log10_distance',
    (0.01, 0.3),
    0.1,
    is_better_high=False,
  ),
  'tumours': Problem(
    'tumours',
    "scikit-learn's breast cancer table, logistic regression; 8 hospitals by Dirichlet(0.5), all in"
    ' each of 20 rounds, 2 epochs',
    (
      *(f'--task={_EMBEDDED}:load_tumours', '--batch_size=10', '--client_epochs=2'),
      *('--clients_per_round=8', *_rounds(20)),
    ),
    'loss',
    (0.003, 1.0),
    0.01,
    tuning=_PART_FOR_TUNING,
    is_better_high=False,
  ),
  'synthetic': Problem(
    'synthetic(1, 1)',
    'logistic regression on synthetic(1, 1), clients with unlike models and inputs; 10 of 30'
    ' clients a round, at most 200 examples each, 2 epochs, 40 rounds',
    (
      *('--task=synthetic', '--task_option=alpha=1', '--task_option=beta=1', '--client_epochs=2'),
      *('--max_examples_per_client=200', '--clients_per_round=10', *_rounds(40)),
    ),
    'accuracy',
    (1e-3, 0.3),
    0.02,
  ),
  'digits': _with_held_out_clients(
    'digits, few labels',
    "scikit-learn's digits, MLP of two hidden layers; 10 of 100 clients by Dirichlet(0.1) a round,"
    ' 5 epochs, 30 rounds',
    (
      *('--task=digits_skewed', '--task_option=alpha=0.1', '--task_option=num_clients=110'),
      *('--clients_per_round=10', *_rounds(30)),
    ),
  ),
  'digits_rare': _with_held_out_clients(
    'digits, 2 % of the clients',
    "scikit-learn's digits, the same MLP; 6 of 300 clients by Dirichlet(0.3) a round, so that a"
    ' client takes part about once; 5 epochs, 60 rounds',
    (
      *('--task=digits_skewed', '--task_option=alpha=0.3', '--task_option=num_clients=330'),
      *('--clients_per_round=6', *_rounds(60)),
    ),
  ),
  'sonnets': Problem(
    'sonnets',
    'the next letter from the six before, MLP of one hidden layer; 4 of 16 sonnets by Shakespeare'
    ' a round, 1 epoch, 40 rounds',
    (
      *(f'--task={_EMBEDDED}:load_sonnets', '--batch_size=20', '--client_epochs=1'),
      *('--clients_per_round=4', *_rounds(40)),
    ),
    'accuracy',
    (0.01, 1.0),
    0.01,
    tuning=_PART_FOR_TUNING,
  ),
}

_WITH_FILES: Mapping[str, Problem] = {
  'fed_heart': Problem(
    'FLamby heart',
    'heart disease in 4 hospitals, logistic regression; all hospitals, 100 local steps, 15 rounds',
    ('--task=fed_heart', '--rounds=15', '--rounds_per_evaluation=1'),
    'accuracy',
    (1e-4, 1.0),
    0.02,
    tuning=_HELD_OUT,
    tuning_column='clients_heldout_accuracy_mean',
    files=('processed.cleveland.data', 'flamby/processed.cleveland.data'),
  ),
  'fed_tcga_brca': Problem(
    'FLamby BRCA',
    'survival with breast cancer in 6 regions, Cox model; all regions, 100 local steps, 15 rounds',
    ('--task=fed_tcga_brca', '--rounds=15', '--rounds_per_evaluation=1'),
    'concordance',
    (1e-4, 1.0),
    0.02,
    tuning=_HELD_OUT,
    tuning_column='clients_heldout_concordance_mean',
    files=('brca.csv', 'flamby/brca.csv'),
  ),
  'mnist': _with_held_out_clients(
    'MNIST, alpha = 0.03',
    "MNIST in AdaBest's partition, MLP of two hidden layers; 10 of 100 clients a round, 5 epochs,"
    ' 40 rounds',
    (
      *('--task=mnist_skewed', '--task_option=alpha=0.03', '--clients_per_round=10'),
      *_rounds(40),
    ),
    files=('mnist.npz', 'mnist_digits.npz'),
  ),
  'letters': _with_held_out_clients(
    'letters, 1 % of 1,000 clients',
    'ten EMNIST letters, MLP of two hidden layers; 10 of 1,000 clients by Dirichlet(0.3) a round,'
    ' 5 epochs, 200 rounds',
    (
      *('--task=emnist_letters', '--task_option=num_clients=1100', '--clients_per_round=10'),
      *_rounds(200),
    ),
    files=('emnist_letters.npz',),
  ),
  'letters_26': _with_held_out_clients(
    'letters, all 26',
    'all EMNIST letters, MLP of two hidden layers; 10 of 100 clients by Dirichlet(0.3) a round,'
    ' 5 epochs, 40 rounds',
    (
      *('--task=emnist_letters', '--task_option=letters=26', '--task_option=num_clients=110'),
      *('--clients_per_round=10', *_rounds(40)),
    ),
    files=('emnist_letters.npz',),
  ),
  'fashion': Problem(
    'Fashion-MNIST',
    'Fashion-MNIST, MLP of one hidden layer; 10 of 100 clients by Dirichlet(0.3) a round, 1 epoch,'
    ' 60 rounds',
    (
      *(f'--task={_FROM_FILES}:load_fashion', '--batch_size=20', '--client_epochs=1'),
      *('--clients_per_round=10', *_rounds(60)),
    ),
    'accuracy',
    (0.01, 1.0),
    0.02,
    tuning=_PART_FOR_TUNING,
    files=('train-images-idx3-ubyte.gz', 'fashion_mnist.npz'),
  ),
  'adult': Problem(
    'Adult',
    "UCI's Adult, logistic regression; 8 of 16 clients, the levels of education, a round, 1 epoch,"
    ' 30 rounds',
    (
      *(f'--task={_FROM_FILES}:load_adult', '--batch_size=50', '--client_epochs=1'),
      *('--clients_per_round=8', *_rounds(30)),
    ),
    'loss',
    (0.003, 1.0),
    0.005,
    tuning=_PART_FOR_TUNING,
    is_better_high=False,
    files=('adult.data',),
  ),
}

PROBLEMS: Mapping[str, Problem] = {**_OFFLINE, **_WITH_FILES}
OFFLINE = tuple(_OFFLINE)


def has_files(name: str, data_dir: str | None) -> bool:
  """Returns whether a problem's files are in a folder, or it needs none."""
  files = PROBLEMS[name].files
  if not files:
    return True
  return data_dir is not None and any(
    os.path.isfile(os.path.join(data_dir, file)) for file in files
  )


def by_default(data_dir: str | None) -> list[str]:
  """Returns the names of the problems that can be used with a folder of files, or without one."""
  return [name for name in PROBLEMS if has_files(name, data_dir)]
