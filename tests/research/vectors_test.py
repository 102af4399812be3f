"""This project against vectors/: every case in the graph engine and in TFF's native context.

`make vectors` runs all of them. `make test` leaves out what is marked `exhaustive`: it takes every
algorithm once in the graph engine, and one case of six in TFF's native context.
"""

import collections
import itertools
import json

import jsonschema
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import oracle
from research import vectors
from tests.helpers import engines, small_problem
from tff_adaptive import (
  algorithms,
  asynchrony,
  corrections,
  engine,
  models,
  registry,
  schedules,
)
from tff_adaptive.client import Batching, ClientTraining, client_arrays
from tff_adaptive.registry import described

FILES = {
  path.stem: json.loads(path.read_text(encoding='utf-8')) for path in vectors.FOLDER.glob('*.json')
}
SCHEMA = FILES.pop('schema')
CASES = []
for _name, _file in FILES.items():
  CASES += [(_name, case) for case in _file['cases']]
TOLERANCE = 1e-5  # Relative to the largest entry; this project computes in float32.


def _is_plain(name, case):
  """Whether a case differs from FedAvg in its optimizers alone: these share a process."""
  changes = (case[key] for key in ('sam_rho', 'clip_norm', 'weight_decay'))
  entry = name != 'asynchronous' and registry.algorithm(case['algorithm'])
  keeps = case['client_optimizer']['state'] != 'reset'
  return bool(entry) and not described.classes_of(entry) and not any(changes) and not keeps


def _groups():
  """Lists of cases: those that share a process, by file and weighting, and each of the others."""
  groups = collections.defaultdict(list)
  for name, case in CASES:
    group = 'optimizers' if _is_plain(name, case) else case['name']
    groups[name, group, case['client_weighting']].append(case)
  return groups


GROUPS = _groups()
# Which of the weightings of a file `make test` takes; `asynchronous` has one.
WEIGHTINGS = {'least_squares': 'uniform', 'logistic': 'examples'}
NATIVE_SHARE = 6


def _marked(values, identifier, is_exhaustive):
  """A case of a test, which `make test` leaves out if it is exhaustive."""
  if is_exhaustive:
    marks = [pytest.mark.exhaustive]
  else:
    marks = []
  return pytest.param(*values, id=identifier, marks=marks)


def _graph_cases():
  for group in GROUPS:
    name, _, weighting = group
    yield _marked([group], '-'.join(group), weighting != WEIGHTINGS.get(name, weighting))


def _native_cases():
  for i, (name, case) in enumerate(CASES):
    yield _marked([name, case], f'{name}-{case["name"]}', i % NATIVE_SHARE != 0)


class SideBySide(tff.learning.optimizers.Optimizer):
  """An optimizer for each of several equal parts of the weights."""

  def __init__(self, optimizers):
    self._optimizers = optimizers

  def _parts(self, leaves):
    each = len(leaves) // len(self._optimizers)
    return [tuple(leaves[i : i + each]) for i in range(0, len(leaves), each)]

  def initialize(self, specs):
    pairs = zip(self._optimizers, self._parts(specs))
    return collections.OrderedDict(parts=tuple(o.initialize(part) for o, part in pairs))

  @tf.autograph.experimental.do_not_convert
  def next(self, state, weights, gradients):
    parts = zip(self._optimizers, state['parts'], *map(self._parts, (weights, gradients)))
    states, new = zip(*(optimizer.next(*part) for optimizer, *part in parts))
    weights = tf.nest.pack_sequence_as(weights, tf.nest.flatten(new))
    return collections.OrderedDict(parts=tuple(states)), weights

  def get_hparams(self, state):
    return collections.OrderedDict(learning_rate=state['parts'][0]['learning_rate'])

  def set_hparams(self, state, hparams):
    parts = (collections.OrderedDict(part, **hparams) for part in state['parts'])
    return collections.OrderedDict(parts=tuple(parts))


def _model(problem, copies):
  """The problem's model, so many times side by side: the loss is the sum of theirs."""
  is_linear = problem['loss'] == 'least_squares'
  shapes = list(problem['tensors'].values())

  def forward(weights, x, training, seed):
    each = [weights[i : i + len(shapes)] for i in range(0, len(weights), len(shapes))]
    if is_linear:
      return tf.stack([tf.linalg.matvec(x, w) for (w,) in each], -1)
    scores = [x @ w + b[..., tf.newaxis, :] for w, b in each]
    if copies == 1:  # In the form that parts know which ask for the logits.
      return scores[0]
    return tf.stack(scores, -1)

  def example_loss(prediction, y):
    if is_linear:
      return tf.reduce_sum(0.5 * tf.square(prediction - y[..., tf.newaxis]), -1)
    if copies == 1:
      return models.sparse_cross_entropy(prediction, y)
    return tf.add_n(
      [models.sparse_cross_entropy(one, y) for one in tf.unstack(prediction, axis=-1)]
    )

  cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
  parts = np.split(np.float32(problem['initial']), cuts)
  return models.Model(
    initial_weights=[part.reshape(shape) for part, shape in zip(parts, shapes)] * copies,
    forward=forward,
    example_loss=example_loss,
    metrics={},
    x_spec=tf.TensorSpec([None, shapes[0][0]], tf.float32),
    y_spec=tf.TensorSpec([None], tf.float32 if is_linear else tf.int32),
    client_axis=True,
  )


def _optimizer(cases, kind):
  """The optimizer that the cases' settings describe, side by side if they are several."""
  built = []
  for values in (case[kind] for case in cases):
    options = {k: v for k, v in values.items() if k not in ('name', 'rate', 'state')}
    if kind == 'server_optimizer':
      built.append(algorithms.build_server_optimizer(values['name'], values['rate'], options))
    else:
      built.append(algorithms.build_client_optimizer(values['name'], options))
  if len(built) > 1:
    return SideBySide(built)
  return built[0]


def _process(name, cases, problem):
  case = cases[0]
  sizes = [len(client['y']) for client in problem['clients']]
  rates = [r['client_rate'] for r in case['rounds']]
  waits = name != 'asynchronous'
  training = ClientTraining(
    optimizer=_optimizer(cases, 'client_optimizer'),
    optimizer_state=case['client_optimizer']['state'],
    batching=Batching(4 if waits else None, epochs=2, shuffle=False, step_limits=True),
  )
  parts = {key: case[key] for key in ('sam_rho', 'clip_norm', 'weight_decay')}
  return algorithms.build_process(
    case['algorithm'] if waits and len(cases) == 1 else 'fed_avg',
    _model(problem, len(cases)),
    values=case['hyperparameters'] if waits else {},
    clients=corrections.RegisteredClients(len(sizes), float(np.mean(sizes))),
    client_learning_rate=schedules.RoundDecay(rates[0], factor=rates[1] / rates[0]),
    server_optimizer=_optimizer(cases, 'server_optimizer'),
    client_weighting=case['client_weighting'],
    training=training,
    more_parts=algorithms.regularization(**parts),
    asynchrony=None if waits else _asynchrony(case),
  )


def _asynchrony(case):
  """The settings of asynchronous training of which a process knows."""
  return asynchrony.Buffered(1, mixing=case['algorithm'] == 'fed_async')


def _data(client, problem, t, factor):
  """A client's whole arrays; where rounds do not wait, with the model that it began with."""
  number = client['client']
  staleness = client.get('staleness')
  more = {}
  if staleness is not None:
    row = t - staleness if staleness else -1
    more = {'older_model': row, factor: client['factor']}
  arrays = [np.array(problem['clients'][number][key]) for key in 'xy']
  with np.errstate(over='ignore'):
    x, y = (a.astype(np.int32 if a.dtype == int else np.float32) for a in arrays)
  more = {k: np.float32(v) if k == factor else np.int32(v) for k, v in more.items()}
  return client_arrays(x, y, number, client['steps'], **more)


def _slots(leaves, problem):
  """m, v and v_max of a client optimizer's tensors, among which its count of steps is."""
  leaves = [leaf for leaf in leaves if np.ndim(leaf)]
  each = len(problem['tensors'])
  groups = [oracle.pack(leaves[k : k + each]) for k in range(0, len(leaves), each)]
  return dict(zip(('m', 'v', 'v_max'), groups))


def _servers(run, cases, problem):
  """Of each case the server's state by the names of the vectors."""
  state = run.state
  correction_state = getattr(run.state, 'correction', ())
  if len(cases) == 1:
    parts = [state.finalizer]
  else:
    parts = state.finalizer['parts']
  for case, theta, part in zip(cases, np.split(run.theta, len(cases)), parts):
    values = {'x': theta}
    for name in {'m', 'v'} & {*part}:
      m_of_delta = name == 'm' and case['server_optimizer']['name'] in ('adagrad', 'adam', 'yogi')
      sign = -1 if m_of_delta else 1
      values[name] = sign * oracle.pack(part[name])
    if getattr(state, 'inference_weights', ()):
      values['x_bar'] = run.theta_bar
    if isinstance(correction_state, tuple) and any(
      isinstance(part, dict) for part in correction_state
    ):
      correction_state = next(
        part for part in correction_state if isinstance(part, dict)
      )  # Of a chain's state.
    if (
      isinstance(correction_state, tuple)
      and correction_state
      and isinstance(correction_state[-1], tuple)
    ):
      correction_state = correction_state[0]  # The correction's part of a chain's state.
    if isinstance(correction_state, dict) and 'shadow' in correction_state:
      values['received'] = oracle.pack(correction_state['shadow'][0])
    if case['client_optimizer']['state'] == 'average':
      averaged = _slots(correction_state['optimizer'], problem)
      values.update({f'client_{name}': slot for name, slot in averaged.items()})
    elif isinstance(correction_state, dict):
      values.update(
        {
          {'m': 'base_m', 'v': 'base_v'}.get(k, k): correction_state[k]
          for k in {*correction_state} & {*'hmv'}
        }
      )
    elif 'alpha' in case['hyperparameters']:
      values['h'] = correction_state
    yield values


def _client(run, number, problem):
  """A client's state by the names of the vectors."""
  state = run.client_states[number]
  if 'optimizer' in state:
    return _slots(state['optimizer'], problem)
  names = ('own', 'alpha', 'received', 'ended', 'last', 'share')
  names = [name for name in names if name in state]
  if names and 'scale' not in state:
    return {name: oracle.pack(tf.nest.flatten(state[name])) for name in names}
  memories_by_name = {}
  if isinstance(state, tuple):
    for part in state:
      if 'memory' in part:
        memories = zip(('memory', 'memory_of_h'), part['memory'])
        memories_by_name.update({name: oracle.pack(memory) for name, memory in memories})
    if not any('h' in part for part in state):
      return memories_by_name
  h = run.h_i(number)
  if 'ended' in state:  # Scaffnew's h_i moves when the client takes part again.
    h = h + state['scale'] * (run.theta - oracle.pack(state['ended']))
  return {'h': h, **memories_by_name}


def _close(actual, wanted, where):
  assert actual.keys() == wanted.keys(), where
  for name, value in wanted.items():
    if isinstance(actual[name], np.ndarray):
      one = actual[name]
    else:
      one = oracle.pack(actual[name])
    error = np.abs(one - value).max()
    size = max(np.abs(value).max(), 1e-2)
    if name == 'memory_of_h':
      # It is left of changes of h_i, g_i over K_i eta_l, and has their rounding, which is of h_i.
      size = max(size, np.abs(wanted['h']).max())
    assert error <= TOLERANCE * size, f'{where}, {name}: {error}'


def _compare(name, cases):
  problem = FILES[name]['problem']
  case = cases[0]
  run = small_problem.Run(_process(name, cases, problem), None)
  older = []
  factor = _asynchrony(case).factor_entry
  for t, first in enumerate(case['rounds']):
    clients = first['clients']
    if older:  # The models before, from which the clients begin.
      stack = tf.nest.map_structure(lambda *rows: np.concatenate(rows), *older)
      run.state = run.state._replace(older=stack)
    data = [_data(c, problem, t, factor) for c in clients]
    run.step(data, [c['client'] for c in clients])
    if name == 'asynchronous':
      older.append(run.state.older)
    for each, values in zip(cases, _servers(run, cases, problem)):
      _close(values, each['rounds'][t]['server'], f'{each["name"]}, round {t}')
    for c in clients:
      if 'state' in c:
        _close(_client(run, c['client'], problem), c['state'], f'round {t}, client {c["client"]}')


@pytest.mark.parametrize('group', _graph_cases())
@pytest.mark.sample(4)
def test_the_graph_engine_computes_the_vectors(group):
  """In groups of clients on least squares, which every algorithm has, and else client by client."""
  name = group[0]
  cases = GROUPS[group]
  with engine.graph_context(clients_per_step=2 if name == 'least_squares' else 1):
    _compare(name, cases)


@pytest.mark.parametrize('name, case', _native_cases())
@pytest.mark.sample(1)
def test_the_native_context_computes_them(native, name, case):
  engines.run(native, _compare, name, [case])


def test_the_oracle_makes_the_vectors_that_are_committed():
  contents = vectors.files()
  assert contents.keys() == FILES.keys()
  for name, content in contents.items():
    assert [*vectors.differences(content, FILES[name])] == [], 'make vectors writes them anew'


@pytest.mark.parametrize('name', FILES)
def test_a_file_has_the_form_of_the_schema(name):
  jsonschema.Draft202012Validator(SCHEMA).validate(FILES[name])


def test_the_vectors_have_every_algorithm_and_optimizer_and_a_client_that_diverges():
  """So that a new entry of the registry gets its vectors."""
  cases = [case for _, case in CASES]
  of_others = {'fed_buff', 'fed_async'}
  # Their losses are of a hidden layer, which neither problem has.
  of_losses = {'moon', 'fed_proto'}
  chains = {name for name in vectors.ORACLES if '+' in name}
  assert len(chains) >= 3
  algorithms = {case['algorithm'] for case in cases}
  assert algorithms == {*registry.ALGORITHMS} - of_losses | of_others | chains
  for kind, entries in (
    ('server_optimizer', registry.SERVER_OPTIMIZERS),
    ('client_optimizer', registry.CLIENT_OPTIMIZERS),
  ):
    assert {case[kind]['name'] for case in cases} == {*entries}
  rounds = itertools.chain.from_iterable(case['rounds'] for case in cases)
  clients = itertools.chain.from_iterable(r['clients'] for r in rounds)
  assert None in [client['update'] for client in clients]
  assert sum(path.stat().st_size for path in vectors.FOLDER.iterdir()) < 3e6
