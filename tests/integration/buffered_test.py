"""Asynchronous training: against an oracle in NumPy, synchronous rounds, and themselves."""

import contextlib
import functools
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks
from tests.helpers import fakes, oracle, oracle_async
from tff_adaptive import (
  aggregation,
  algorithms,
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

N, STEPS, RATE = 6, 3, 0.1
SECONDS = [1.0, 1.37, 2.11, 3.03, 5.29, 8.71]  # No two arrive at once.


def _clients():
  rng = np.random.default_rng(5)
  made = []
  for n in (4, 7, 5, 9, 6, 8):
    x = rng.normal(size=(n, 3)).astype(np.float32)
    made.append((x, (x @ rng.normal(size=3) + 0.1 * rng.normal(size=n)).astype(np.float32)))
  return made


def _model():
  return models.Model(
    initial_weights=[np.zeros(3, np.float32)],
    forward=lambda weights, x, training, seed: tf.linalg.matvec(x, weights[0]),
    example_loss=lambda found, y: 0.5 * tf.square(found - y),
    x_spec=tf.TensorSpec([None, 3], tf.float32),
    y_spec=tf.TensorSpec([None], tf.float32),
    metrics={},
  )


CLIENTS = tasks.InMemoryClientData({f'c{i}': pair for i, pair in enumerate(_clients())})


def _config(rounds, size, synchrony, seconds=SECONDS, **options):
  profile = {f'c{i}': s / STEPS for i, s in enumerate(seconds)}
  speed = population.Speed(downlink=1e9, uplink=1e9, profiles={'seconds_per_step': profile})
  return training.TrainingConfig(
    rounds=rounds,
    clients_per_round=size,
    rounds_per_evaluation=1,
    cost_model=costs.CostModel(registry.Counts(), 3, None, epochs=STEPS),
    population=population.Population(speed=speed, **options.pop('people', {})),
    synchrony=synchrony,
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
def _build(name, versions, mixing, **options):
  options['training'] = ClientTraining(
    batching=Batching(None, epochs=STEPS), versions=versions, mixing=mixing
  )
  options.update(client_learning_rate=RATE, client_weighting='uniform')
  if name == 'fed_cm':
    return algorithms.build_drift_corrected(_model(), corrections.FedCM(0.3), **options)
  if name == 'scaffold':
    options['num_clients'] = N
  return getattr(algorithms, f'build_{name}')(_model(), **options)


def _run(name, config, folder=None, engine=None, callbacks=(), **options):
  """The weights after each step, the rows but for seconds of this machine, and the result."""
  mixing = config.synchrony is not None and config.synchrony.mixing
  # A process is the same for any number of older models.
  process = _build(name, min(training.older_models(config, CLIENTS), 1), mixing, **options)
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


CASES = {
  'fed_async': (
    oracle_async.FedAsync,
    ('fed_avg', 1, training.Buffered(N, 'hinge', a=2.0, b=1.0, mixing=True)),
    {'server_learning_rate': 0.6},
    (lambda tau: 1.0 if tau <= 1 else 1 / (2 * (tau - 1) + 1), None, {'alpha': 0.6}),
  ),
  'dropping': (
    oracle_async.FedBuff,
    ('fed_avg', 2, training.Buffered(N, 'constant', c=0.3, max_staleness=2)),
    {},
    (lambda tau: 0.3 if tau else 1.0, oracle.Sgd(1.0), {'most': 2}),
  ),
  'scaffold': (
    oracle_async.Scaffold,
    ('scaffold', 2, training.Buffered(N)),
    {'server_optimizer': optimizers.build_sgdm(0.7)},
    (_polynomial, oracle.Sgd(0.7), {}),
  ),
  'ada_best': (
    oracle_async.AdaBest,
    ('ada_best', 2, training.Buffered(N)),
    {'mu': 0.2, 'beta': 0.5, 'beta_decay': 1.0},
    (_polynomial, oracle.Sgd(1.0), {'mu': 0.2, 'beta': 0.5}),
  ),
  'fed_cm': (
    oracle_async.FedCM,
    ('fed_cm', 2, training.Buffered(N)),
    {},
    (_polynomial, oracle.Sgd(1.0), {'alpha': 0.3}),
  ),
}


@pytest.mark.parametrize('case', CASES)
def test_each_server_step_is_that_of_the_event_by_event_oracle(case):
  make, (name, size, synchrony), options, (factor, server, own) = CASES[case]
  found, _ = _run(name, _config(30, size, synchrony), **options)
  descend = server and (lambda w, direction: server(w, -direction))
  expected = make(_clients(), SECONDS, size, factor, descend, RATE, STEPS, **own).run(30)
  error = np.abs(found - expected).max(1)
  assert error.max() <= 2e-5 * np.abs(expected).max(), (case, error)


@pytest.mark.parametrize('case', ['dropping', 'ada_best'])
def test_a_full_buffer_of_equal_clients_equals_synchronous_rounds_to_the_bit(tmp_path, case):
  """Whether clients keep a state or not."""
  _, (name, *_), options, _ = CASES[case]
  rows, weights = [], []
  for synchrony in (None, training.Buffered(3)):
    folder = tmp_path / str(len(rows))
    config = _config(8, 3, synchrony, [1.0] * N)
    weights.append(_run(name, config, folder, **options)[0])
    rows.append(fakes.rows(folder))
  np.testing.assert_array_equal(*weights)
  # A process without a server's part has fewer columns.
  for waited, buffered in zip(*rows):
    assert waited == {k: buffered[k] for k in waited}


BUFFERED = training.Buffered(4, max_staleness=3)


def _unsteady(rounds, folder=None, engine=None, callbacks=(), **options):
  people = {'dropout_rate': 0.2, 'availability': population.Independent(0.8)}
  config = _config(rounds, 2, BUFFERED, people=people, **options)
  return _run('scaffold', config, folder, engine, callbacks, **CASES['scaffold'][2])[1]


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


@pytest.mark.parametrize('synchrony', [None, training.Buffered(4)])
def test_the_virtual_clock_says_when_to_evaluate(tmp_path, synchrony):
  config = _config(14, 2, synchrony, virtual_seconds_per_evaluation=3.5)
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


def test_waves_and_subrounds_give_the_same_bits(whole):
  for engine in (context.GraphContext(parallel_clients=1), subrounds.SubroundContext(1)):
    _assert_same(_unsteady(14, engine=engine), whole[1])


def test_what_has_no_meaning_is_refused(capfd):
  training_options = ClientTraining(batching=Batching(4), versions=2)
  with pytest.raises(ValueError, match='mime exchanges values before clients train'):
    algorithms.build_drift_corrected(
      _model(), corrections.Mime(), client_learning_rate=RATE, training=training_options
    )
  for versions, mixing, wanted, message in (
    (0, False, False, 'built for other rounds .*older_models'),
    (1, True, False, 'built for other .*mixing=False'),
    (1, False, True, 'built for other .*mixing=True'),
    (1, True, True, ''),
  ):
    process = _build('fed_avg', versions, mixing, **(CASES['fed_async'][2] if mixing else {}))
    config = _config(9, 2, training.Buffered(N, mixing=wanted))
    with pytest.raises(ValueError, match=message) if message else contextlib.nullcontext():
      training.train(process, CLIENTS, lambda w: {}, config)
  private = training.PrivacyCallback(aggregation.SampledGaussian(N, 2, 1.0), 1e-3, 1)
  with pytest.raises(ValueError, match='which those of a population are not'):
    training.train(process, CLIENTS, lambda w: {}, config, callbacks=[private])
  said = capfd.readouterr().err
  assert re.search(r'At most \d older models, 0\.0 MB, are in memory and in each check', said)
