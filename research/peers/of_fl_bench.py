"""FL-bench: its clients and servers, in float64, without its configuration, data sets and logs.

It leaves out batches of one example, because of batch normalization: such an example is given
twice here, which has the same mean gradient.
"""

import pathlib
import sys
from collections import OrderedDict
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
  """x w, as the base class of its models."""

  def __init__(self) -> None:
    super().__init__()
    self.weight = torch.nn.Parameter(torch.tensor(problem.START))

  def forward(self, x: Any) -> Any:
    return x @ self.weight


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
  server.public_model_params = OrderedDict(weight=torch.tensor(problem.START))
  server.clients_personal_model_params = {i: {} for i in server.train_clients}
  server.client_optimizer_states = {i: {} for i in server.train_clients}
  server.client_lr_scheduler_states = {i: {} for i in server.train_clients}
  server.client_local_epoches = [args.common.local_epoch] * server.client_num
  server.trainer = Trainer(server)


FedAvgServer.__init__ = _begin


def _batches(client: int) -> list[Any]:
  both = torch_problem.batches(client)
  return [(torch.cat([x, x]), torch.cat([y, y])) if len(x) == 1 else (x, y) for x, y in both]


class Trainer:
  """Its trainer in one process, without measurements."""

  def __init__(self, server: Any) -> None:
    self.server = server
    self.by_examples = True
    self.worker: Any = None

  def start(self) -> None:
    """Makes the worker, once the server is complete."""
    server = self.server
    examples = [len(client['y']) if self.by_examples else 1 for client in problem.CLIENTS]
    indices = [{'train': [0] * n, 'val': [], 'test': []} for n in examples]
    self.worker = server.client_cls(
      model=Model(),
      optimizer_cls=lambda params: torch.optim.SGD(params, lr=problem.RATE),
      lr_scheduler_cls=None,
      args=server.args,
      dataset=Nothing(),
      data_indices=indices,
      device=server.device,
      return_diff=server.return_diff,
    )
    self.worker.criterion = torch_problem.HalfSquare()

  def train(self) -> Any:
    """The packages of a round's clients."""
    packages = OrderedDict()
    for i in self.server.selected_clients:
      self.worker.trainloader = _batches(i)
      if isinstance(self.server, SCAFFOLDServer):  # Its epochs are single steps.
        steps = problem.EPOCHS * len(self.worker.trainloader)
        self.server.args.common.local_epoch = steps
        self.server.client_local_epoches[i] = steps
      packages[i] = self.worker.train(self.server.package(i))
    return packages


def _rounds(name: str, kind: Any, by_examples: bool = True, **options: Any) -> Any:
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
  args = DictConfig({'common': common, 'optimizer': {'lr': problem.RATE}, group: options})
  server = kind(args)
  server.trainer.by_examples = by_examples
  server.trainer.start()
  seen = []
  for members in problem.members(name):
    server.selected_clients = members
    server.train_one_round()
    seen.append(torch_problem.weights(server.public_model_params))
  return seen


def _momentum(name: str) -> Any:
  """FedAvgM, whose rate is 1: half of each update is the same as the rate 0.5."""
  common = {'common': {'local_epoch': 1}}
  server = FedAvgMServer(DictConfig({**common, 'fedavgm': {'server_momentum': 0.9}}))

  def step(state: None, x: Any, d: Any) -> Any:
    package = {'weight': 1, 'model_params_diff': {'weight': torch.tensor(0.5 * d)}}
    server.aggregate_client_updates(OrderedDict({0: package}))
    return state, torch_problem.weights(server.public_model_params)

  return problem.server(name, step)


def _adaptive(name: str, **options: Any) -> Any:
  """FedOpt's optimizer."""
  weights = OrderedDict(weight=torch.tensor(problem.START))
  optimizer = AdaptiveOptimizer(params_dict=weights, lr=problem.RATE, tau=problem.TAU, **options)

  def step(state: None, x: Any, d: Any) -> Any:
    optimizer.step([OrderedDict(weight=torch.tensor(d))], torch.ones(1))
    return state, torch_problem.weights(weights)

  return problem.server(name, step)


def models() -> problem.Models:
  """The models by each algorithm."""
  moments = {'beta1': problem.BETAS[0], 'beta2': problem.BETAS[1]}
  p_fed_me = {'lamda': 3.0, 'k': 3, 'pers_lr': 0.05, 'mu': 0.0, 'beta': 1.0}
  dyn = {'alpha': 0.2, 'max_grad_norm': 1e9}
  return {
    'fed_avg': _rounds('fed_avg', FedAvgServer),
    'fed_prox': _rounds('fed_prox', FedProxServer, mu=0.5),
    'fed_avgm': _momentum('fed_avgm'),
    'fed_adagrad': _adaptive('fed_adagrad', optimizer_type='adagrad', **moments | {'beta1': 0.0}),
    'fed_adam': _adaptive('fed_adam', optimizer_type='adam', **moments),
    'fed_yogi': _adaptive('fed_yogi', optimizer_type='yogi', **moments),
    'scaffold': _rounds('scaffold', SCAFFOLDServer, False, global_lr=1.0),
    'fed_dyn': _rounds('fed_dyn', FedDynServer, False, **dyn),
    'ditto': _rounds('ditto', DittoServer, False, lamda=0.3, pers_epoch=problem.EPOCHS),
    'apfl': _rounds('apfl', APFLServer, False, alpha=0.4, adaptive_alpha=0),
    'p_fed_me': _rounds('p_fed_me', pFedMeServer, False, **p_fed_me),
  }
