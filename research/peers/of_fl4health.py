"""FL4Health: its clients' `fit` and its strategies' `aggregate_fit`, in float64."""

import logging
import pathlib
from typing import Any

import numpy as np

from research.peers import problem, torch_problem  # isort: skip  # Before torchvision.
from research.peers.torch_problem import torch  # isort: skip

from fl4health.clients.apfl_client import ApflClient
from fl4health.clients.basic_client import BasicClient
from fl4health.clients.ditto_client import DittoClient
from fl4health.clients.fed_prox_client import FedProxClient
from fl4health.clients.scaffold_client import ScaffoldClient
from fl4health.model_bases.apfl_base import ApflModule
from fl4health.strategies.basic_fedavg import BasicFedAvg
from fl4health.strategies.fedavg_with_adaptive_constraint import FedAvgWithAdaptiveConstraint
from fl4health.strategies.scaffold import Scaffold
from flwr import common

logging.disable(logging.CRITICAL)


class Data:
  """The batches of a round's pass, as much of a DataLoader as the clients use."""

  def __init__(self, number: int) -> None:
    self.batches: list[Any] = []
    self.dataset = problem.arrays(number)[1]
    self.batch_size = 4

  def __iter__(self) -> Any:
    return iter(self.batches)

  def __len__(self) -> int:
    return len(self.batches)


def _clients(kind: Any, alpha: float | None = None) -> list[Any]:
  """A client of each number, whose user's part is the vectors' problem."""

  class OfVectors(kind):
    """What a user of FL4Health writes."""

    number = 0

    def get_model(self, config: Any) -> Any:
      if kind is ApflClient:
        return ApflModule(torch_problem.Linear(), adaptive_alpha=False, alpha=alpha)
      return torch_problem.Linear()

    def get_data_loaders(self, config: Any) -> Any:
      return Data(self.number), Data(self.number)

    def get_optimizer(self, config: Any) -> Any:
      models = {'global': self.model}
      if kind is ApflClient:
        models = {'global': self.model.global_model, 'local': self.model.local_model}
      if kind is DittoClient:
        models = {'global': self.global_model, 'local': self.model}
      optimizers = {  # Their rate is set in each round.
        name: torch.optim.SGD(model.parameters(), lr=0.0) for name, model in models.items()
      }
      if len(optimizers) == 1:
        return optimizers['global']
      return optimizers

    def get_criterion(self, config: Any) -> Any:
      return torch_problem.loss()

  clients = []
  for number in range(len(problem.CLIENTS)):
    client = OfVectors(pathlib.Path(), [], torch.device('cpu'))
    client.number = number
    clients.append(client)
  return clients


def _rounds(name: str, clients: list[Any], strategy: Any, others: list[Any]) -> Any:
  """The models of a strategy's rounds; `others` is what clients are sent beside the model."""
  count = len(problem.SHAPES)
  sent = [*_start(), *others]
  seen = []
  for t, one in enumerate(problem.rounds(name), 1):
    members = problem.sent(one)
    results = []
    for member in members:
      client = clients[member['client']]
      config = {'current_server_round': t, 'local_epochs': problem.EPOCHS}
      if not client.initialized:
        client.setup_client(config)
      client.train_loader.batches = torch_problem.batches(member)
      client.learning_rate = one['client_rate']  # SCAFFOLD's own copy.
      for optimizer in client.optimizers.values():
        for group in optimizer.param_groups:
          group['lr'] = one['client_rate']
      arrays, examples, _ = client.fit(sent, config)
      status = common.Status(common.Code.OK, '')
      parameters = common.ndarrays_to_parameters(arrays)
      results.append((None, common.FitRes(status, parameters, examples, {})))
    strategy.fraction_fit = len(members) / len(clients)  # SCAFFOLD takes |S| / N from it.
    new, _ = strategy.aggregate_fit(t, results, [])
    sent = common.parameters_to_ndarrays(new)
    seen.append(problem.flat(sent[:count]))
  return seen


def _start() -> list[Any]:
  return [np.array(one) for one in problem.tensors(problem.START).values()]


def _averaged(name: str) -> Any:
  strategy = BasicFedAvg(weighted_aggregation=problem.is_by_examples(name))
  return _rounds(name, _clients(BasicClient), strategy, [])


def _constrained(name: str, kind: Any, weight: float) -> Any:
  """FedProx and Ditto."""
  strategy = FedAvgWithAdaptiveConstraint(
    initial_parameters=common.ndarrays_to_parameters(_start()),
    initial_loss_weight=weight,
    adapt_loss_weight=False,
    weighted_aggregation=problem.is_by_examples(name),
  )
  return _rounds(name, _clients(kind), strategy, [np.array(weight)])


def _scaffold(name: str) -> Any:
  zeros = [0 * one for one in _start()]
  strategy = Scaffold(
    initial_parameters=common.ndarrays_to_parameters(_start()),
    initial_control_variates=common.ndarrays_to_parameters(zeros),
  )
  return _rounds(name, _clients(ScaffoldClient), strategy, zeros)


def _apfl(name: str) -> Any:
  """APFL, whose clients are sent a model that stands for their own too."""
  strategy = BasicFedAvg(weighted_aggregation=problem.is_by_examples(name))
  clients = _clients(ApflClient, problem.value(name, 'alpha_mix'))
  return _rounds(name, clients, strategy, _start())


def models() -> problem.Models:
  """The models by each algorithm."""
  return problem.models_by(
    {
      'fed_avg': _averaged,
      'fed_prox': lambda name: _constrained(name, FedProxClient, problem.value(name, 'mu')),
      'scaffold': _scaffold,
      'ditto': lambda name: _constrained(name, DittoClient, problem.value(name, 'lam')),
      'apfl': _apfl,
    }
  )
