"""Rounds of the program of "Fair Resource Allocation in Federated Learning" (Li et al., 2020).

usage: PYTHON -m research.peers.fair_rounds SOURCE PROBLEM.npz WEIGHTS.npz

SOURCE is a checkout of litian96/fair_flearn. Its trainers, which hold what is to be compared, run
as they stand. Their model is of TensorFlow 1, which no supported Python has, so that they get a
logistic regression in NumPy instead. PROBLEM.npz has the examples of both parts with their
clients, the initial weights and the settings; WEIGHTS.npz gets the weights after the last round.
"""

import importlib
import sys
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_TRAIN, _TEST = 'train', 'test'


class LogisticRegression:
  """What the trainers call of a model. Data are the numbers of rows of all examples."""

  size = 0  # Only counted, as `flops`.
  flops = 0

  def __init__(self, x: np.ndarray, y: np.ndarray, weights: Sequence[np.ndarray]):
    self._x = x
    self._y = y
    self._weights = [np.array(value) for value in weights]

  def set_params(self, weights: Sequence[np.ndarray]) -> None:
    """Takes weights."""
    self._weights = [np.array(value) for value in weights]

  def get_params(self) -> list[np.ndarray]:
    """Returns copies of the weights, which the trainers change in place."""
    return [value.copy() for value in self._weights]

  def _probabilities(self, rows: np.ndarray) -> np.ndarray:
    kernel, bias = self._weights
    logits = self._x[rows] @ kernel + bias
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)

  def solve_sgd(self, batch: tuple[Sequence[int], Any]) -> tuple[list[np.ndarray], float, None]:
    """Returns the gradients and the mean loss; the trainers do not use the weights after a step."""
    rows = np.asarray(batch[0])
    probabilities = self._probabilities(rows)
    of_labels = np.arange(len(rows)), self._y[rows]
    loss = -np.log(probabilities[of_labels]).mean()
    by_logits = probabilities.copy()
    by_logits[of_labels] -= 1
    by_logits /= len(rows)
    return [self._x[rows].T @ by_logits, by_logits.sum(axis=0)], loss, None

  def test(self, data: Mapping[str, Sequence[int]]) -> tuple[int, float]:
    """Returns the number of right predictions, and no loss."""
    rows = np.asarray(data['x'])
    return int((self._probabilities(rows).argmax(axis=1) == self._y[rows]).sum()), 0.0

  def close(self) -> None:
    """Does nothing."""


def _without_tensorflow() -> types.ModuleType:
  """Returns a module with the few names of TensorFlow that the trainers ask for."""
  module = types.ModuleType('tensorflow')
  optimizers = dict.fromkeys(('GradientDescentOptimizer', 'AdagradOptimizer'), lambda rate: None)
  vars(module)['train'] = types.SimpleNamespace(**optimizers)
  vars(module)['reset_default_graph'] = lambda: None
  return module


def _examples(problem: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, tuple[Any, ...]]:
  """Returns the inputs and targets of both parts in one, and the clients' rows as the data set."""
  rows: dict[str, dict[str, dict[str, list[int]]]] = {_TRAIN: {}, _TEST: {}}
  start = 0
  for part, by_client in rows.items():
    clients = problem[f'client_{part}']
    for name in np.unique(clients):
      of_client = (start + np.flatnonzero(clients == name)).tolist()
      by_client[str(name)] = {'x': of_client, 'y': list(of_client)}
    start += len(clients)
  x = np.concatenate([problem['x_train'], problem['x_test']]).astype(np.float64)
  y = np.concatenate([problem['y_train'], problem['y_test']])
  return x, y, (sorted(rows[_TRAIN]), [], rows[_TRAIN], rows[_TEST])


def main(arguments: Sequence[str]) -> None:
  """Runs the command."""
  source, problem_path, weights_path = arguments
  sys.modules['tensorflow'] = _without_tensorflow()
  sys.path.insert(0, source)
  with np.load(problem_path) as file:
    problem = {name: file[name] for name in file.files}
  rounds = int(problem['rounds'])
  x, y, clients = _examples(problem)
  trainer = importlib.import_module(f'flearn.trainers.{problem["trainer"]}')

  def learner(*unused: Any) -> LogisticRegression:
    del unused
    return LogisticRegression(x, y, (problem['kernel'], problem['bias']))

  settings = {
    'q': float(problem['q']),
    'learning_rate': float(problem['learning_rate']),
    'learning_rate_lambda': float(problem['lambda_rate']),
    'num_rounds': rounds - 1,  # It trains one round more than that.
    'clients_per_round': len(clients[0]),
    # With 2, which its README gives, its mean has the weight 1 in place of AFL's lambda.
    'sampling': 1,
    'data_partition_seed': 0,  # The parts stay as they are.
    'static_step_size': 0,
    'eval_every': rounds,
    'log_interval': 2 * rounds,
    'track_individual_accuracy': 0,
    'seed': 0,
    'model_params': (),
    'output': '',
  }
  server = trainer.Server(settings, learner, clients)
  server.train()
  kernel, bias = server.latest_model
  np.savez(weights_path, kernel=kernel, bias=bias)


if __name__ == '__main__':
  main(sys.argv[1:])
