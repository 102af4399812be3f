"""FL-bench: its clients and servers, in float64, without its configuration, data sets and logs.

It leaves out batches of one example, because of batch normalization: such an example is given
twice here, which has the same mean gradient.
"""

import pathlib
import sys
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from research.peers import problem, torch_problem  # isort: skip  # Before torchvision.
from research.peers.torch_problem import torch  # isort: skip

SOURCE = pathlib.Path(__file__).resolve().parents[2] / '.peers' / 'fl_bench' / 'source'
sys.path.insert(0, str(SOURCE))

from omegaconf import DictConfig  # noqa: E402
from src.server.apfl import APFLServer  # noqa: E402
from src.server.ditto import DittoServer  # noqa: E402
from src.server.fedavg import FedAvgServer  # noqa: E402
from src.server.fedavgm import FedAvgMServer  # noqa: E402
from src.server.feddyn import FedDynServer  # noqa: E402
from src.server.fedopt import AdaptiveOptimizer  # noqa: E402
from src.server.fedprox import FedProxServer  # noqa: E402
from src.server.pfedme import pFedMeServer  # noqa: E402
from src.server.scaffold import SCAFFOLDServer  # noqa: E402
from src.utils.models import DecoupledModel  # noqa: E402


class Model(DecoupledModel):
  """The file's model, with the base class of its models."""

  def __init__(self) -> None:
    super().__init__()
    torch_problem.add_weights(self)

  def forward(self, x: Any) -> Any:
    return torch_problem.predicted(self, x)


class Nothing:
  """A data set that is never read."""

  def __len__(self) -> int:
    return 1

  def train(self) -> None:
    """Called before an epoch."""

  eval = train


def _begin(server: Any, args: Any) -> None:
  """What FedAvgServer.__init__ leaves behind, by which other servers begin."""
  server.args = args
  server.device = torch.device('cpu')
  server.client_num = len(problem.CLIENTS)
  server.train_clients = [*range(server.client_num)]
  server.model = Model()
  server.public_model_params = OrderedDict(torch_problem.tensors(problem.START))
  server.clients_personal_model_params = {i: {} for i in server.train_clients}
  server.client_optimizer_states = {i: {} for i in server.train_clients}
  server.client_lr_scheduler_states = {i: {} for i in server.train_clients}
  server.client_local_epoches = [args.common.local_epoch] * server.client_num
  server.trainer = Trainer(server)


FedAvgServer.__init__ = _begin


def _batches(client: Any) -> list[Any]:
  both = torch_problem.batches(client)
  return [(torch.cat([x, x]), torch.cat([y, y])) if len(x) == 1 else (x, y) for x, y in both]


class Trainer:
  """Its trainer in one process, without measurements."""

  def __init__(self, server: Any) -> None:
    self.server = server
    self.case = ''
    self.round: Any = None
    self.worker: Any = None

  def start(self, name: str) -> None:
    """Makes the worker, once the server is complete."""
    server = self.server
    self.case = name
    examples = [problem.weight(name, number) for number in range(server.client_num)]
    indices = [{'train': [0] * n, 'val': [], 'test': []} for n in examples]
    self.worker = server.client_cls(
      model=Model(),
      optimizer_cls=lambda params: torch.optim.SGD(params, lr=0.0),
      lr_scheduler_cls=None,
      args=server.args,
      dataset=Nothing(),
      data_indices=indices,
      device=server.device,
      return_diff=server.return_diff,
    )
    self.worker.criterion = torch_problem.loss()

  def _set_rate(self, rate: float) -> None:
    """Sets the rate of the settings, and of the optimizer's state that a round begins with."""
    self.server.args.optimizer.lr = rate
    for group in self.worker.init_optimizer_state['param_groups']:
      group['lr'] = rate

  def train(self) -> Any:
    """The packages of a round's clients."""
    self._set_rate(self.round['client_rate'])
    args = self.server.args
    packages = OrderedDict()
    for member in problem.sent(self.round):
      i = member['client']
      self.worker.trainloader = _batches(member)
      if isinstance(self.server, SCAFFOLDServer):  # Its epochs are single steps.
        args.common.local_epoch = member['steps']
        self.server.client_local_epoches[i] = member['steps']
      if isinstance(self.server, FedDynServer):
        args.feddyn.alpha = problem.mu(self.case, i)
      packages[i] = self.worker.train(self.server.package(i))
    return packages


def _rounds(name: str, kind: Any, **options: Any) -> Any:
  """The models of an algorithm; options are those of its own group."""
  common = {
    'local_epoch': problem.EPOCHS,
    'batch_size': 4,
    'buffers': 'global',
    'use_cuda': False,
    'reset_optimizer_on_global_epoch': True,
    'client_side_evaluation': False,
    'test': {'client': {'train': False, 'val': False, 'test': False}},
  }
  group = kind.__module__.rsplit('.', 1)[1]
  args = DictConfig({'common': common, 'optimizer': {'lr': 0.0}, group: options})
  server = kind(args)
  server.trainer.start(name)
  seen = []
  for one in problem.rounds(name):
    server.trainer.round = one
    server.selected_clients = [member['client'] for member in problem.sent(one)]
    server.train_one_round()
    seen.append(torch_problem.weights(server.public_model_params))
  return seen


def _momentum(name: str) -> Any:
  """FedAvgM, whose rate is 1: the update times the rate is the same as the rate."""
  values = problem.of_server(name)
  common = {'common': {'local_epoch': 1}}
  momentum = {'server_momentum': values['momentum']}
  server = FedAvgMServer(DictConfig({**common, 'fedavgm': momentum}))

  def step(state: None, x: Any, d: Any) -> Any:
    update = torch_problem.tensors(values['rate'] * d)
    server.aggregate_client_updates(OrderedDict({0: {'weight': 1, 'model_params_diff': update}}))
    return state, torch_problem.weights(server.public_model_params)

  return problem.server(name, step)


def _adaptive(kind: str) -> Callable[[str], Any]:
  """FedOpt's optimizer."""

  def run(name: str) -> Any:
    values = problem.of_server(name)
    weights = OrderedDict(torch_problem.tensors(problem.START))
    optimizer = AdaptiveOptimizer(
      kind,
      weights,
      beta1=values['beta1'],
      beta2=values.get('beta2', 0.0),
      lr=values['rate'],
      tau=values['tau'],
    )

    def step(state: None, x: Any, d: Any) -> Any:
      optimizer.step([OrderedDict(torch_problem.tensors(d))], torch.ones(1))
      return state, torch_problem.weights(weights)

    return problem.server(name, step)

  return run


def _fed_dyn(name: str) -> Any:
  return _rounds(name, FedDynServer, alpha=problem.value(name, 'mu'), max_grad_norm=1e9)


def _ditto(name: str) -> Any:
  options = {'lamda': problem.value(name, 'lam'), 'pers_epoch': problem.EPOCHS}
  return _rounds(name, DittoServer, **options)


def _p_fed_me(name: str) -> Any:
  options = {'lamda': problem.value(name, 'moreau_lam'), 'k': problem.value(name, 'inner_steps')}
  inner = problem.value(name, 'inner_rate')
  return _rounds(name, pFedMeServer, pers_lr=inner, mu=0.0, beta=1.0, **options)


def _apfl(name: str) -> Any:
  return _rounds(name, APFLServer, alpha=problem.value(name, 'alpha_mix'), adaptive_alpha=0)


def models() -> problem.Models:
  """The models by each algorithm; its FedAvgM has Nesterov's momentum."""
  return problem.models_by(
    {
      'fed_avg': lambda name: _rounds(name, FedAvgServer),
      'fed_prox': lambda name: _rounds(name, FedProxServer, mu=problem.value(name, 'mu')),
      'fed_avgm': _momentum,
      'fed_nesterov': _momentum,
      'fed_adagrad': _adaptive('adagrad'),
      'fed_adagrad-momentum': _adaptive('adagrad'),
      'fed_adam': _adaptive('adam'),
      'fed_yogi': _adaptive('yogi'),
      'scaffold': lambda name: _rounds(name, SCAFFOLDServer, global_lr=1.0),
      'fed_dyn': _fed_dyn,
      'ditto': _ditto,
      'apfl': _apfl,
      'p_fed_me': _p_fed_me,
    }
  )
