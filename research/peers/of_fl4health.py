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
  """The batches of one pass, as much of a DataLoader as the clients use."""

  def __init__(self, client: int) -> None:
    self.batches = torch_problem.batches(client)
    self.dataset = problem.arrays(client)[1]
    self.batch_size = 4

  def __iter__(self) -> Any:
    return iter(self.batches)

  def __len__(self) -> int:
    return len(self.batches)


def _clients(kind: Any) -> list[Any]:
  """A client of each number, whose user's part is the vectors' problem."""

  class OfVectors(kind):
    """What a user of FL4Health writes."""

    number = 0

    def get_model(self, config: Any) -> Any:
      if kind is ApflClient:
        return ApflModule(torch_problem.Linear(), adaptive_alpha=False, alpha=0.4)
      return torch_problem.Linear()

    def get_data_loaders(self, config: Any) -> Any:
      return Data(self.number), Data(self.number)

    def get_optimizer(self, config: Any) -> Any:
      models = {'global': self.model}
      if kind is ApflClient:
        models = {'global': self.model.global_model, 'local': self.model.local_model}
      if kind is DittoClient:
        models = {'global': self.global_model, 'local': self.model}
      optimizers = {
        name: torch.optim.SGD(model.parameters(), lr=problem.RATE) for name, model in models.items()
      }
      if len(optimizers) == 1:
        return optimizers['global']
      return optimizers

    def get_criterion(self, config: Any) -> Any:
      return torch_problem.HalfSquare()

  clients = []
  for number in range(len(problem.CLIENTS)):
    client = OfVectors(pathlib.Path(), [], torch.device('cpu'))
    client.number = number
    clients.append(client)
  return clients


def _rounds(name: str, kind: Any, strategy: Any, first: list[Any]) -> Any:
  """The models of a strategy's rounds with clients of a kind; `first` is what they are sent."""
  clients = _clients(kind)
  sent = first
  seen = []
  for t, members in enumerate(problem.members(name), 1):
    results = []
    for i in members:
      config = {'current_server_round': t, 'local_epochs': problem.EPOCHS}
      arrays, examples, _ = clients[i].fit(sent, config)
      status = common.Status(common.Code.OK, '')
      parameters = common.ndarrays_to_parameters(arrays)
      results.append((None, common.FitRes(status, parameters, examples, {})))
    strategy.fraction_fit = len(members) / len(clients)  # SCAFFOLD takes |S| / N from it.
    new, _ = strategy.aggregate_fit(t, results, [])
    sent = common.parameters_to_ndarrays(new)
    seen.append(sent[0].tolist())
  return seen


def models() -> problem.Models:
  """The models by each algorithm."""
  start = problem.START
  initial = common.ndarrays_to_parameters([start])
  zero = common.ndarrays_to_parameters([0 * start])
  scaffold = Scaffold(initial_parameters=initial, initial_control_variates=zero)

  def constrained(weight: float, by_examples: bool) -> Any:
    return FedAvgWithAdaptiveConstraint(
      initial_parameters=common.ndarrays_to_parameters([start]),
      initial_loss_weight=weight,
      adapt_loss_weight=False,
      weighted_aggregation=by_examples,
    )

  uniform = BasicFedAvg(weighted_aggregation=False)
  return {
    'fed_avg': _rounds('fed_avg', BasicClient, BasicFedAvg(), [start]),
    'fed_prox': _rounds('fed_prox', FedProxClient, constrained(0.5, True), [start, np.array(0.5)]),
    'scaffold': _rounds('scaffold', ScaffoldClient, scaffold, [start, 0 * start]),
    'ditto': _rounds('ditto', DittoClient, constrained(0.3, False), [start, np.array(0.3)]),
    'apfl': _rounds('apfl', ApflClient, uniform, [start, start]),
  }
