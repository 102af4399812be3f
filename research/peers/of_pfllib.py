"""PFLlib: its servers and clients, in float64. Its files of data and its loss are replaced."""

import pathlib
import random
import sys
import types
from typing import Any

SYSTEM = pathlib.Path(__file__).resolve().parents[2] / '.peers' / 'pfllib' / 'source' / 'system'
sys.path.insert(0, str(SYSTEM))

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
    'local_learning_rate': problem.RATE,
    'learning_rate_decay': False,
    'learning_rate_decay_gamma': 1.0,
    'join_ratio': 0.5,
    'random_join_ratio': False,
    'time_select': False,
    'time_threthold': 1e9,
  }
  return types.SimpleNamespace(**values, **options)


def _rounds(name: str, kind: Any, is_uniform: bool = False, **options: Any) -> Any:
  """The models of an algorithm by the steps of its server's `train`, without evaluations."""
  server = kind(_settings(options), 0)
  for client in server.clients:
    client.loss = torch_problem.HalfSquare()
    client.load_train_data = lambda number=client.id: torch_problem.batches(number)
    if is_uniform:
      client.train_samples = 1
  seen = []
  for members in problem.members(name):
    random.seed(0)
    server.selected_clients = [server.clients[i] for i in members]
    server.current_num_join_clients = server.num_join_clients = len(members)
    server.send_models()
    for client in server.selected_clients:
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


def models() -> problem.Models:
  """The models by each algorithm."""
  p_fed_me = {'lamda': 3.0, 'K': 3, 'p_learning_rate': 0.05, 'beta': 1.0}
  return {
    'fed_avg': _rounds('fed_avg', FedAvg),
    'fed_prox': _rounds('fed_prox', FedProx, mu=0.5),
    'scaffold': _rounds('scaffold', SCAFFOLD, server_learning_rate=1.0),
    'fed_dyn': _rounds('fed_dyn', FedDyn, alpha=0.2),
    'ditto': _rounds('ditto', Ditto, True, mu=0.3, plocal_epochs=problem.EPOCHS),
    'apfl': _rounds('apfl', APFL, True, alpha=0.4),
    'p_fed_me': _rounds('p_fed_me', pFedMe, True, **p_fed_me),
  }
