"""Asynchronous training: against an oracle in NumPy, synchronous rounds, and themselves."""

import collections
import contextlib
import dataclasses
import functools
import re
import typing
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import oracle
import tff_adaptive_tasks as tasks
from oracle import asynchronous
from tests.helpers import fakes
from tff_adaptive import (
  aggregation,
  algorithms,
  asynchrony,
  corrections,
  costs,
  models,
  optimizers,
  population,
  registry,
  training,
)
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive.engine.cluster import subrounds
from tff_adaptive.engine.graph import context
from tff_adaptive.runs import state_store

N = 6
STEPS = 3
RATE = 0.1
SECONDS = [1.0, 1.37, 2.11, 3.03, 5.29, 8.71]  # No two arrive at once.


def _clients():
  rng = np.random.default_rng(5)
  data = []
  for n in (4, 7, 5, 9, 6, 8):
    x = rng.normal(size=(n, 3)).astype(np.float32)
    data.append((x, (x @ rng.normal(size=3) + 0.1 * rng.normal(size=n)).astype(np.float32)))
  return data


def _model():
  return models.Model(
    initial_weights=[np.zeros(3, np.float32)],
    forward=lambda weights, x, training, seed: tf.linalg.matvec(x, weights[0]),
    example_loss=lambda prediction, y: 0.5 * tf.square(prediction - y),
    x_spec=tf.TensorSpec([None, 3], tf.float32),
    y_spec=tf.TensorSpec([None], tf.float32),
    metrics={},
  )


CLIENTS = tasks.InMemoryClientData({f'c{i}': pair for i, pair in enumerate(_clients())})


def _config(rounds, size, buffered, seconds=SECONDS, **options):
  profile = {f'c{i}': s / STEPS for i, s in enumerate(seconds)}
  speed = population.Speed(downlink=1e9, uplink=1e9, profiles={'seconds_per_step': profile})
  return training.TrainingConfig(
    rounds=rounds,
    clients_per_round=size,
    rounds_per_evaluation=1,
    cost_model=costs.CostModel(registry.Counts(), 3, None, epochs=STEPS),
    population=population.Population(speed=speed, **options.pop('people', {})),
    asynchrony=buffered,
    **options,
  )


def _in(engine):
  return tff.framework.get_context_stack().install(engine)


@pytest.fixture(scope='module', autouse=True)
def _one_engine():
  """A process is traced once for all tests."""
  with _in(context.GraphContext(parallel_clients=3)):
    yield


@functools.cache
def _build(name, buffered, **options):
  options.update(
    training=ClientTraining(batching=Batching(None, epochs=STEPS)),
    client_learning_rate=RATE,
    client_weighting='uniform',
    asynchrony=buffered,
  )
  if name == 'fed_cm':
    return algorithms.build_drift_corrected(_model(), corrections.FedCM(0.3), **options)
  if name == 'scaffold':
    options['num_clients'] = N
  return getattr(algorithms, f'build_{name}')(_model(), **options)


def _run(name, config, folder=None, engine=None, callbacks=(), **options):
  """The weights after each step, the rows but for seconds of this machine, and the result."""
  buffered = config.asynchrony
  if buffered is not None:  # Of a process only `mixing` changes anything.
    buffered = asynchrony.Buffered(1, mixing=buffered.mixing)
  process = _build(name, buffered, **options)
  seen = []

  def evaluate(weights):
    seen.append(np.asarray(weights[0]))
    return {'loss': float(np.sum(seen[-1]))}

  with fakes.no_figures(), _in(engine) if engine else contextlib.nullcontext():
    result = training.train(
      process,
      CLIENTS,
      evaluate,
      config,
      output_dir=folder and str(folder),
      callbacks=callbacks,
      show_progress=False,
    )
  each = 1 + bool(getattr(result.state, 'inference_weights', ()))
  return np.array(seen[::each]), result


def _assert_same(one, other):
  tf.nest.map_structure(np.testing.assert_array_equal, one.state, other.state)


def _polynomial(tau):
  return (1 + tau) ** -0.5


def _hinge(tau):
  if tau <= 1:
    return 1.0
  return 1 / (2 * (tau - 1) + 1)


def _constant(tau):
  return 0.3 if tau else 1.0


@dataclasses.dataclass(frozen=True)
class Buffering:
  """An algorithm with a buffer, and the oracle's class with its options."""

  algorithm: str
  of_oracle: type
  size: int = 2
  buffered: asynchrony.Buffered = dataclasses.field(default_factory=lambda: asynchrony.Buffered(N))
  options: dict = dataclasses.field(default_factory=dict)
  factor: Callable = _polynomial
  server: oracle.Sgd | None = dataclasses.field(default_factory=lambda: oracle.Sgd(1.0))
  oracle_options: dict = dataclasses.field(default_factory=dict)


CASES = {
  'fed_async': Buffering(
    'fed_avg',
    asynchronous.FedAsync,
    size=1,
    buffered=asynchrony.Buffered(N, 'hinge', a=2.0, b=1.0, mixing=True),
    options={'server_learning_rate': 0.6},
    factor=_hinge,
    server=None,
    oracle_options={'alpha': 0.6},
  ),
  'dropping': Buffering(
    'fed_avg',
    asynchronous.FedBuff,
    buffered=asynchrony.Buffered(N, 'constant', c=0.3, max_staleness=2),
    factor=_constant,
    oracle_options={'most': 2},
  ),
  'scaffold': Buffering(
    'scaffold',
    asynchronous.Scaffold,
    options={'server_optimizer': optimizers.build_sgdm(0.7)},
    server=oracle.Sgd(0.7),
  ),
  'ada_best': Buffering(
    'ada_best',
    asynchronous.AdaBest,
    options={'mu': 0.2, 'beta': 0.5, 'beta_decay': 1.0},
    oracle_options={'mu': 0.2, 'beta': 0.5},
  ),
  'fed_cm': Buffering('fed_cm', asynchronous.FedCM, oracle_options={'alpha': 0.3}),
}


@pytest.mark.parametrize('case', CASES)
@pytest.mark.sample(1)
def test_each_server_step_is_that_of_the_event_by_event_oracle(case):
  given = CASES[case]
  config = _config(30, given.size, given.buffered)
  models, _ = _run(given.algorithm, config, **given.options)
  descend = given.server and (lambda w, direction: given.server(w, -direction))
  expected = given.of_oracle(
    _clients(),
    SECONDS,
    given.size,
    given.factor,
    descend,
    RATE,
    STEPS,
    **given.oracle_options,
  ).run(30)
  error = np.abs(models - expected).max(1)
  assert error.max() <= 2e-5 * np.abs(expected).max(), (case, error)


@pytest.mark.parametrize('case', ['dropping', 'ada_best'])
@pytest.mark.sample(1)
def test_a_full_buffer_of_equal_clients_equals_synchronous_rounds_to_the_bit(tmp_path, case):
  """Whether clients keep a state or not."""
  given = CASES[case]
  rows = []
  weights = []
  for buffered in (None, asynchrony.Buffered(3)):
    folder = tmp_path / str(len(rows))
    config = _config(8, 3, buffered, [1.0] * N)
    weights.append(_run(given.algorithm, config, folder, **given.options)[0])
    rows.append(fakes.rows(folder))
  np.testing.assert_array_equal(*weights)
  # A process without a server's part has fewer columns.
  for waited, arrived in zip(*rows):
    assert waited == {k: arrived[k] for k in waited}


BUFFERED = asynchrony.Buffered(4, max_staleness=3)
MIXING = asynchrony.Buffered(4, mixing=True)


def _unsteady(rounds, folder=None, engine=None, callbacks=(), **options):
  people = {'dropout_rate': 0.2, 'availability': population.Independent(0.8)}
  config = _config(rounds, 2, BUFFERED, people=people, **options)
  return _run('scaffold', config, folder, engine, callbacks, **CASES['scaffold'].options)[1]


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """The folder and the result of 14 rounds in one go."""
  folder = tmp_path_factory.mktemp('whole')
  return folder, _unsteady(14, folder)


class _Killed(BaseException):
  """As `kill -9`, it leaves nobody the time to save."""


class _Killer(training.Callback):
  def round_end(self, row):
    if row['round'] == 3:
      raise _Killed


def test_killed_and_resumed_in_steps_equals_one_go(tmp_path, whole):
  with pytest.raises(_Killed):
    _unsteady(3, tmp_path, callbacks=[_Killer()], rounds_per_checkpoint=2)
  for rounds in (3, 14):  # A longer run may need more room for older models.
    parts = _unsteady(rounds, tmp_path)
  folder, result = whole
  assert fakes.rows(tmp_path) == fakes.rows(folder)
  _assert_same(parts, result)


@pytest.mark.sample(1)
@pytest.mark.parametrize('buffered', [None, asynchrony.Buffered(4)])
def test_the_virtual_clock_says_when_to_evaluate(tmp_path, buffered):
  config = _config(14, 2, buffered, virtual_seconds_per_evaluation=3.5)
  _run('fed_avg', config, tmp_path / 'whole')
  rows = fakes.rows(tmp_path / 'whole')
  passed = np.cumsum([float(row['virtual_seconds'] or 0) for row in rows]) // 3.5
  assert len({*passed}) < 14
  is_due = np.diff(passed, prepend=-1) > 0
  is_due[-1] = True
  assert [bool(row['validation_loss']) for row in rows] == is_due.tolist()
  with pytest.raises(_Killed):
    _run('fed_avg', config, tmp_path / 'parts', callbacks=[_Killer()])
  _run('fed_avg', config, tmp_path / 'parts')
  assert fakes.rows(tmp_path / 'parts') == rows


@pytest.mark.exhaustive
def test_waves_and_subrounds_give_the_same_bits(whole):
  for engine in (context.GraphContext(parallel_clients=1), subrounds.SubroundContext(1)):
    _assert_same(_unsteady(14, engine=engine), whole[1])


class Refused(typing.NamedTuple):
  correction: corrections.Correction
  batching: Batching | None
  buffered: object
  message: str


@pytest.mark.parametrize(
  'case',
  [
    Refused(
      correction=corrections.Mime(),
      batching=Batching(4),
      buffered=BUFFERED,
      message='mime exchanges values before clients train',
    ),
    Refused(
      correction=corrections.FedNova(),
      batching=Batching(4),
      buffered=MIXING,
      message='does not aggregate differences of models',
    ),
    Refused(
      correction=corrections.chain(),
      batching=None,
      buffered=BUFFERED,
      message='needs clients that are given as whole arrays',
    ),
    Refused(
      correction=corrections.chain(),
      batching=Batching(4),
      buffered=2,
      message='asynchrony must be of the class Buffered, found 2',
    ),
  ],
)
def test_what_cannot_train_asynchronously_is_refused(case):
  with pytest.raises((TypeError, ValueError), match=case.message):
    algorithms.build_drift_corrected(
      _model(),
      case.correction,
      client_learning_rate=RATE,
      training=ClientTraining(batching=case.batching),
      asynchrony=case.buffered,
    )


@pytest.mark.parametrize(
  'built, wanted',
  [(None, BUFFERED), (BUFFERED, None), (MIXING, BUFFERED), (BUFFERED, MIXING)],
)
def test_a_process_for_other_rounds_is_refused(built, wanted):
  options = CASES['fed_async'].options if built is MIXING else {}
  process = _build('fed_avg', built, **options)
  message = re.escape(f'build it with asynchrony=config.asynchrony, which is {wanted}, and')
  with pytest.raises(ValueError, match=message):
    training.train(process, CLIENTS, lambda weights: {}, _config(9, 2, wanted))


def test_a_run_says_how_many_older_models_it_has_and_refuses_privacy(capfd):
  process = _build('fed_avg', MIXING, **CASES['fed_async'].options)
  config = _config(9, 2, asynchrony.Buffered(N, mixing=True))
  training.train(process, CLIENTS, lambda weights: {}, config)
  number = training.older_models(config, CLIENTS)
  assert f'At most {number} older models, 0.0 MB, are in memory' in capfd.readouterr().err
  private = training.PrivacyCallback(aggregation.SampledGaussian(N, 2, 1.0), 1e-3, 1)
  with pytest.raises(ValueError, match='which those of a population are not'):
    training.train(process, CLIENTS, lambda weights: {}, config, callbacks=[private])


def _without_older(state, distributor):
  """A server state as it was before it had the field `older`."""
  before = collections.namedtuple('ServerState', state._fields[:-1])
  return before(*state[:-1])._replace(distributor=distributor)


@pytest.mark.parametrize('name', ['fed_avg', 'scaffold'])
def test_a_synchronous_checkpoint_of_before_resumes(tmp_path, name):
  """The field of older models adds nothing to what is stored."""
  state = _build(name, None).initialize()
  assert state._fields[-1] == 'older'
  with state_store.ClientStateStore(str(tmp_path / 'state.sqlite'), ()) as store:
    store.commit(0, _without_older(state, ()))
    restored = store.restore(state).server_state
  assert type(restored) is type(state)
  tf.nest.map_structure(np.testing.assert_array_equal, restored, state)


def test_an_asynchronous_checkpoint_of_before_is_refused_in_one_line(tmp_path):
  state = _build('fed_avg', BUFFERED).initialize()
  with state_store.ClientStateStore(str(tmp_path / 'state.sqlite'), ()) as store:
    store.commit(0, _without_older(state, state.older))
    with pytest.raises(state_store.StateError, match='of another release') as caught:
      store.restore(state)
  message = str(caught.value)
  assert 'leaf older/' in message
  assert message.endswith('Start in a new folder.')
  assert '\n' not in message
