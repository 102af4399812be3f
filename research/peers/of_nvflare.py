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

LOSS = torch_problem.loss()


def _descend(model: Any, one: Any, member: Any, extra: Any = None, after: Any = None) -> None:
  """The steps that NVFlare leaves to its user's script, with a further loss or a call."""
  optimizer = torch.optim.SGD(model.parameters(), lr=one['client_rate'])
  for _ in range(problem.EPOCHS):
    for x, y in torch_problem.batches(member):
      optimizer.zero_grad()
      loss = LOSS(model(x), y)
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
  for t, one in enumerate(problem.rounds(name)):
    helper = WeightedAggregationHelper()
    for member in problem.sent(one):
      i = member['client']
      local = copy.deepcopy(model)
      extra = None
      if mu:
        extra = lambda trained, received=model: proximal(trained, received)  # noqa: E731
      _descend(local, one, member, extra)
      helper.add(local.state_dict(), problem.weight(name, i), str(i), t)
    model.load_state_dict(helper.get_result())
    seen.append(torch_problem.weights(model))
  return seen


def _scaffold(name: str) -> Any:
  model = torch_problem.Linear()
  control = {tensor: torch.zeros_like(p) for tensor, p in model.state_dict().items()}
  helpers: dict[int, Any] = {}
  locals_: dict[int, Any] = {}
  seen = []
  for t, one in enumerate(problem.rounds(name)):
    rate = one['client_rate']
    results = []
    for member in problem.sent(one):
      i = member['client']
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
        one,
        member,
        after=lambda trained, helper=helper, rate=rate, c=of_server, c_i=of_client: (
          helper.model_update(trained, rate, c, c_i)
        ),
      )
      helper.terms_update(local, rate, of_server, of_client, model)
      ended = local.state_dict()
      meta = {
        FLMetaKey.NUM_STEPS_CURRENT_ROUND: 1,  # Equal weights, as in the case.
        AlgorithmConstants.SCAFFOLD_CTRL_DIFF: helper.get_delta_controls(),
        'client_name': str(i),
      }
      change = {tensor: (ended[tensor] - p).numpy() for tensor, p in model.state_dict().items()}
      results.append(FLModel(ParamsType.DIFF, change, current_round=t, meta=meta))
    mean = scaffold_aggregate_fn(results)
    changes = mean.meta[AlgorithmConstants.SCAFFOLD_CTRL_DIFF]
    for tensor, p in model.named_parameters():
      p.data += torch.as_tensor(mean.params[tensor])
      control[tensor] = control[tensor] + torch.as_tensor(changes[tensor])
    seen.append(torch_problem.weights(model))
  return seen


def _server(name: str, optimizer: Any, **values: Any) -> Any:
  """FedOpt, which makes its optimizer when a job starts, and then updates by `server_update`."""
  model = torch_problem.Linear()
  generator = PTFedOptModelShareableGenerator(source_model=model, device='cpu')
  generator.model = model
  generator.optimizer = optimizer(model.parameters(), lr=problem.of_server(name)['rate'], **values)

  def step(state: None, x: Any, d: Any) -> Any:
    state_dict, _ = generator.server_update(problem.tensors(-d))
    return state, torch_problem.weights(state_dict)

  return problem.server(name, step)


def models() -> problem.Models:
  """The models by each algorithm; the optimizers are PyTorch's."""
  return problem.models_by(
    {
      'fed_avg': _averaged,
      'fed_prox': lambda name: _averaged(name, problem.value(name, 'mu')),
      'scaffold': _scaffold,
      **torch_problem.optimizers(_server),
    }
  )
