"""Runs the test vectors' least-squares cases in another library, in that library's environment.

usage: PYTHON -m research.peers.vector_rounds LIBRARY VECTORS/least_squares.json

It writes JSON, case -> the server's model after each round. Algorithms run whole rounds; server
optimizers are given the vectors' mean updates. Clients whose update is not finite are left out.
"""

import gc
import importlib
import json
import sys
from typing import Any

import numpy as np

from research.peers.problem import (
  BETAS,
  CASES,
  CLIENTS,
  MIME_RATE,
  RATE,
  START,
  TAU,
  Models,
  arrays,
  sent,
  server,
)


def tff() -> Models:
  """TensorFlow Federated's own algorithms, in float32, and optimizers."""
  import tensorflow as tf
  import tensorflow_federated

  learning = tensorflow_federated.learning
  optimizers = learning.optimizers
  algorithms = learning.algorithms
  model = learning.models.FunctionalModel(
    initial_weights=((np.float32(START),), ()),
    predict_on_batch_fn=tf.function(lambda w, x, training: tf.linalg.matvec(x, w[0][0])),
    loss_fn=tf.function(lambda prediction, y, _=None: 0.5 * tf.reduce_mean((prediction - y) ** 2)),
    input_spec=tuple(tf.TensorSpec(s, tf.float32) for s in ([None, len(START)], [None])),
  )

  def optimizer(name: str, of_name: Any) -> Any:
    start = of_name.initialize(tf.TensorSpec(START.shape, tf.float64))
    return server(name, lambda s, x, d: of_name.next(s, tf.constant(x), tf.constant(d)), start)

  def whole(name: str, process: Any) -> Any:
    state = process.initialize()
    seen = []
    for one in CASES[name]:
      clients = [tuple(map(np.float32, arrays(c['client']))) for c in sent(one)]
      data = [tf.data.Dataset.from_tensor_slices(each) for each in clients]
      state = process.next(state, [each.batch(4).repeat(2) for each in data]).state
      seen.append(process.get_model_weights(state).trainable[0].tolist())
    return seen

  local, one, base = (optimizers.build_sgdm(*v) for v in ((RATE,), (1.0,), (MIME_RATE, 0.8)))
  processes = {
    'fed_avg': algorithms.build_weighted_fed_avg(model, local, one),
    'fed_prox': algorithms.build_weighted_fed_prox(model, 0.5, local, one),
    'mime_lite': algorithms.build_weighted_mime_lite(model, base),
  }
  servers = {
    'fed_avgm': optimizers.build_sgdm(0.5, 0.9),
    'fed_adagrad': optimizers.build_adagrad(RATE, TAU**2, TAU**2),
    'fed_adam': optimizers.build_adam(RATE, *BETAS, TAU),
    'fed_yogi': optimizers.build_yogi(RATE, *BETAS, TAU, TAU**2),
  }
  context = tensorflow_federated.backends.native.create_sync_local_cpp_execution_context
  with tensorflow_federated.framework.get_context_stack().install(context()):
    models = {name: whole(name, process) for name, process in processes.items()}
  gc.collect()  # Ends the context's process, which would outlive this one with its output open.
  return models | {name: optimizer(name, of_name) for name, of_name in servers.items()}


def flower() -> Models:
  """The strategies' `aggregate_fit`, given the models of the clients."""
  from flwr import common
  from flwr.server import strategy

  first = common.ndarrays_to_parameters([START])
  adaptive = {'eta': RATE, 'tau': TAU, 'initial_parameters': first}
  moments = {'beta_1': BETAS[0], 'beta_2': BETAS[1], **adaptive}
  momentum = {'server_learning_rate': 0.5, 'server_momentum': 0.9, 'initial_parameters': first}
  models: Models = {}
  for name, flower_strategy in {
    'fed_avg': strategy.FedAvg(),
    'fed_avgm': strategy.FedAvgM(**momentum),
    'fed_adagrad': strategy.FedAdagrad(**adaptive),
    'fed_adam': strategy.FedAdam(**moments),
    'fed_yogi': strategy.FedYogi(**moments),
  }.items():
    x = START
    models[name] = []
    for t, one in enumerate(CASES[name], 1):
      results = []
      for c in sent(one):
        model = common.ndarrays_to_parameters([x - np.array(c['update'])])
        status = common.Status(common.Code.OK, '')
        examples = len(CLIENTS[c['client']]['y'])
        results.append((None, common.FitRes(status, model, examples, {})))
      x = common.parameters_to_ndarrays(flower_strategy.aggregate_fit(t, results, [])[0])[0]
      models[name].append(x.tolist())
  return models


def fedjax() -> Models:
  """Algorithms and optimizers, in float64."""
  import jax

  jax.config.update('jax_enable_x64', True)
  jax.tree_map = jax.tree_util.tree_map  # FedJAX 0.0.17 calls it; JAX has removed it.
  from fedjax.algorithms import fed_avg, fed_prox, mime, mime_lite
  from fedjax.core import client_datasets, optimizers

  class Client(client_datasets.ClientDataset):
    """A client whose passes end in smaller batches; FedJAX's own run on into the next pass."""

    def shuffle_repeat_batch(self, hparams: Any = None, **others: Any) -> Any:
      return [*self.batch(batch_size=4)] * 2

  def losses(x: Any, batch: Any, rng: Any) -> Any:
    return 0.5 * (batch['x'] @ x - batch['y']) ** 2

  def whole(name: str, algorithm: Any) -> Any:
    state = algorithm.init(jax.numpy.array(START))
    seen = []
    key = jax.random.PRNGKey(0)
    for one in CASES[name]:
      data = [(c['client'], dict(zip('xy', arrays(c['client'])))) for c in sent(one)]
      clients = [(i, Client(each), key) for i, each in data]
      state, _ = algorithm.apply(state, clients)
      seen.append(np.array(state.params).tolist())
    return seen

  gradient = jax.grad(lambda x, batch, rng: losses(x, batch, rng).mean())
  local, one, base = (optimizers.sgd(*values) for values in ((RATE,), (1.0,), (MIME_RATE, 0.8)))
  padded = client_datasets.PaddedBatchHParams(4)
  algorithms = {
    'fed_avg': fed_avg.federated_averaging(gradient, local, one, None),
    'fed_prox': fed_prox.fed_prox(losses, local, one, None, 0.5),
    'mime_lite': mime_lite.mime_lite(losses, base, None, padded, 1.0),
    'mime': mime.mime(losses, base, None, padded, 1.0),
  }
  servers = {
    'fed_avgm': optimizers.sgd(0.5, 0.9),
    'fed_adagrad': optimizers.adagrad(RATE, TAU**2, TAU**2),
    'fed_adam': optimizers.adam(RATE, *BETAS, TAU),
    'fed_yogi': optimizers.yogi(RATE, *BETAS, TAU),
  }
  models = {name: whole(name, algorithm) for name, algorithm in algorithms.items()}

  def step(optimizer: Any) -> Any:
    return lambda s, x, d: optimizer.apply(d, s, x)

  for name, optimizer in servers.items():
    models[name] = server(name, step(optimizer), optimizer.init(START))
  return models


def pfl() -> Models:
  """pfl-research: simulations in float32; server optimizers are PyTorch's."""
  import torch
  from pfl import algorithm
  from pfl.aggregate.simulate import SimulatedBackend
  from pfl.aggregate.weighting import WeightByDatapoints
  from pfl.algorithm import base, scaffold
  from pfl.callback.base import TrainingProcessCallback
  from pfl.data import user_state
  from pfl.data.dataset import Dataset
  from pfl.data.federated_dataset import FederatedDataset
  from pfl.hyperparam import NNTrainHyperParams
  from pfl.hyperparam.base import HyperParam
  from pfl.metrics import Metrics
  from pfl.model.pytorch import PyTorchModel

  class Seen(TrainingProcessCallback, HyperParam):
    """Keeps the model after each round, and is the cohort's size in the next."""

    def __init__(self, sizes: list[int]) -> None:
      self.sizes = [*sizes, 1]
      self.rounds: list[list[float]] = []

    def after_central_iteration(self, metrics: Any, model: Any, **others: Any) -> Any:
      self.rounds.append(model.pytorch_model.weight.detach().numpy()[0].tolist())
      return False, Metrics()

    def value(self) -> int:
      return self.sizes[len(self.rounds)]

  def data(number: int) -> Any:
    x, y = (torch.tensor(a, dtype=torch.float32) for a in arrays(number))
    return Dataset([x, y[:, None]], user_id=str(number))

  def whole(name: str, kind: Any, settings: Any, weights: list[Any], **options: Any) -> Any:
    module = torch.nn.Linear(len(START), 1, bias=False)
    module.weight.data[:] = torch.tensor(START)
    module.loss = lambda x, y: 0.5 * torch.mean((module(x) - y) ** 2)
    module.metrics = lambda x, y: {}
    members = []
    for one in CASES[name]:
      members.append([c['client'] for c in sent(one)])
    seen = Seen([len(each) for each in members])
    order = iter(np.concatenate(members))
    clients = FederatedDataset(data, lambda: next(order))
    common = {'central_num_iterations': len(members), 'evaluation_frequency': 10**9}
    kind().run(
      settings(train_cohort_size=seen, val_cohort_size=0, **common, **options),
      SimulatedBackend(clients, clients, weights),
      PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
      NNTrainHyperParams(local_num_epochs=2, local_learning_rate=RATE, local_batch_size=4),
      callbacks=[seen],
      send_metrics_to_platform=False,
    )
    return seen.rounds

  def optimizer(name: str, kind: Any, *values: Any) -> Any:
    weights = torch.nn.Parameter(torch.tensor(START))
    optimizer = kind([weights], *values)

    def step(state: None, x: np.ndarray, d: np.ndarray) -> Any:
      weights.data[:] = torch.tensor(x)
      weights.grad = torch.tensor(d)
      optimizer.step()
      return state, weights.detach().numpy()

    return server(name, step)

  control = {
    'population': len(CLIENTS),
    'use_gradient_as_control_variate': False,
    'user_state_storage': user_state.InMemoryUserStateStorage(),
  }
  plain = base.NNAlgorithmParams
  settings = scaffold.SCAFFOLDParams
  weights = [WeightByDatapoints()]
  optim = torch.optim
  return {
    'fed_avg': whole('fed_avg', algorithm.FederatedAveraging, plain, weights),
    'fed_prox': whole('fed_prox', algorithm.FedProx, algorithm.FedProxParams, weights, mu=0.5),
    'scaffold': whole('scaffold', scaffold.SCAFFOLD, settings, [], **control),
    'fed_avgm': optimizer('fed_avgm', optim.SGD, 0.5, 0.9),
    'fed_adagrad': optimizer('fed_adagrad', optim.Adagrad, RATE, 0, 0, TAU**2, TAU),
    'fed_adam': optimizer('fed_adam', optim.Adam, RATE, BETAS, TAU),
  }


OLDER = {'tff': tff, 'flower': flower, 'fedjax': fedjax, 'pfl': pfl}

if __name__ == '__main__':
  library = sys.argv[1]
  if library in OLDER:
    done = OLDER[library]()
  else:
    done = importlib.import_module(f'research.peers.of_{library}').models()
  print(json.dumps(done))
