"""APPFL: its aggregators, given the models of the clients, in float64."""

from typing import Any

from appfl.algorithm import aggregator
from omegaconf import DictConfig

from research.peers import problem, torch_problem
from research.peers.torch_problem import torch


def _rounds(name: str, kind: Any, scale: float = 1.0, **options: Any) -> Any:
  """The models of an aggregator; `scale` is for one without a server rate."""
  settings = DictConfig({'client_weights_mode': 'sample_size', **options})
  server = kind(torch_problem.Linear(), settings)
  for i, client in enumerate(problem.CLIENTS):
    server.set_client_sample_size(i, len(client['y']))
  x = torch.tensor(problem.START)
  seen = []
  for one in problem.CASES[name]:
    sent = {}
    for client in problem.sent(one):
      update = torch.tensor(client['update'])
      sent[client['client']] = {'weight': x - scale * update}
    x = server.aggregate(sent)['weight']
    seen.append(x.tolist())
  return seen


def models() -> problem.Models:
  """The models by each aggregator."""
  values: dict[str, Any] = {
    'server_learning_rate': problem.RATE,
    'server_adapt_param': problem.TAU,
    'server_momentum_param_1': problem.BETAS[0],
    'server_momentum_param_2': problem.BETAS[1],
  }
  no_momentum = {**values, 'server_momentum_param_1': 0.0}
  momentum = {'server_momentum_param_1': 0.9}
  return {
    'fed_avg': _rounds('fed_avg', aggregator.FedAvgAggregator),
    'fed_avgm': _rounds('fed_avgm', aggregator.FedAvgMAggregator, 0.5, **momentum),
    'fed_adagrad': _rounds('fed_adagrad', aggregator.FedAdagradAggregator, **no_momentum),
    'fed_adam': _rounds('fed_adam', aggregator.FedAdamAggregator, **values),
    'fed_yogi': _rounds('fed_yogi', aggregator.FedYogiAggregator, **values),
  }
