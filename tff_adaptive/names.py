"""The public names: algorithms, server optimizers and schedules, as plain data.

This module imports neither TensorFlow nor TensorFlow Federated, so that a command line can list
and check names at once.
"""

import difflib
from collections.abc import Iterable
from types import MappingProxyType
from typing import NamedTuple


class Algorithm(NamedTuple):
  """What a reader of a list of algorithms needs to know about one.

  Attributes:
    description: One line, without a full stop.
    is_stateful: Whether clients keep something between the rounds they take part in.
  """

  description: str
  is_stateful: bool


ALGORITHMS = MappingProxyType(
  {
    'fed_avg': Algorithm('average of the client models (server SGD, rate 1)', False),
    'fed_avgm': Algorithm('FedAvg with momentum on the server', False),
    'fed_adagrad': Algorithm('Algorithm 2 with Adagrad on the server', False),
    'fed_adam': Algorithm('Algorithm 2 with Adam on the server', False),
    'fed_yogi': Algorithm('Algorithm 2 with Yogi on the server', False),
    'fed_prox': Algorithm('FedAvg with a proximal term in the client loss', False),
    'scaffold': Algorithm('client and server control variates, both exchanged', True),
    'scaffold_m': Algorithm('SCAFFOLD sending half as much from the clients', True),
    'fed_dyn': Algorithm('dynamic regularisation of the client losses', True),
    'ada_best': Algorithm('drift estimates that fade when a client is away', True),
  }
)

SERVER_OPTIMIZERS = MappingProxyType(
  {
    'sgd': 'x + eta Delta',
    'sgdm': 'SGD with momentum',
    'adagrad': 'v grows by Delta^2',
    'adam': 'v is a moving average of Delta^2',
    'yogi': 'v moves towards Delta^2 by at most (1 - beta2) Delta^2',
  }
)

SCHEDULES = MappingProxyType(
  {
    'constant': 'the base rate in every round',
    'inv_sqrt': 'base rate / sqrt(t + 1)',
    'exp_decay': 'base rate x 0.1 every 500 rounds, a staircase',
    'round_decay': 'base rate x 0.998 each round',
    'diminishing': 'base rate x gamma / (gamma + local steps so far)',
  }
)


def nearest(name: str, names: Iterable[str]) -> list[str]:
  """Returns the names most like a mistyped one.

  Args:
    name: What was typed. Case, and '-' for '_', do not matter.
    names: The valid names.

  Returns:
    At most three of `names`, the most alike first; empty where none is alike.
  """
  plain = {_plain(valid): valid for valid in names}
  return [plain[match] for match in difflib.get_close_matches(_plain(name), plain, n=3)]


def unknown(kind: str, name: str, names: Iterable[str]) -> str:
  """Returns the one-line error for a name that is not among the valid ones.

  Args:
    kind: What is named, e.g. 'algorithm'.
    name: What was typed.
    names: The valid names.

  Returns:
    A sentence with the value, the nearest names if there are any, and all the valid names.
  """
  names = list(names)
  close = nearest(name, names)
  hint = f' Did you mean {" or ".join(close)}?' if close else ''
  return f'unknown {kind} {name!r}.{hint} Choose one of: {", ".join(names)}.'


def _plain(name: str) -> str:
  """Returns a name as it is compared: without case, '-', '_' and spaces."""
  return ''.join(letter for letter in name.lower() if letter not in '-_ ')
