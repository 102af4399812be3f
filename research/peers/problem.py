"""The test vectors' problem for a program in another library's environment: NumPy alone."""

import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from research.peers import cases

FILE = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding='utf-8'))
SHAPES = {name: tuple(shape) for name, shape in FILE['problem']['tensors'].items()}
IS_LOGISTIC = FILE['problem']['loss'] == 'logistic'
CLIENTS = FILE['problem']['clients']
EXAMPLES = [len(client['y']) for client in CLIENTS]
START = np.array(FILE['problem']['initial'])
CASES = {case['name']: case for case in FILE['cases']}

Models = dict[str, list[list[float]]]


def _stops_early(case: Any) -> bool:
  clients = [client for one in case['rounds'] for client in one['clients']]
  return any(c['steps'] < len(CLIENTS[c['client']]['batches']) for c in clients)


# A client's steps are two passes. Where clients stop early, their steps are one pass of their own.
EPOCHS = 1 if any(map(_stops_early, CASES.values())) else 2


def rounds(name: str) -> list[Any]:
  """The rounds of a case."""
  return CASES[name]['rounds']


def sent(one: Any) -> list[Any]:
  """The clients of a round whose update counts."""
  return [client for client in one['clients'] if client['update'] is not None]


def is_by_examples(name: str) -> bool:
  """Whether the clients' mean is weighted by their examples."""
  return CASES[name]['client_weighting'] == 'examples'


def weight(name: str, number: int) -> int:
  """What a client counts for in the mean: its examples, or 1."""
  if is_by_examples(name):
    return EXAMPLES[number]
  return 1


def value(name: str, option: str) -> Any:
  """A hyperparameter of a case."""
  return CASES[name]['hyperparameters'][option]


def of_server(name: str) -> dict[str, Any]:
  """The values of a case's server optimizer."""
  return CASES[name]['server_optimizer']


def betas(name: str) -> tuple[float, float]:
  """The two rates of moments of a case's server optimizer."""
  return of_server(name)['beta1'], of_server(name)['beta2']


def mu(name: str, number: int) -> float:
  """The weight of FedDyn's regulariser at a client."""
  if value(name, 'scale_mu'):
    return value(name, 'mu') * float(np.mean(EXAMPLES)) / EXAMPLES[number]
  return value(name, 'mu')


def models_by(
  algorithms: Mapping[str, Callable[[str], list[list[float]]]], has_uniform: bool = True
) -> Models:
  """The models of the cases whose algorithm a library has: its functions take a case's name.

  Without `has_uniform` it always weights the clients' mean by their examples.
  """
  done = {}
  for name, case in CASES.items():
    kind = cases.algorithm(case)
    if kind is not None and kind in algorithms and (has_uniform or is_by_examples(name)):
      done[name] = algorithms[kind](name)
  return done


def arrays(number: int) -> tuple[np.ndarray, np.ndarray]:
  """The examples of the client of this number."""
  return np.array(CLIENTS[number]['x']), np.array(CLIENTS[number]['y'])


def batches(client: Any) -> list[tuple[np.ndarray, np.ndarray]]:
  """The batches of one pass of a client in a round."""
  x, y = arrays(client['client'])
  positions = CLIENTS[client['client']]['batches'][: client['steps'] // EPOCHS]
  return [(x[one], y[one]) for one in positions]


def tensors(weights: Any) -> dict[str, np.ndarray]:
  """The tensors of a list of all weights."""
  ends = np.cumsum([int(np.prod(shape)) for shape in SHAPES.values()])
  parts = np.split(np.asarray(weights), ends[:-1])
  return {name: part.reshape(SHAPES[name]) for name, part in zip(SHAPES, parts)}


def flat(values: Any) -> list[float]:
  """A list of all weights of tensors in the order of the file."""
  return np.concatenate([np.ravel(one) for one in values]).tolist()


def updates(name: str) -> Iterator[np.ndarray]:
  """The mean update of each round."""
  for one in rounds(name):
    yield sum(c['weight'] * np.array(c['update']) for c in sent(one))


def server(
  name: str, step: Callable[[Any, np.ndarray, np.ndarray], Any], state: Any = None
) -> list[list[float]]:
  """The models by a server optimizer, (state, x, D) -> (state, x)."""
  x = START
  seen = []
  for d in updates(name):
    state, new = step(state, x, d)
    x = np.array(new)
    seen.append(x.tolist())
  return seen
