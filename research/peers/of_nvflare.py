"""NVFlare: its aggregation of models and controls, its FedOpt, and its helpers of clients."""

import copy
from typing import Any

from nvflare.apis.fl_constant import FLMetaKey
from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper
from nvflare.app_common.app_constant import AlgorithmConstants
from nvflare.app_common.workflows.scaffold import scaffold_aggregate_fn
from nvflare.app_opt.pt.fedopt import PTFedOptModelShareableGenerator
from nvflare.app_opt.pt.fedproxloss import PTFedProxLoss
from nvflare.app_opt.pt.scaffold import PTScaffoldHelper

from research.peers import problem, torch_problem
from research.peers.torch_problem import torch

HALF_SQUARE = torch_problem.HalfSquare()


def _descend(model: Any, client: int, extra: Any = None, after: Any = None) -> None:
  """The steps that NVFlare leaves to its user's script, with a further loss or a call."""
  optimizer = torch.optim.SGD(model.parameters(), lr=problem.RATE)
  for _ in range(problem.EPOCHS):
    for x, y in torch_problem.batches(client):
      optimizer.zero_grad()
      loss = HALF_SQUARE(model(x), y)
      if extra is not None:
        loss = loss + extra(model)
      loss.backward()
      optimizer.step()
      if after is not None:
        after(model)


def _averaged(name: str, mu: float = 0.0) -> Any:
  """FedAvg and FedProx."""
  model = torch_problem.Linear()
  proximal = PTFedProxLoss(mu)
  seen = []
  for t, members in enumerate(problem.members(name)):
    helper = WeightedAggregationHelper()
    for i in members:
      local = copy.deepcopy(model)
      extra = None
      if mu:
        extra = lambda one, received=model: proximal(one, received)  # noqa: E731
      _descend(local, i, extra)
      helper.add(local.state_dict(), len(problem.CLIENTS[i]['y']), str(i), t)
    model.load_state_dict(helper.get_result())
    seen.append(torch_problem.weights(model))
  return seen


def _scaffold() -> Any:
  model = torch_problem.Linear()
  control = {'weight': torch.zeros_like(model.weight.detach())}
  helpers: dict[int, Any] = {}
  locals_: dict[int, Any] = {}
  seen = []
  for t, members in enumerate(problem.members('scaffold')):
    results = []
    for i in members:
      local = locals_.setdefault(i, torch_problem.Linear())
      local.load_state_dict(model.state_dict())
      if i not in helpers:
        helpers[i] = PTScaffoldHelper()
        helpers[i].init(local)
      helper = helpers[i]
      helper.load_global_controls(control)
      of_server, of_client = helper.get_params()
      _descend(
        local,
        i,
        after=lambda one, helper=helper, c=of_server, c_i=of_client: helper.model_update(
          one, problem.RATE, c, c_i
        ),
      )
      helper.terms_update(local, problem.RATE, of_server, of_client, model)
      difference = local.weight.detach() - model.weight.detach()
      meta = {
        FLMetaKey.NUM_STEPS_CURRENT_ROUND: 1,  # Equal weights, as in the case.
        AlgorithmConstants.SCAFFOLD_CTRL_DIFF: helper.get_delta_controls(),
        'client_name': str(i),
      }
      parameters = {'weight': difference.numpy()}
      results.append(FLModel(ParamsType.DIFF, parameters, current_round=t, meta=meta))
    mean = scaffold_aggregate_fn(results)
    changes = mean.meta[AlgorithmConstants.SCAFFOLD_CTRL_DIFF]
    model.weight.data += torch.as_tensor(mean.params['weight'])
    control = {'weight': control['weight'] + torch.as_tensor(changes['weight'])}
    seen.append(torch_problem.weights(model))
  return seen


def _server(name: str, optimizer: Any, **values: Any) -> Any:
  """FedOpt, which makes its optimizer when a job starts, and then updates by `server_update`."""
  model = torch_problem.Linear()
  generator = PTFedOptModelShareableGenerator(source_model=model, device='cpu')
  generator.model = model
  generator.optimizer = optimizer(model.parameters(), **values)

  def step(state: None, x: Any, d: Any) -> Any:
    state_dict, _ = generator.server_update({'weight': -d})
    return state, torch_problem.weights(state_dict)

  return problem.server(name, step)


def models() -> problem.Models:
  """The models by each algorithm; the optimizers are PyTorch's."""
  tau = problem.TAU
  adagrad = {'initial_accumulator_value': tau**2, 'eps': tau, 'lr': problem.RATE}
  adam = {'betas': problem.BETAS, 'eps': tau, 'lr': problem.RATE}
  return {
    'fed_avg': _averaged('fed_avg'),
    'fed_prox': _averaged('fed_prox', 0.5),
    'scaffold': _scaffold(),
    'fed_avgm': _server('fed_avgm', torch.optim.SGD, lr=0.5, momentum=0.9),
    'fed_adagrad': _server('fed_adagrad', torch.optim.Adagrad, **adagrad),
    'fed_adam': _server('fed_adam', torch.optim.Adam, **adam),
  }
