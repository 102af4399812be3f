"""Makes the test vectors of vectors/ from the oracle in NumPy, and compares them with those there.

usage: python -m research.vectors

A file whose numbers agree stays as it is, to the byte. Another is written anew, and the command
ends with 1: look at the difference by `git diff --stat vectors`; called again it ends with 0.
"""

import functools
import json
import pathlib
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import oracle
from oracle import asynchronous, compressed, methods, newer, optimizers, personal, slots
from research.vector_cases import ASYNCHRONOUS, LEAST_SQUARES, LOGISTIC

FOLDER = pathlib.Path(__file__).resolve().parent.parent / 'vectors'
VERSION = '1.4'
ROUNDS = 10
EPOCHS = 2
BATCH_SIZE = 4
SCHEDULES: dict[str, Any] = {  # Of a loss: the clients of a round, and the decay of their rate.
  'least_squares': {'cohort': 4, 'factor': 1.0},
  'logistic': {'cohort': 3, 'factor': 0.9},
}
TOLERANCE = 1e-11  # Relative to the largest entry of a list: other processors sum in other orders.

ORACLES: dict[str, Callable[..., oracle.FedAvg]] = {
  'fed_prox': oracle.FedProx,
  'scaffold': oracle.Scaffold,
  'scaffold_m': oracle.ScaffoldM,
  'fed_dyn': oracle.FedDyn,
  'ada_best': oracle.AdaBest,
  'fed_nova': methods.FedNova,
  'fed_cm': methods.FedCM,
  'fed_exp': methods.FedExP,
  'mime_lite': methods.MimeLite,
  'mime': methods.Mime,
  'delta_sgd': methods.DeltaSGD,
  'scaffnew': methods.Scaffnew,
  'mo_fed_sam': methods.FedCM,
  'fed_gamma': oracle.Scaffold,
  'fed_speed': oracle.FedDyn,
  'fed_dc': newer.FedDC,
  'fed_acg': newer.FedACG,
  'fed_init': newer.FedInit,
  'fed_varp': newer.FedVARP,
  'fed_lesam': newer.FedLESAM,
  'q_fed_avg': newer.QFedAvg,
  'afl': newer.AFL,
  'fed_adamw': slots.FedAdamW,
  'fed_muon': slots.FedMuon,
  'fed_lada': slots.FedLADA,
  'fed_smoo': newer.FedSMOO,
  'fed_lc': newer.FedLC,
  'fed_ntd': newer.FedNTD,
  'fed_per': personal.Kept,
  'lg_fed_avg': personal.Kept,
  'fed_rep': personal.Kept,
  'fed_babu': personal.Kept,
  'fed_bn': personal.Kept,
  'ditto': personal.Ditto,
  'apfl': personal.APFL,
  'p_fed_me': personal.PFedMe,
  'per_fed_avg': personal.PerFedAvg,
  'fed_ala': personal.FedALA,
  'fed_avg+top_k': compressed.TopKFedAvg,
  'scaffold+top_k': compressed.TopKScaffold,
  'fed_avg+top_k_down': compressed.TopKDownFedAvg,
}  # FedAvg for the others.


def _optimizer(values: dict[str, Any], shapes: list[list[int]]) -> Callable[[], Any]:
  """Makes the oracle's optimizer of these values."""
  options = {k: v for k, v in values.items() if k not in ('name', 'rate', 'state')}
  name = values['name']
  rate = values.get('rate')
  if name in ('sgd', 'sgdm'):
    return functools.partial(oracle.Sgd, rate, **options)
  if name in ('adagrad', 'adam', 'yogi') and 'initial_v' in options:
    options = {'beta1': 0.0, 'beta2': None, **options}
    return functools.partial(oracle.Adaptive, name, rate, **options)
  classes = {'adam': optimizers.Adam, 'adamw': optimizers.Adam, 'amsgrad': optimizers.AmsGrad}
  make = functools.partial(classes.get(name) or getattr(optimizers, name.title()), rate, **options)
  whole = name not in ('lamb', 'muon')
  if whole:
    return make
  return functools.partial(optimizers.PerTensor, make, shapes)


def _linear(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
  """Gradient of 1/2 mean (x w - y)^2."""
  return x.T @ (x @ w - y) / len(y)


def _scores(theta: np.ndarray, x: np.ndarray) -> np.ndarray:
  """x W + b, [B, 3]."""
  return x @ theta[:9].reshape(3, 3) + theta[9:]


def _by_scores(theta: np.ndarray, x: np.ndarray, slopes: np.ndarray) -> np.ndarray:
  """Gradient of a loss whose slopes by the scores are given."""
  del theta  # The scores are linear.
  return oracle.pack([x.T @ slopes, slopes.sum(0)])


def _softmax(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
  """Gradient of the mean cross-entropy of x W + b."""
  scores = np.exp(_scores(theta, x))
  slopes = (scores / scores.sum(1, keepdims=True) - np.eye(3)[y]) / len(y)
  return _by_scores(theta, x, slopes)


def _squared_loss(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
  """1/2 mean (x w - y)^2."""
  return float(np.mean((x @ w - y) ** 2) / 2)


def _softmax_loss(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
  """The mean cross-entropy of x W + b."""
  return float(np.mean(newer.losses(_scores(theta, x), y)))


def _mask(layers: str, shapes: list[list[int]]) -> np.ndarray:
  """Which entries of the weights belong to the tensor called weight_0 or weight_1."""
  parts = [np.full(shape, layers == f'weight_{i}') for i, shape in enumerate(shapes)]
  return np.concatenate([part.ravel() for part in parts])


def _problem(name: str, tensors: dict[str, list[int]], sizes: list[int]) -> Any:
  """The part of a file that all its cases share."""
  if name == 'logistic':
    loss = 'logistic'
  else:
    loss = 'least_squares'
  rng = np.random.default_rng(33)
  width = next(iter(tensors.values()))[0]
  clients = []
  for n in sizes:
    y: Any
    x = np.round(rng.normal(size=width) / 2 + rng.normal(size=(n, width)), 2)
    size = BATCH_SIZE
    if name == 'asynchronous':
      size = n
    if name == 'logistic':
      y = rng.choice(3, size=n, p=rng.dirichlet([0.5] * 3))
    else:
      y = np.round(x @ rng.normal(size=width) + 0.1 * rng.normal(size=n), 2)
    one_pass = [[*range(k, min(k + size, n))] for k in range(0, n, size)]
    clients.append({'x': x.tolist(), 'y': y.tolist(), 'batches': one_pass * EPOCHS})
  if name == 'least_squares':  # The last one's local training overflows.
    clients[-1]['x'] = (1e200 * np.array(clients[-1]['x'])).tolist()
  theta = np.round(rng.normal(size=sum(int(np.prod(s)) for s in tensors.values())), 2)
  return {'loss': loss, 'tensors': tensors, 'initial': theta.tolist(), 'clients': clients}


def _arrays(problem: Any) -> list[tuple[np.ndarray, np.ndarray]]:
  return [(np.array(client['x']), np.array(client['y'])) for client in problem['clients']]


def rounds(
  settings: Any, problem: Any, cohort: int, factor: float, kind: Any = None
) -> Iterator[Any]:
  """The rounds of a case, by a class of the oracle: each client's, and the server's state then."""
  values = dict(settings['hyperparameters'])
  kind = kind or ORACLES.get(settings['algorithm'], oracle.FedAvg)
  if values.pop('scale_mu', False):
    if issubclass(kind, oracle.FedDyn):
      values['mean_examples'] = np.mean([len(client['y']) for client in problem['clients']])
    else:
      kind = oracle.UnbalancedAdaBest
  if kind is oracle.AdaBest and settings['server_optimizer']['name'] != 'sgd':
    values['by_series'] = True
  shapes = [*problem['tensors'].values()]
  layers = values.pop('layers', None)
  if layers is not None:
    values['mask'] = _mask(layers, shapes)
    if kind is personal.Kept:
      values['is_frozen'] = settings['algorithm'] == 'fed_babu'
  if issubclass(kind, slots.WithLastUpdate):
    values['shapes'] = shapes
  loss: Callable[..., float] = _squared_loss
  gradient: Callable[..., np.ndarray] = _linear
  if problem['loss'] == 'logistic':
    loss = _softmax_loss
    gradient = _softmax
  if kind in (newer.QFedAvg, newer.AFL):
    values['loss'] = loss
  if issubclass(kind, newer.OnScores):
    values['scores'] = _scores
    values['by_scores'] = _by_scores
  server = settings['server_optimizer']
  state = settings['client_optimizer']['state']
  run = kind(
    problem['initial'],
    _arrays(problem),
    server=_optimizer(server, shapes)(),
    eta_l=lambda t: 0.1 * factor**t,
    batch_size=BATCH_SIZE,
    epochs=EPOCHS,
    clip=settings['clip_norm'],
    weight_decay=settings['weight_decay'],
    by_examples=settings['client_weighting'] == 'examples',
    sam_rho=settings['sam_rho'],
    optimizer=_optimizer(settings['client_optimizer'], shapes),
    optimizer_state=state,
    gradient=gradient,
    **values,
  )
  rng = np.random.default_rng(1)
  number = len(problem['clients'])
  for t in range(ROUNDS):
    drawn = rng.choice(number, cohort, replace=False).tolist()
    if settings['algorithm'] == 'scaffnew':
      members = [*range(number)]
    else:
      members = drawn
    steps = {i: len(problem['clients'][i]['batches']) for i in members}
    if factor < 1:  # Some clients stop early.
      steps = {i: min(k, int(rng.integers(2, 12))) for i, k in steps.items()}
    run.round(members, steps)
    clients = [{'client': i, 'steps': k, **_client(run, i, state)} for i, k in steps.items()]
    yield {'client_rate': run.eta_l(t), 'clients': clients, 'server': _server(run, state)}


def _client(run: oracle.FedAvg, i: int, state: str) -> dict[str, Any]:
  """What a client sends, and its state after the round; None for one that is left out."""
  if i not in run.last_g:
    return {'weight': 0.0, 'update': None}
  shares = dict.fromkeys(run.last_g, 1)
  if run.by_examples:
    shares = {j: len(run.clients[j][1]) for j in run.last_g}
  content: dict[str, Any] = {}
  with_h_i = (oracle.Scaffold, oracle.FedDyn, oracle.AdaBest, methods.Scaffnew, newer.FedDC)
  content.update({name: np.atleast_1d(value).copy() for name, value in run.state(i).items()})
  if isinstance(run, with_h_i):
    mu = getattr(run, 'mu', 1.0)  # The oracle has it within h_i, as AdaBest's Algorithm 1.
    if isinstance(mu, list):
      mu = mu[i]
    content['h'] = run.h_i[i] / mu
  if state == 'keep':
    content.update(m=-run.optimizers[i].m, v=run.optimizers[i].v)
  sent = {'weight': shares[i] / sum(shares.values()), 'update': run.last_g[i]}
  if content:
    return {**sent, 'state': content}
  return sent


def _server(run: oracle.FedAvg, state: str) -> dict[str, Any]:
  """The server's state; m of an optimizer is that of the gradient, as in the formulas."""
  values: dict[str, Any] = {'x': run.theta}
  with_h = isinstance(run, (oracle.Scaffold, oracle.FedDyn, oracle.AdaBest, newer.FedDC))
  if with_h or isinstance(run, methods.FedExP):
    values['x_bar'] = run.theta_bar
  if with_h or isinstance(run, methods.FedCM):
    values['h'] = run.h
  if isinstance(run, compressed.TopKDownFedAvg):
    values['received'] = run.broadcast.known
  values.update(_slots(run.server))
  if isinstance(run, methods.MimeLite):
    names = {'sgdm': 'm', 'adagrad': 'v'}.get(run.kind, 'mv')
    values.update({f'base_{name}': getattr(run, name) for name in names})
  if state == 'average':
    slots = _slots(run.optimizers[0])
    values.update({f'client_{name}': slot for name, slot in slots.items()})
  return values


def _slots(optimizer: Any) -> dict[str, Any]:
  """m, v and v_max of an optimizer, where it has them."""
  is_plain = isinstance(optimizer, oracle.Sgd) and not optimizer.momentum
  is_plain |= isinstance(optimizer, oracle.Adaptive) and not optimizer.beta1
  slots = {k: getattr(optimizer, k) for k in ('m', 'v', 'v_max') if hasattr(optimizer, k)}
  if is_plain:
    slots.pop('m', None)
  if 'm' in slots:
    slots['m'] = -slots['m']
  return slots


def _arrivals(settings: Any, problem: Any) -> Iterator[Any]:
  """The server steps of a case that does not wait, with what arrived for each."""
  steps: list[Any] = []
  is_async = settings['algorithm'] == 'fed_async'
  base: type[asynchronous.FedBuff] = asynchronous.FedBuff
  if is_async:
    base = asynchronous.FedAsync
  values = settings['hyperparameters']
  rate = settings['server_optimizer']['rate']
  size = values.get('buffer_size', 1)

  class Logged(base):  # type: ignore[valid-type, misc]
    """Keeps what arrived."""

    def step(self, buffer: Any) -> None:
      super().step(buffer)
      arrived = [
        {'client': i, 'steps': EPOCHS, 'weight': 1 / size, 'update': d, 'staleness': int(tau)}
        | {'factor': self.factor(tau)}
        for i, tau, d, _ in buffer
      ]
      server = {'x': self.w}
      if not is_async:
        server |= _slots(optimizer)
      steps.append({'client_rate': self.rate, 'clients': arrived, 'server': server})

  def factor(tau: int) -> float:
    if is_async:
      if tau <= values['b']:
        return 1.0
      return 1 / (values['a'] * (tau - values['b']) + 1)
    return (1 + tau) ** -values['a']

  optimizer = _optimizer(settings['server_optimizer'], [])()
  clients = _arrays(problem)
  seconds = [1.0, 1.37, 2.11, 3.03, 5.29, 8.71]

  def server(w: np.ndarray, d: np.ndarray) -> np.ndarray:
    return optimizer(w, -d)

  run = Logged(clients, seconds, size, factor, server, 0.1, EPOCHS, alpha=rate)
  run.w = np.array(problem['initial'])
  run.history = [run.w]
  run.run(ROUNDS)
  return iter(steps)


def files() -> dict[str, dict[str, Any]]:
  """The content of each file, by its name."""
  linear = {'w': [5]}
  softmax = {'W': [3, 3], 'b': [3]}
  sizes = [3, 11, 4, 8, 16, 5, 9]
  few: Any = functools.partial(rounds, **SCHEDULES['logistic'])
  many: Any = functools.partial(rounds, **SCHEDULES['least_squares'])
  contents: dict[str, dict[str, Any]] = {}
  for name, tensors, numbers, cases, make in (
    ('least_squares', linear, [*sizes, 6], LEAST_SQUARES, many),
    ('logistic', softmax, sizes, LOGISTIC, few),
    ('asynchronous', linear, sizes[:6], ASYNCHRONOUS, _arrivals),
  ):
    problem = _problem(name, tensors, numbers)
    with np.errstate(all='ignore'):  # A client overflows.
      done = [{**one, 'rounds': [*make(one, problem)]} for one in cases]
    contents[name] = {'version': VERSION, 'problem': problem, 'cases': done}
  return contents


def differences(actual: Any, wanted: Any, where: str = '') -> Iterator[str]:
  """Where two contents differ, as paths of keys and positions."""
  if isinstance(actual, np.ndarray):
    actual = actual.tolist()
  if isinstance(actual, dict) and isinstance(wanted, dict) and actual.keys() == wanted.keys():
    for key in actual:
      yield from differences(actual[key], wanted[key], f'{where}/{key}')
  elif isinstance(actual, list) and isinstance(wanted, list) and len(actual) == len(wanted):
    if actual and isinstance(actual[0], float):
      if np.abs(np.subtract(actual, wanted)).max() > TOLERANCE * np.abs(wanted).max():
        yield where
      return
    for k, (one, other) in enumerate(zip(actual, wanted)):
      yield from differences(one, other, f'{where}/{k}')
  elif isinstance(actual, float) and isinstance(wanted, float):
    if abs(actual - wanted) > TOLERANCE * abs(wanted):
      yield where
  elif actual != wanted:
    yield where


def _text(content: dict[str, Any]) -> str:
  """The file's text: a line a client, a case and a round."""
  text = json.dumps(content, default=np.ndarray.tolist, separators=(',', ':'), allow_nan=False)
  begins = r'(?<=[\[,])(?={"(x|name|client_rate)":)|(?<=,)(?="(problem|cases)":)'
  return re.sub(rf'{begins}|(?<=}})(?=\]}})', '\n', text) + '\n'


def main() -> int:
  """Writes the files that differ; 1 if one did."""
  status = 0
  for name, content in files().items():
    path = FOLDER / f'{name}.json'
    if path.exists():
      before = json.loads(path.read_text(encoding='utf-8'))
    else:
      before = None
    deviations = [*differences(content, before)]
    if deviations:
      said = f'differs at {deviations[:5]}: written anew'
    else:
      said = 'the same'
    sys.stdout.write(f'{path.name}: {said}\n')
    if deviations:
      status = 1
      path.write_text(_text(content), encoding='utf-8')
  return status


if __name__ == '__main__':
  sys.exit(main())
