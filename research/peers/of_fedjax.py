"""FedJAX: algorithms and optimizers, in float64."""

from typing import Any

import jax

jax.config.update('jax_enable_x64', True)
jax.tree_map = jax.tree_util.tree_map  # FedJAX 0.0.17 calls it; JAX has removed it.

from fedjax.algorithms import fed_avg, fed_prox, mime, mime_lite  # noqa: E402
from fedjax.core import client_datasets, optimizers  # noqa: E402

from research.peers import problem  # noqa: E402


class Client(client_datasets.ClientDataset):
  """A client with the batches of a round; FedJAX's own run on from one pass into the next."""

  steps: list[Any]

  def shuffle_repeat_batch(self, hparams: Any = None, **others: Any) -> Any:
    return self.steps * problem.EPOCHS


def _client(member: Any) -> Client:
  client = Client(dict(zip('xy', problem.arrays(member['client']))))
  client.steps = [dict(zip('xy', batch)) for batch in problem.batches(member)]
  return client


def _losses(parameters: Any, batch: Any, rng: Any) -> Any:
  """The loss of each example."""
  weight, *bias = (parameters[name] for name in problem.SHAPES)
  if not problem.IS_LOGISTIC:
    return 0.5 * (batch['x'] @ weight - batch['y']) ** 2
  logits = jax.nn.log_softmax(batch['x'] @ weight + bias[0])
  return -jax.numpy.take_along_axis(logits, batch['y'][:, None], 1)[:, 0]


GRADIENT = jax.grad(lambda parameters, batch, rng: _losses(parameters, batch, rng).mean())


def _rounds(name: str, build: Any) -> Any:
  """The models of an algorithm; for each client rate it is built anew, its state goes on."""
  state = None
  last_rate = None
  seen = []
  key = jax.random.PRNGKey(0)
  for one in problem.rounds(name):
    if one['client_rate'] != last_rate:
      last_rate = one['client_rate']
      algorithm = build(last_rate)
    if state is None:
      start = problem.tensors(problem.START)
      state = algorithm.init({tensor: jax.numpy.array(each) for tensor, each in start.items()})
    clients = [(member['client'], _client(member), key) for member in problem.sent(one)]
    state, _ = algorithm.apply(state, clients)
    seen.append(problem.flat(state.params[tensor] for tensor in problem.SHAPES))
  return seen


def _averaged(name: str) -> Any:
  one = optimizers.sgd(1.0)
  return _rounds(
    name,
    lambda rate: fed_avg.federated_averaging(GRADIENT, optimizers.sgd(rate), one, None),
  )


def _proximal(name: str) -> Any:
  one = optimizers.sgd(1.0)
  mu = problem.value(name, 'mu')
  return _rounds(name, lambda rate: fed_prox.fed_prox(_losses, optimizers.sgd(rate), one, None, mu))


def _mime(name: str, build: Any) -> Any:
  """Its momentum is m <- beta m + g: with a rate of (1 - beta) it is that of the vectors."""
  beta = problem.value(name, 'base_beta1')
  padded = client_datasets.PaddedBatchHParams(4)
  return _rounds(
    name,
    lambda rate: build(_losses, optimizers.sgd(rate * (1 - beta), beta), None, padded, 1.0),
  )


def _server(name: str, optimizer: Any) -> Any:
  def step(state: Any, x: Any, d: Any) -> Any:
    return optimizer.apply(d, state, x)

  return problem.server(name, step, optimizer.init(problem.START))


def _momentum(name: str) -> Any:
  values = problem.of_server(name)
  is_nesterov = values['name'] == 'nesterov'
  return _server(name, optimizers.sgd(values['rate'], values['momentum'], is_nesterov))


def _adagrad(name: str) -> Any:
  values = problem.of_server(name)
  return _server(name, optimizers.adagrad(values['rate'], values['initial_v'], values['tau'] ** 2))


def _adam(name: str) -> Any:
  values = problem.of_server(name)
  return _server(name, optimizers.adam(values['rate'], *problem.betas(name), values['tau']))


def _yogi(name: str) -> Any:
  values = problem.of_server(name)
  return _server(name, optimizers.yogi(values['rate'], *problem.betas(name), values['tau']))


def models() -> problem.Models:
  """The models by each algorithm."""
  by_examples: dict[str, Any] = {
    'fed_avg': _averaged,
    'fed_prox': _proximal,
    'mime_lite': lambda name: _mime(name, mime_lite.mime_lite),
    'mime': lambda name: _mime(name, mime.mime),
  }
  servers = {
    'fed_avgm': _momentum,
    'fed_nesterov': _momentum,
    'fed_adagrad': _adagrad,
    'fed_adam': _adam,
    'fed_yogi': _yogi,
  }
  weighted = problem.models_by(by_examples, has_uniform=False)
  return weighted | problem.models_by(servers)
