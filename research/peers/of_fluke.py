"""fluke: the clients and servers of its algorithms, in float64."""

from typing import Any

from research.peers import problem, torch_problem  # isort: skip  # Before torchvision.

from fluke import FlukeENV
from fluke.algorithms import fedavg, fedavgm, feddyn, fedexp, fednova, fedopt, fedprox, scaffold
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader

from research.peers.torch_problem import torch


def _clients(kind: Any, **options: Any) -> list[Any]:
  clients = []
  for number in range(len(problem.CLIENTS)):
    x, y = (torch.tensor(part) for part in problem.arrays(number))
    data = FastDataLoader(x, y, num_labels=1, batch_size=4, skip_singleton=False)
    optimizer = OptimizerConfigurator({'name': 'SGD', 'lr': problem.RATE})
    loss = torch_problem.HalfSquare()
    clients.append(
      kind(number, data, None, optimizer, loss, local_epochs=problem.EPOCHS, clipping=0, **options)
    )
  return clients


def _rounds(name: str, algorithm: Any, server_options: Any = None, **options: Any) -> Any:
  """The models of an algorithm whose federation is given by hand, and its own rounds."""
  kinds = algorithm.__new__(algorithm)  # It tells its classes without being initialised.
  clients = _clients(kinds.get_client_class(), **options)
  kind = kinds.get_server_class()
  server = kind(torch_problem.Linear(), None, clients, **(server_options or {}))
  federation = algorithm(len(clients), None, {}, clients=clients, server=server)
  federation._round_zero()
  seen = []
  for t, members in enumerate(problem.members(name), 1):
    cohort = [clients[i] for i in members]
    server.broadcast_model(cohort)
    for client in cohort:
      client.local_update(t)
    server.aggregate(cohort, server.receive_client_models(cohort, state_dict=False))
    sent = getattr(server, 'cld_mdl', server.model)  # FedDyn keeps the mean of the clients too.
    seen.append(torch_problem.weights(sent))
  FlukeENV().close_cache()
  return seen


def _server(name: str, kind: Any, scale: float = 1.0, **options: Any) -> Any:
  """The models of a server, given those of the clients; `scale` is for one without a rate."""
  clients = _clients(fedavg.FedAVG.__new__(fedavg.FedAVG).get_client_class())
  server = kind(torch_problem.Linear(), None, clients, weighted=True, **options)
  seen = []
  for one in problem.CASES[name]:
    sent = problem.sent(one)
    models = []
    for client in sent:
      model = torch_problem.Linear()
      model.load_state_dict(server.model.state_dict())
      model.weight.data -= scale * torch.tensor(client['update'])
      models.append(model)
    server.aggregate([clients[client['client']] for client in sent], models)
    seen.append(torch_problem.weights(server.model))
  return seen


def models() -> problem.Models:
  """The models by each algorithm."""
  by_examples = {'weighted': True}
  moments = {'lr': problem.RATE, 'tau': problem.TAU}
  moments |= {'beta1': problem.BETAS[0], 'beta2': problem.BETAS[1]}
  adagrad = {**moments, 'beta1': 0.0}
  uniform = {'weighted': False}
  return {
    'fed_avg': _rounds('fed_avg', fedavg.FedAVG, by_examples),
    'fed_prox': _rounds('fed_prox', fedprox.FedProx, by_examples, mu=0.5),
    'fed_adagrad': _server('fed_adagrad', fedopt.FedOptServer, mode='adagrad', **adagrad),
    'fed_adam': _server('fed_adam', fedopt.FedOptServer, mode='adam', **moments),
    'fed_yogi': _server('fed_yogi', fedopt.FedOptServer, mode='yogi', **moments),
    'fed_avgm': _server('fed_avgm', fedavgm.FedAVGMServer, 0.5, momentum=0.9),
    'scaffold': _rounds('scaffold', scaffold.SCAFFOLD, uniform),
    'fed_dyn': _rounds('fed_dyn', feddyn.FedDyn, uniform, alpha=0.2),
    'fed_nova': _rounds('fed_nova', fednova.FedNova, by_examples),
    'fed_exp': _rounds('fed_exp', fedexp.FedExP, uniform),
  }
