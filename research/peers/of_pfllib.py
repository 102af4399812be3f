"""PFLlib: its servers and clients, in float64. Its files of data and its loss are replaced."""

import pathlib
import random
import sys
import types
from typing import Any

SYSTEM = pathlib.Path(__file__).resolve().parents[2] / '.peers' / 'pfllib' / 'source' / 'system'
sys.path.insert(0, str(SYSTEM))

from flcore.clients.clientdyn import clientDyn  # noqa: E402
from flcore.clients.clientpFedMe import clientpFedMe  # noqa: E402
from flcore.servers import serverbase  # noqa: E402
from flcore.servers.serverapfl import APFL  # noqa: E402
from flcore.servers.serveravg import FedAvg  # noqa: E402
from flcore.servers.serverditto import Ditto  # noqa: E402
from flcore.servers.serverdyn import FedDyn  # noqa: E402
from flcore.servers.serverpFedMe import pFedMe  # noqa: E402
from flcore.servers.serverprox import FedProx  # noqa: E402
from flcore.servers.serverscaffold import SCAFFOLD  # noqa: E402

from research.peers import problem, torch_problem  # noqa: E402

serverbase.read_client_data = lambda dataset, number, **_: problem.arrays(number)[1]
NONE = ('num_classes', 'global_rounds', 'save_folder_name', 'goal', 'top_cnt', 'auto_break')
ZERO = ('few_shot', 'client_drop_rate', 'train_slow_rate', 'send_slow_rate', 'num_new_clients')
OTHERS = ('dlg_eval', 'dlg_gap', 'batch_num_per_client', 'fine_tuning_epoch_new', 'eval_gap')


def _settings(options: dict[str, Any]) -> Any:
  values = dict.fromkeys((*NONE, *OTHERS)) | dict.fromkeys(ZERO, 0)
  values |= {
    'model': torch_problem.Linear(),
    'device': 'cpu',
    'dataset': 'vectors',
    'algorithm': 'vectors',
    'num_clients': len(problem.CLIENTS),
    'batch_size': 4,
    'local_epochs': problem.EPOCHS,
    'local_learning_rate': 0.0,  # It is set in each round.
    'learning_rate_decay': False,
    'learning_rate_decay_gamma': 1.0,
    'join_ratio': 0.5,
    'random_join_ratio': False,
    'time_select': False,
    'time_threthold': 1e9,
  }
  return types.SimpleNamespace(**values, **options)


def _give(client: Any, member: Any, rate: float) -> None:
  """Gives a client the batches and the rate of a round: its optimizers', and its own copy."""
  client.load_train_data = lambda: torch_problem.batches(member)
  client.learning_rate = rate
  if isinstance(client, clientpFedMe):
    return  # Its optimizer is that of the inner steps.
  for name in ('optimizer', 'optimizer_per'):
    if hasattr(client, name):
      for group in getattr(client, name).param_groups:
        group['lr'] = rate


def _rounds(name: str, kind: Any, **options: Any) -> Any:
  """The models of an algorithm by the steps of its server's `train`, without evaluations."""
  server = kind(_settings(options), 0)
  for client in server.clients:
    client.loss = torch_problem.loss()
    client.train_samples = problem.weight(name, client.id)
    if isinstance(client, clientDyn):
      client.alpha = problem.mu(name, client.id)
  seen = []
  for one in problem.rounds(name):
    random.seed(0)
    members = problem.sent(one)
    server.selected_clients = [server.clients[member['client']] for member in members]
    server.current_num_join_clients = server.num_join_clients = len(members)
    server.send_models()
    for client, member in zip(server.selected_clients, members):
      _give(client, member, one['client_rate'])
      if hasattr(client, 'ptrain'):
        client.ptrain()
      client.train()
    server.previous_global_model = [p.detach().clone() for p in server.global_model.parameters()]
    server.receive_models()
    for step in ('update_server_state', 'aggregate_parameters', 'beta_aggregate_parameters'):
      if hasattr(server, step):
        getattr(server, step)()
    seen.append(torch_problem.weights(server.global_model))
  return seen


def _ditto(name: str) -> Any:
  options = {'mu': problem.value(name, 'lam'), 'plocal_epochs': problem.EPOCHS}
  return _rounds(name, Ditto, **options)


def _p_fed_me(name: str) -> Any:
  options = {'lamda': problem.value(name, 'moreau_lam'), 'K': problem.value(name, 'inner_steps')}
  inner = problem.value(name, 'inner_rate')
  return _rounds(name, pFedMe, p_learning_rate=inner, beta=1.0, **options)


def models() -> problem.Models:
  """The models by each algorithm."""
  return problem.models_by(
    {
      'fed_avg': lambda name: _rounds(name, FedAvg),
      'fed_prox': lambda name: _rounds(name, FedProx, mu=problem.value(name, 'mu')),
      'scaffold': lambda name: _rounds(name, SCAFFOLD, server_learning_rate=1.0),
      'fed_dyn': lambda name: _rounds(name, FedDyn, alpha=problem.value(name, 'mu')),
      'ditto': _ditto,
      'apfl': lambda name: _rounds(name, APFL, alpha=problem.value(name, 'alpha_mix')),
      'p_fed_me': _p_fed_me,
    }
  )
