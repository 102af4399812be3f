"""Flower: the strategies' `aggregate_fit`, given the models of the clients, in float64."""

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr import common
from flwr.server import strategy

from research.peers import problem


def _rounds(name: str, flower_strategy: Any) -> Any:
  """The models of a strategy."""
  x = [*problem.tensors(problem.START).values()]
  seen = []
  for t, one in enumerate(problem.rounds(name), 1):
    results = []
    for client in problem.sent(one):
      updates = problem.tensors(client['update']).values()
      model = common.ndarrays_to_parameters([a - b for a, b in zip(x, updates)])
      status = common.Status(common.Code.OK, '')
      weight = problem.weight(name, client['client'])
      results.append((None, common.FitRes(status, model, weight, {})))
    x = common.parameters_to_ndarrays(flower_strategy.aggregate_fit(t, results, [])[0])
    seen.append(problem.flat(x))
  return seen


def _first() -> dict[str, Any]:
  tensors = [np.array(one) for one in problem.tensors(problem.START).values()]
  return {'initial_parameters': common.ndarrays_to_parameters(tensors)}


def _momentum(name: str) -> Any:
  values = problem.of_server(name)
  options = {'server_learning_rate': values['rate'], 'server_momentum': values['momentum']}
  return _rounds(name, strategy.FedAvgM(**options, **_first()))


def _adaptive(kind: Any, has_moments: bool = True) -> Callable[[str], Any]:
  def run(name: str) -> Any:
    values = problem.of_server(name)
    options = {'eta': values['rate'], 'tau': values['tau']}
    if has_moments:
      options |= dict(zip(('beta_1', 'beta_2'), problem.betas(name)))
    return _rounds(name, kind(**options, **_first()))

  return run


def models() -> problem.Models:
  """The models by each strategy."""
  return problem.models_by(
    {
      'fed_avg': lambda name: _rounds(name, strategy.FedAvg()),
      'fed_avgm': _momentum,
      'fed_adagrad': _adaptive(strategy.FedAdagrad, False),
      'fed_adam': _adaptive(strategy.FedAdam),
      'fed_yogi': _adaptive(strategy.FedYogi),
    }
  )
