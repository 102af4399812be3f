"""fluke: the clients and servers of its algorithms, in float64."""

from collections.abc import Callable, Iterator
from typing import Any

from research.peers import problem, torch_problem  # isort: skip  # Before torchvision.

from fluke import FlukeENV
from fluke.algorithms import fedavg, fedavgm, feddyn, fedexp, fednova, fedopt, fedprox, scaffold
from fluke.config import OptimizerConfigurator
from fluke.data import FastDataLoader

from research.peers.torch_problem import torch


class Loader(FastDataLoader):
  """Its loader with a client's examples, whose batches are those of a round."""

  batches: list[Any]

  def take(self, batches: list[Any]) -> None:
    """Gives it a round's batches."""
    self.batches = batches
    self.n_batches = len(batches)

  def __iter__(self) -> Iterator[Any]:
    return iter(self.batches)


def _clients(kind: Any, momentum: float = 0.0, **options: Any) -> list[Any]:
  clients = []
  for number in range(len(problem.CLIENTS)):
    x, y = (torch.tensor(part) for part in problem.arrays(number))
    data = Loader(x, y, num_labels=1, batch_size=4)
    optimizer = OptimizerConfigurator({'name': 'SGD', 'lr': 0.0, 'momentum': momentum})
    loss = torch_problem.loss()
    clients.append(
      kind(number, data, None, optimizer, loss, local_epochs=problem.EPOCHS, clipping=0, **options)
    )
  return clients


def _set_rate(client: Any, rate: float) -> None:
  """Sets the rate of the optimizer that a client has, or will make."""
  client._optimizer_cfg.optimizer_cfg.update(lr=rate)
  if client.optimizer is not None:
    client._load_from_cache()
    for group in client.optimizer.param_groups:
      group['lr'] = rate
    client._save_to_cache()


def _rounds(name: str, algorithm: Any, **options: Any) -> Any:
  """The models of an algorithm whose federation is given by hand, and its own rounds."""
  kinds = algorithm.__new__(algorithm)  # It tells its classes without being initialised.
  clients = _clients(kinds.get_client_class(), **options)
  kind = kinds.get_server_class()
  server = kind(torch_problem.Linear(), None, clients, weighted=problem.is_by_examples(name))
  federation = algorithm(len(clients), None, {}, clients=clients, server=server)
  federation._round_zero()
  seen = []
  for t, one in enumerate(problem.rounds(name), 1):
    cohort = []
    for member in problem.sent(one):
      client = clients[member['client']]
      client.train_set.take(torch_problem.batches(member))
      _set_rate(client, one['client_rate'])
      cohort.append(client)
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
  is_weighted = problem.is_by_examples(name)
  server = kind(torch_problem.Linear(), None, clients, weighted=is_weighted, **options)
  seen = []
  for one in problem.rounds(name):
    sent = problem.sent(one)
    models = []
    for client in sent:
      model = torch_problem.Linear()
      model.load_state_dict(server.model.state_dict())
      for tensor, update in torch_problem.tensors(client['update']).items():
        getattr(model, tensor).data -= scale * update
      models.append(model)
    server.aggregate([clients[client['client']] for client in sent], models)
    seen.append(torch_problem.weights(server.model))
  return seen


def _adaptive(mode: str) -> Callable[[str], Any]:
  def run(name: str) -> Any:
    values = problem.of_server(name)
    beta1, beta2 = values['beta1'], values.get('beta2', 0.0)
    moments = {'lr': values['rate'], 'tau': values['tau'], 'beta1': beta1, 'beta2': beta2}
    return _server(name, fedopt.FedOptServer, mode=mode, **moments)

  return run


def _momentum(name: str) -> Any:
  values = problem.of_server(name)
  return _server(name, fedavgm.FedAVGMServer, values['rate'], momentum=values['momentum'])


def _nova(name: str) -> Any:
  """FedNova; a client's momentum begins anew in each round, as that of the vectors."""
  momentum = problem.value(name, 'local_momentum')
  return _rounds(name, fednova.FedNova, momentum=momentum, persistency=not momentum)


def models() -> problem.Models:
  """The models by each algorithm."""
  return problem.models_by(
    {
      'fed_avg': lambda name: _rounds(name, fedavg.FedAVG),
      'fed_prox': lambda name: _rounds(name, fedprox.FedProx, mu=problem.value(name, 'mu')),
      'fed_adagrad': _adaptive('adagrad'),
      'fed_adagrad-momentum': _adaptive('adagrad'),
      'fed_adam': _adaptive('adam'),
      'fed_yogi': _adaptive('yogi'),
      'fed_avgm': _momentum,
      'scaffold': lambda name: _rounds(name, scaffold.SCAFFOLD),
      'fed_dyn': lambda name: _rounds(name, feddyn.FedDyn, alpha=problem.value(name, 'mu')),
      'fed_nova': _nova,
      'fed_exp': lambda name: _rounds(name, fedexp.FedExP),
    }
  )
