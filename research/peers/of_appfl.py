"""APPFL: its aggregators, given the models of the clients, in float64."""

from collections.abc import Callable
from typing import Any

from appfl.algorithm import aggregator
from omegaconf import DictConfig

from research.peers import problem, torch_problem


def _rounds(name: str, kind: Any, scale: float = 1.0, **options: Any) -> Any:
  """The models of an aggregator; `scale` is for one without a server rate."""
  mode = 'sample_size' if problem.is_by_examples(name) else 'equal'
  settings = DictConfig({'client_weights_mode': mode, **options})
  server = kind(torch_problem.Linear(), settings)
  for i, examples in enumerate(problem.EXAMPLES):
    server.set_client_sample_size(i, examples)
  x = torch_problem.tensors(problem.START)
  seen = []
  for one in problem.rounds(name):
    sent = {}
    for client in problem.sent(one):
      updates = torch_problem.tensors(client['update'])
      sent[client['client']] = {tensor: x[tensor] - scale * updates[tensor] for tensor in x}
    x = server.aggregate(sent)
    seen.append(torch_problem.weights(x))
  return seen


def _momentum(name: str) -> Any:
  values = problem.of_server(name)
  momentum = {'server_momentum_param_1': values['momentum']}
  return _rounds(name, aggregator.FedAvgMAggregator, values['rate'], **momentum)


def _adaptive(kind: Any) -> Callable[[str], Any]:
  def run(name: str) -> Any:
    values = problem.of_server(name)
    options = {
      'server_learning_rate': values['rate'],
      'server_adapt_param': values['tau'],
      'server_momentum_param_1': values['beta1'],
      'server_momentum_param_2': values.get('beta2', 0.0),
    }
    return _rounds(name, kind, **options)

  return run


def models() -> problem.Models:
  """The models by each aggregator."""
  return problem.models_by(
    {
      'fed_avg': lambda name: _rounds(name, aggregator.FedAvgAggregator),
      'fed_avgm': _momentum,
      'fed_adagrad': _adaptive(aggregator.FedAdagradAggregator),
      'fed_adagrad-momentum': _adaptive(aggregator.FedAdagradAggregator),
      'fed_adam': _adaptive(aggregator.FedAdamAggregator),
      'fed_yogi': _adaptive(aggregator.FedYogiAggregator),
    }
  )
