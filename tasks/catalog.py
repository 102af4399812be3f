"""The tasks by name, with the hyperparameters of their papers, as plain data.

Nothing here imports TensorFlow, so that commands can list tasks and defaults quickly.

For its seven tasks, "Adaptive Federated Optimization" (FedOpt) tuned base-10 logarithms of the
client rate, the server rate and tau for each server optimizer (appendix D). AdaBest has one setting
for its three tasks (section 4.1; the rounds are in table 2), without adaptive server optimizers.
FLamby's two tasks have FLamby's rates, except for sgdm; fashion_mnist and cifar100_pfllib have
PFLlib's client rate. The other rates were chosen here.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# The server optimizers that rates were tuned for, in the order of an entry's rates.
ADAPTIVE = ('adagrad', 'adam', 'yogi')
SERVER_OPTIMIZERS = (*ADAPTIVE, 'sgdm', 'sgd')
# The values that are tuned for a task and a server optimizer.
TUNED = ('client_learning_rate', 'server_learning_rate', 'tau')

_SIZES = ('clients_per_round', 'batch_size', 'rounds', 'client_epochs', 'max_examples_per_client')

# Tasks whose data come with a package or are drawn, so that they need no files.
OFFLINE = ('digits', 'digits_skewed', 'least_squares', 'synthetic')

# Rates by server optimizer, and tau by adaptive one, where nothing else is said.
_CLIENT = (-1, -1, -1, -1, -1)
_SERVER = (-1, -2, -2, -0.5, 0)
_TAU = (-2, -3, -3)
_PFLLIB_CLIENT = (math.log10(0.005),) * 5

# In the authors' published code, a client's weight is its number of tokens without padding.
_TOKENS = {'client_weighting': 'tokens'}
_LSTM = {'lstm': 'compiled'}


@dataclasses.dataclass(frozen=True)
class Entry:
  """One task of the catalogue.

  Attributes:
    description: A description in one line.
    loader: 'MODULE.FUNCTION', the function of `tasks` that loads the task.
    rounds: Number of rounds of a full run.
    clients_per_round: The size of a cohort.
    batch_size: Number of examples in a local step.
    log10_rates: log10 of the client rates and the server rates, in the order of SERVER_OPTIMIZERS,
      and of tau, in the order of ADAPTIVE.
    client_rates: Client rates of algorithms, by name, for which another was better than FedAvg's.
    client_epochs: Number of local epochs.
    max_examples_per_client: Largest number of examples used of a client; None for all examples.
    extra: Defaults of further flags of train.py by name, the same for every server optimizer.
    num_clients: Default number of training clients; None if the data decide it.
    metric: Name of the metric to report, such as accuracy.
    compiled: Options, by name, and the values with which the model needs this package's compiled
      operations, which are of float32 and for the graph engine on a CPU.
  """

  description: str
  loader: str
  rounds: int
  clients_per_round: int = 10
  batch_size: int = 20
  log10_rates: tuple[tuple[float, ...], ...] = (_CLIENT, _SERVER, _TAU)
  client_rates: Mapping[str, float] = dataclasses.field(default_factory=dict)
  client_epochs: int = 1
  max_examples_per_client: int | None = None
  extra: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  num_clients: int | None = None
  metric: str = 'accuracy'
  compiled: Mapping[str, str] = dataclasses.field(default_factory=dict)


def _ada_best(
  description: str,
  weight_decay: float = 1e-4,
  num_clients: int | None = None,
  loader: str = 'ada_best.load',
) -> Entry:
  """Returns an entry as in AdaBest, section 4.1; this project chose the server rates but sgd's."""
  extra = {'client_schedule': 'round_decay', 'weight_decay': weight_decay, 'fill_last_batch': True}
  sizes: dict[str, Any] = {'rounds': 1200, 'batch_size': 45, 'client_epochs': 5}
  sizes |= {'log10_rates': (_CLIENT, (-1.5, -2, -2, -0.5, 0), _TAU), 'num_clients': num_clients}
  return Entry(description, loader, **sizes, extra=extra)


_mnist = functools.partial(
  Entry,
  loader='mnist.load',
  rounds=200,
  batch_size=10,
  log10_rates=(_CLIENT, (-1.5, -2, -2, -0.5, 0), _TAU),
)
_pfllib = functools.partial(
  Entry,
  rounds=2000,
  clients_per_round=20,
  batch_size=10,
  log10_rates=(_PFLLIB_CLIENT, _SERVER, _TAU),
  extra={'client_weighting': 'examples'},
  num_clients=20,
)
# From FLamby's `config_*.json`: 100 local steps of all clients; FedAvgM has FedAvg's rates.
_flamby = functools.partial(
  Entry, extra={'local_steps': 100, 'continue_batches': True, 'client_weighting': 'examples'}
)

# The defaults of a user's own task, which are not tuned.
OWN = Entry("a user's own task", '', rounds=100, compiled=_LSTM)


TASKS: Mapping[str, Entry] = MappingProxyType(
  {
    'digits': Entry(
      "scikit-learn's handwritten digits, 60 clients, labels by a Dirichlet distribution; offline",
      'digits.load',
      rounds=150,
      batch_size=10,
      num_clients=60,
      client_rates={'fed_babu': 0.03, 'per_fed_avg': 0.03},  # results/default_rates, after tuning.
    ),
    'emnist_cr': Entry(
      'EMNIST character recognition by writer, CNN with dropout (FedOpt)',
      'emnist.load_recognition',
      rounds=1500,
      log10_rates=((-1.5, -1.5, -1.5, -1.5, -1), (-1, -2.5, -2.5, -0.5, 0), (-2, -4, -4)),
    ),
    'emnist_ae': Entry(
      'EMNIST autoencoder with a code of 30 (FedOpt)',
      'emnist.load_autoencoder',
      rounds=3000,
      log10_rates=((1.5, 1, 1, 0.5, 1), (-1.5, -1.5, -1.5, 0, 0), (-3, -3, -3)),
      metric='mse',
    ),
    'shakespeare': Entry(
      'next character in Shakespeare by role, two LSTMs (FedOpt)',
      'shakespeare.load',
      rounds=1200,
      batch_size=4,
      log10_rates=((0, 0, 0, 0, 0), (-0.5, -2, -2, -0.5, 0), (-1, -3, -3)),
      extra=_TOKENS,
      compiled=_LSTM,
    ),
    'shakespeare_transformer': Entry(
      'next character in Shakespeare by role, transformer of 1.3 million weights (DiLoCo)',
      'shakespeare.load_transformer',
      batch_size=16,
      rounds=50,
      clients_per_round=8,
      log10_rates=((-1, -1, -1, -1, -0.5), _SERVER, _TAU),
    ),
    'stackoverflow_nwp': Entry(
      'next word in Stack Overflow by user, LSTM (FedOpt)',
      'stackoverflow.load_words',
      rounds=1500,
      clients_per_round=50,
      batch_size=16,
      max_examples_per_client=1000,
      log10_rates=((-0.5, -0.5, -0.5, -0.5, -0.5), (-1.5, -2, -2, 0, 0), (-4, -5, -5)),
      extra=_TOKENS,
      metric='accuracy_without_out_of_vocab_or_end_of_sentence',
      compiled=_LSTM,
    ),
    'stackoverflow_lr': Entry(
      'tags of Stack Overflow sentences by user, logistic regression (FedOpt)',
      'stackoverflow.load_tags',
      rounds=1500,
      batch_size=100,
      max_examples_per_client=1000,
      log10_rates=((2, 2, 2, 2, 2), (1, -0.5, -0.5, 0, 0), (-2, -5, -5)),
      metric='recall_at_5',
    ),
    'cifar100': Entry(
      'CIFAR-100 by Pachinko allocation, ResNet-18 with group normalisation (FedOpt)',
      'cifar.load_cifar100',
      rounds=4000,
      log10_rates=((-1, -1.5, -1.5, -1.5, -1), (-1, 0, 0, 0, 0.5), (-2, -1, -1)),
    ),
    'cifar10': Entry(
      'CIFAR-10, labels by Dirichlet(0.1), ResNet-18 with group normalisation (FedOpt)',
      'cifar.load_cifar10',
      rounds=4000,
      log10_rates=((-1.5, -1.5, -1.5, -1.5, -0.5), _SERVER, _TAU),
    ),
    'emnist_letters': _ada_best(
      'the first ten EMNIST letters, MLP 784-100-100-10 (AdaBest)', loader='ada_best.load_letters'
    ),
    'cifar10_cnn': _ada_best('CIFAR-10, CNN of two convolutions (AdaBest)', 1e-3),
    'cifar100_cnn': _ada_best('CIFAR-100, CNN of two convolutions (AdaBest)', 1e-3),
    'mnist_skewed': _ada_best("MNIST digits in AdaBest's partition, MLP 784-100-100-10"),
    'digits_skewed': _ada_best(
      "scikit-learn's digits in AdaBest's partition, MLP 784-100-100-10; offline", num_clients=100
    ),
    'mnist_2nn': _mnist('MNIST, 100 clients of 600, two hidden layers of 200 (FedAvg paper)'),
    'mnist_cnn': _mnist('MNIST, 100 clients of 600, CNN of two convolutions (FedAvg paper)'),
    'fashion_mnist': _pfllib(
      'Fashion-MNIST, 20 clients by Dirichlet(0.1), CNN of two convolutions (PFLlib)',
      'pfllib.load_fashion_mnist',
    ),
    'cifar100_pfllib': _pfllib(
      'CIFAR-100, 20 clients by Dirichlet(0.1), CNN of two convolutions (PFLlib)',
      'pfllib.load_cifar100',
    ),
    'fed_heart': _flamby(
      'heart disease in 4 hospitals, logistic regression (FLamby)',
      'flamby.load_heart',
      rounds=15,
      batch_size=4,
      clients_per_round=4,
      log10_rates=((-2.5, -2, -2.5, -3, -3), (-0.5, -2, -2, 0, 0), (-8, -8, -8)),
      num_clients=4,
    ),
    'fed_tcga_brca': _flamby(
      'survival with breast cancer in 6 regions, Cox model (FLamby)',
      'flamby.load_brca',
      rounds=5,
      batch_size=8,
      clients_per_round=6,
      log10_rates=((-2, -2, -2, -1, -1), (0, -1, -1, 0, 0), (-8, -8, -8)),
      num_clients=6,
      metric='concordance',
    ),
    'synthetic': Entry(
      'synthetic(alpha, beta), 30 clients, logistic regression (LEAF, FedProx paper); offline',
      'synthetic.load',
      rounds=200,
      batch_size=10,
      client_epochs=20,
      log10_rates=((-2, -2, -2, -2, -2), _SERVER, _TAU),
      num_clients=30,
    ),
    'least_squares': Entry(
      'random least squares, unlike clients; the fixed points of algorithms are known exactly',
      'least_squares.load',
      rounds=200,
      clients_per_round=5,
      client_epochs=10,
      num_clients=5,
      metric='loss',
    ),
  }
)


def names() -> list[str]:
  """Returns the names of all tasks, the default one first."""
  return list(TASKS)


def sizes(task: str) -> dict[str, Any]:
  """Returns a task's default settings that do not depend on the server optimizer, by name.

  They are `rounds` and other numbers, and the flags of `extra`. `task` is '' for a user's own task.
  """
  entry = _entry(task)
  return {**{name: getattr(entry, name) for name in _SIZES}, **entry.extra}


def rates(task: str, server_optimizer: str) -> dict[str, float]:
  """Returns default rates, and tau of an adaptive optimizer, by name; see `sizes` for `task`."""
  entry = _entry(task)
  position = SERVER_OPTIMIZERS.index(server_optimizer)
  result = {}
  for name, row in zip(TUNED, entry.log10_rates):
    if position < len(row):  # sgdm and sgd have no tau.
      # Rounded, because 10 to the power of log10(0.005) is 0.004999999999999999.
      result[name] = float(f'{10.0 ** row[position]:.10g}')
  return result


def client_rate(task: str, algorithm: str) -> float:
  """Returns the default client rate of an algorithm by name, which is FedAvg's for most."""
  of_algorithm = _entry(task).client_rates.get(algorithm)
  if of_algorithm is not None:
    return of_algorithm
  return rates(task, 'sgd')['client_learning_rate']


def num_clients(task: str, options: Mapping[str, Any]) -> int | None:
  """Returns a task's number of training clients, or None if `options` or the data decide it."""
  if 'num_clients' in options or 'partition' in options:
    return None
  return _entry(task).num_clients


def metric(task: str) -> str | None:
  """Returns the metric of a task, or None for a name that is not in `TASKS`."""
  if task not in TASKS:
    return None
  return TASKS[task].metric


def compiled_option(task: str, options: Mapping[str, Any]) -> str:
  """Returns the option, NAME=VALUE, that makes a task's model a compiled one; '' if there is none.

  See `Entry.compiled`. `task` is '' for a user's own task.
  """
  for name, value in _entry(task).compiled.items():
    if options.get(name) == value:
      return f'{name}={value}'
  return ''


def _entry(task: str) -> Entry:
  return TASKS[task] if task else OWN
