"""pfl-research: simulations in float32; its server optimizers are PyTorch's, in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from research.peers import problem, torch_problem  # isort: skip  # Before torchvision.

from pfl import algorithm
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints, WeightByUser
from pfl.algorithm import base, scaffold
from pfl.callback.base import TrainingProcessCallback
from pfl.data import user_state
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.hyperparam.base import HyperParam
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel

from research.peers.torch_problem import torch

torch.set_default_dtype(torch.float32)


class Seen(TrainingProcessCallback):
  """Keeps the model after each round."""

  def __init__(self) -> None:
    self.rounds: list[list[float]] = []

  def after_central_iteration(self, metrics: Any, model: Any, **others: Any) -> Any:
    self.rounds.append(torch_problem.weights(model.pytorch_model))
    return False, Metrics()


class ByRound(HyperParam):
  """A value for each round."""

  def __init__(self, seen: Seen, values: list[Any]) -> None:
    self.seen = seen
    self.values = [*values, values[-1]]  # It asks once more at the end.

  def value(self) -> Any:
    return self.values[len(self.seen.rounds)]


class Steps(Dataset):
  """A client with the batches of a round; SCAFFOLD computes its steps from its length."""

  def __init__(self, member: Any, length: int) -> None:
    self.batches = [
      [torch.tensor(x, dtype=torch.float32), _labels(y)] for x, y in problem.batches(member)
    ]
    super().__init__([torch.cat(part) for part in zip(*self.batches)], str(member['client']))
    self.length = length

  def __len__(self) -> int:
    return self.length

  def iter(self, batch_size: int | None) -> Iterator[Any]:
    return iter(self.batches)


def _labels(y: Any) -> Any:
  if problem.IS_LOGISTIC:
    return torch.tensor(y)
  return torch.tensor(y, dtype=torch.float32)


def _datasets(name: str) -> Iterator[Steps]:
  """The clients of all rounds, in order."""
  for one in problem.rounds(name):
    for member in problem.sent(one):
      length = 4 * member['steps'] // problem.EPOCHS
      if problem.is_by_examples(name):
        length = problem.EXAMPLES[member['client']]
      yield Steps(member, length)


def _rounds(name: str, kind: Any, settings: Any, weights: list[Any], **options: Any) -> Any:
  module = torch_problem.Linear().float()
  loss = torch_problem.loss()
  module.loss = lambda x, y: loss(module(x), y)
  module.metrics = lambda x, y: {}
  rounds = problem.rounds(name)
  seen = Seen()
  sizes = ByRound(seen, [len(problem.sent(one)) for one in rounds])
  rates = ByRound(seen, [one['client_rate'] for one in rounds])
  datasets = _datasets(name)
  clients = FederatedDataset(lambda _: next(datasets), lambda: None)
  common = {'central_num_iterations': len(rounds), 'evaluation_frequency': 10**9}
  kind().run(
    settings(train_cohort_size=sizes, val_cohort_size=0, **common, **options),
    SimulatedBackend(clients, clients, weights),
    PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
    NNTrainHyperParams(
      local_num_epochs=problem.EPOCHS, local_learning_rate=rates, local_batch_size=4
    ),
    callbacks=[seen],
    send_metrics_to_platform=False,
  )
  return seen.rounds


def _weights(name: str) -> list[Any]:
  if problem.is_by_examples(name):
    return [WeightByDatapoints()]
  return [WeightByUser()]


def _averaged(name: str) -> Any:
  return _rounds(name, algorithm.FederatedAveraging, base.NNAlgorithmParams, _weights(name))


def _proximal(name: str) -> Any:
  mu = problem.value(name, 'mu')
  return _rounds(name, algorithm.FedProx, algorithm.FedProxParams, _weights(name), mu=mu)


def _scaffold(name: str) -> Any:
  control = {
    'population': len(problem.CLIENTS),
    'use_gradient_as_control_variate': False,
    'user_state_storage': user_state.InMemoryUserStateStorage(),
  }
  return _rounds(name, scaffold.SCAFFOLD, scaffold.SCAFFOLDParams, [], **control)


def _server(name: str, kind: Any, **values: Any) -> Any:
  weights = torch.nn.Parameter(torch.tensor(problem.START))
  optimizer = kind([weights], lr=problem.of_server(name)['rate'], **values)

  def step(state: None, x: np.ndarray, d: np.ndarray) -> Any:
    weights.data[:] = torch.tensor(x)
    weights.grad = torch.tensor(d)
    optimizer.step()
    return state, weights.detach().numpy()

  return problem.server(name, step)


def models() -> problem.Models:
  """The models by each algorithm."""
  return problem.models_by(
    {
      'fed_avg': _averaged,
      'fed_prox': _proximal,
      'scaffold': _scaffold,
      **torch_problem.optimizers(_server),
    }
  )
