"""This project against vectors/: all cases in the graph engine, some in TFF's native context."""

import json

import jsonschema
import numpy as np
import pytest
import tensorflow as tf

from research import vectors
from tests.helpers import engines, oracle, small_problem
from tff_adaptive import algorithms, corrections, engine, models, registry, schedules
from tff_adaptive.client import Batching, ClientTraining, client_arrays

FILES = {
  path.stem: json.loads(path.read_text(encoding='utf-8')) for path in vectors.FOLDER.glob('*.json')
}
SCHEMA = FILES.pop('schema')
CASES = [(name, case) for name, file in FILES.items() for case in file['cases']]
# A process takes longer there.
IN_NATIVE = [
  (name, case)
  for name, case in CASES
  if name != 'logistic' and case['name'] in ('fed_adam', 'scaffold', 'mime', 'diloco', 'fed_buff')
]
TOLERANCE = 1e-5  # Relative to the largest entry; this project computes in float32.


def _model(problem):
  is_linear = problem['loss'] == 'least_squares'

  def forward(weights, x, training, seed):
    if is_linear:
      return tf.linalg.matvec(x, weights[0])
    return x @ weights[0] + weights[1][..., tf.newaxis, :]

  shapes = problem['tensors'].values()
  cuts = np.cumsum([np.prod(shape) for shape in shapes])[:-1]
  parts = np.split(np.float32(problem['initial']), cuts)
  return models.Model(
    initial_weights=[part.reshape(shape) for part, shape in zip(parts, shapes)],
    forward=forward,
    example_loss=(lambda found, y: 0.5 * tf.square(found - y))
    if is_linear
    else models.sparse_cross_entropy,
    metrics={},
    x_spec=tf.TensorSpec([None, next(iter(shapes))[0]], tf.float32),
    y_spec=tf.TensorSpec([None], tf.float32 if is_linear else tf.int32),
  )


def _built(values, build, *rate):
  """An optimizer of its settings."""
  options = {k: v for k, v in values.items() if k not in ('name', 'rate', 'state')}
  return build(values['name'], *rate, options)


def _process(name, case, problem):
  sizes = [len(client['y']) for client in problem['clients']]
  rates = [r['client_rate'] for r in case['rounds']]
  waits, server = name != 'asynchronous', case['server_optimizer']
  training = ClientTraining(
    optimizer=_built(case['client_optimizer'], algorithms.build_client_optimizer),
    optimizer_state=case['client_optimizer']['state'],
    batching=Batching(4 if waits else None, epochs=2, shuffle=False, step_limits=True),
    versions=0 if waits else len(rates),
    mixing=case['algorithm'] == 'fed_async',
    **{key: case[key] for key in ('sam_rho', 'clip_norm', 'weight_decay')},
  )
  return algorithms.build_process(
    case['algorithm'] if waits else 'fed_avg',
    _model(problem),
    values=case['hyperparameters'] if waits else {},
    clients=corrections.RegisteredClients(len(sizes), float(np.mean(sizes))),
    client_learning_rate=schedules.RoundDecay(rates[0], factor=rates[1] / rates[0]),
    server_optimizer=_built(server, algorithms.build_server_optimizer, server['rate']),
    client_weighting=case['client_weighting'],
    training=training,
  )


def _data(client, problem, t, factor):
  """A client's whole arrays; where rounds do not wait, with the model that it began with.

  `factor` is what an element calls the factor of its update.
  """
  number, staleness = client['client'], client.get('staleness')
  more = {}
  if staleness is not None:
    version = t - staleness if staleness else -1
    more = {'version': version, factor: client['factor']}
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


def _server(run, case, problem):
  """The server's state by the names of the vectors."""
  state, own = run.state, getattr(run.state, 'correction', ())
  found = {'x': run.theta}
  for name in {'m', 'v'} & {*state.finalizer}:
    m_of_delta = name == 'm' and case['server_optimizer']['name'] in ('adagrad', 'adam', 'yogi')
    found[name] = (-1 if m_of_delta else 1) * oracle.pack(state.finalizer[name])
  if getattr(state, 'inference_weights', ()):
    found['x_bar'] = run.theta_bar
  if case['client_optimizer']['state'] == 'average':
    slots = _slots(own['optimizer'], problem)
    found.update({f'client_{name}': slot for name, slot in slots.items()})
  elif isinstance(own, dict):
    found.update({{'m': 'base_m', 'v': 'base_v'}.get(k, k): own[k] for k in {*own} & {*'hmv'}})
  elif 'alpha' in case['hyperparameters']:
    found['h'] = own
  return found


def _client(run, number, problem):
  """A client's state by the names of the vectors."""
  state = run.client_states[number]
  if 'optimizer' in state:
    return _slots(state['optimizer'], problem)
  h = run.h_i(number)
  if 'ended' in state:  # Scaffnew's h_i moves when the client takes part again.
    h = h + state['scale'] * (run.theta - oracle.pack(state['ended']))
  return {'h': h}


def _close(found, wanted, where):
  assert found.keys() == wanted.keys(), where
  for name, value in wanted.items():
    one = found[name] if isinstance(found[name], np.ndarray) else oracle.pack(found[name])
    error = np.abs(one - value).max()
    assert error <= TOLERANCE * max(np.abs(value).max(), 1e-2), f'{where}, {name}: {error}'


def _compare(name, case):
  problem = FILES[name]['problem']
  run, older = small_problem.Run(_process(name, case, problem), None), []
  factor = 'mixed' if case['algorithm'] == 'fed_async' else 'discount'
  for t, wanted in enumerate(case['rounds']):
    clients = wanted['clients']
    if older:  # The models before, from which the clients begin.
      stack = tf.nest.map_structure(lambda *rows: np.concatenate(rows), *older)
      run.state = run.state._replace(distributor=stack)
    data = [_data(c, problem, t, factor) for c in clients]
    run.step(data, [c['client'] for c in clients])
    if name == 'asynchronous':
      older.append(run.state.distributor)
    _close(_server(run, case, problem), wanted['server'], f'round {t}')
    for c in clients:
      if 'state' in c:
        _close(_client(run, c['client'], problem), c['state'], f'round {t}, client {c["client"]}')


def _ids(cases):
  return [f'{name}-{case["name"]}' for name, case in cases]


@pytest.mark.parametrize('name, case', CASES, ids=_ids(CASES))
def test_the_graph_engine_computes_the_vectors(name, case):
  with engine.graph_context():
    _compare(name, case)


@pytest.mark.parametrize('name, case', IN_NATIVE, ids=_ids(IN_NATIVE))
def test_the_native_context_computes_some_of_them(native, name, case):
  engines.run(native, _compare, name, case)


def test_the_oracle_makes_the_vectors_that_are_committed():
  made = vectors.files()
  assert made.keys() == FILES.keys()
  for name, content in made.items():
    assert [*vectors.differences(content, FILES[name])] == [], 'make vectors writes them anew'


@pytest.mark.parametrize('name', FILES)
def test_a_file_has_the_form_of_the_schema(name):
  jsonschema.Draft202012Validator(SCHEMA).validate(FILES[name])


def test_the_vectors_have_every_algorithm_and_optimizer_and_a_client_that_diverges():
  """So that a new entry of the registry gets its vectors."""
  cases = [case for _, case in CASES]
  of_others = {'fed_buff', 'fed_async'}
  assert {case['algorithm'] for case in cases} == {*registry.ALGORITHMS} | of_others
  for kind, entries in (
    ('server_optimizer', registry.SERVER_OPTIMIZERS),
    ('client_optimizer', registry.CLIENT_OPTIMIZERS),
  ):
    assert {case[kind]['name'] for case in cases} == {*entries}
  sent = [c['update'] for case in cases for r in case['rounds'] for c in r['clients']]
  assert None in sent
  assert sum(path.stat().st_size for path in vectors.FOLDER.iterdir()) < 3e6
