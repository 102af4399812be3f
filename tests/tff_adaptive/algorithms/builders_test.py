"""What the builders take and refuse, and in which words; and numbers that they take in any form."""

import inspect

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, engine, optimizers, registry, schedules
from tff_adaptive.client.batching import Batching

OPTIMIZER = ' must be a tff.learning.optimizers.Optimizer, found '
SERVER = 'give tff_adaptive.optimizers.build_yogi(0.01), say'
CORRECTION = 'correction must be a tff_adaptive.corrections.Correction, found '
SGD = optimizers.build_sgdm(1.0)


def _build(name, model=None, **options):
  """Builds by name, with what the algorithm cannot do without."""
  given = {'client_learning_rate': 0.1, 'batching': Batching(4)}
  if name == 'fed_yogi':
    given['server_learning_rate'] = 0.1
  if name == 'fed_dyn':
    given['num_clients'] = small_problem.NUM_CLIENTS
  return algorithms.build(name, model or small_problem.model(), **{**given, **options})


def _keras():
  return tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(5,))])


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_every_hyperparameter_is_an_argument_with_the_registrys_default(name):
  entry = registry.algorithm(name)
  arguments = inspect.signature(getattr(algorithms, f'build_{name}')).parameters
  expected = {h.name: h.default for h in entry.hyperparameters}
  if entry.server_optimizer is not None:
    server = registry.server_optimizer(entry.server_optimizer)
    expected.update({h.name: h.default for h in server.hyperparameters})
  if name == 'fed_dyn':  # Scaled where the mean is given.
    del expected['scale_mu']
    expected['mean_examples'] = None
  expected['client_weighting'] = entry.client_weighting
  for argument, default in expected.items():
    assert arguments[argument].default == default


@pytest.mark.parametrize('name', [*(f'build_{n}' for n in registry.ALGORITHMS), 'build_fed_opt'])
def test_builders_name_every_argument_of_the_general_one_and_explain_it(name):
  builder = getattr(algorithms, name)
  arguments = inspect.signature(builder).parameters
  general = inspect.signature(algorithms.build_drift_corrected).parameters
  assert set(general) - set(arguments) <= {'correction', 'server_optimizer'}
  for argument in arguments.values():
    assert argument.kind is not inspect.Parameter.VAR_KEYWORD
    assert f'\n    {argument.name}: ' in builder.__doc__
    shared = general.get(argument.name)
    if shared is not None and argument.name not in ('client_weighting', 'server_optimizer'):
      assert (argument.default, argument.annotation) in [
        (shared.default, shared.annotation),
        (inspect.Parameter.empty, shared.annotation),
      ]


@pytest.mark.parametrize(
  'name', ['client_learning_rate', 'server_learning_rate', 'server_schedule']
)
@pytest.mark.parametrize('bad', [None, '0.1', [0.1], True, float('nan'), -1, tf.constant(-1.0)])
def test_a_wrong_rate_is_refused_under_its_own_name(name, bad):
  if bad is None and name == 'server_schedule':
    return  # The optimizer's own rate.
  with pytest.raises((TypeError, ValueError)) as error:
    _build('fed_yogi', **{name: bad})
  assert str(error.value).startswith(f'{name} must be ')
  assert str(error.value).endswith(': give a rate such as 0.1, or a function of the round.')


@pytest.mark.parametrize(
  'algorithm, options, words',
  [
    ('fed_yogi', {'client_learning_rate': schedules.InvSqrt}, 'client_learning_rate(0) must be a'),
    ('fed_yogi', {'beta2': None}, 'beta2 must be a number, found None'),
    ('fed_yogi', {'batching': 20}, 'found 20: give tff_adaptive.Batching(20), say'),
    ('fed_yogi', {'seed': None}, 'seed must be a whole number, found None'),
    ('fed_yogi', {'seed': -1}, 'seed must be at least 0, found -1'),
    ('fed_yogi', {'aggregator': 'mean'}, 'aggregator must be a tff.aggregators.Weighted'),
    ('fed_yogi', {'model': 'cnn'}, 'model must be a tff_adaptive.models.Model'),
    ('fed_yogi', {'model': _keras()}, 'model is a Keras model (Sequential): give a function'),
    (
      'fed_yogi',
      {'model': _keras},
      'it returned Sequential: return tff.learning.models.from_keras',
    ),
    ('ada_best', {'server_optimizer': 'yogi'}, f"server_optimizer{OPTIMIZER}'yogi': {SERVER}"),
    ('ada_best', {'server_optimizer': tf.keras.optimizers.Adam()}, f'server_optimizer{OPTIMIZER}'),
    ('ada_best', {'client_optimizer': 'sgd'}, f"client_optimizer{OPTIMIZER}'sgd': give"),
    ('ada_best', {'beta': None}, 'beta must be a number, found None'),
    ('ada_best', {'beta': 1.1}, 'beta must be in [0, 1], found 1.1'),
    ('ada_best', {'beta_decay': 'x'}, "beta_decay must be a number, found 'x'"),
    ('ada_best', {'beta_decay': 0}, 'beta_decay must be in (0, 1], found 0'),
    ('ada_best', {'beta_decay': 2}, 'beta_decay must be in (0, 1], found 2'),
    ('fed_dyn', {'mean_examples': 'x'}, "mean_examples must be a number, found 'x'"),
  ],
)
def test_a_wrong_option_is_refused_in_the_words_of_its_user(algorithm, options, words):
  with pytest.raises((TypeError, ValueError)) as error:
    _build(algorithm, **options)
  assert words in str(error.value)


@pytest.mark.parametrize('bad', ['scaffold', corrections.AdaBest, None])
def test_what_is_no_correction_is_refused(bad):
  with pytest.raises(TypeError) as error:
    algorithms.build_drift_corrected(small_problem.model(), bad, SGD, client_learning_rate=0.1)
  assert str(error.value).startswith(f'{CORRECTION}{bad!r}: give ')


@pytest.mark.parametrize(
  'method', ['client_state', 'client_update', 'server_state', 'broadcast', 'server_update']
)
def test_a_method_that_would_never_be_called_is_refused(method):
  own = type('Own', (corrections.Correction,), {method: lambda *_: ()})
  with pytest.raises(TypeError, match=rf'^Own\.{method} would never be called, .*give it is_state'):
    algorithms.build_drift_corrected(small_problem.model(), own(), SGD, client_learning_rate=0.1)


def test_a_correction_may_have_a_servers_part_alone():
  class Halves(corrections.Correction):
    is_stateful = True

    def server_update(self, server_state, server):
      return server_state, tuple(g / 2 for g in server.g_bar)

  moved = []
  for correction in (corrections.Correction(), Halves()):
    process = algorithms.build_drift_corrected(
      small_problem.model(), correction, SGD, client_learning_rate=0.1, batching=Batching(4)
    )
    with engine.graph_context():
      run = small_problem.Run(process, small_problem.clients()).round([0, 1])
    moved.append(run.theta - small_problem.theta_0())
  np.testing.assert_allclose(moved[1], moved[0] / 2, atol=1e-6)


class _WithoutRate(tff.learning.optimizers.Optimizer):
  def initialize(self, specs):
    return ()

  def next(self, state, weights, gradients):
    return state, weights


@pytest.mark.parametrize('name', ['fed_prox', 'ada_best'])
def test_a_schedule_wants_a_server_optimizer_whose_rate_can_be_set(name):
  for optimizer in (_WithoutRate(), optimizers.build_yogi(lambda t: 0.1)):
    with pytest.raises(ValueError, match=r'^the server optimizer has no learning rate .*: give'):
      _build(name, server_optimizer=optimizer, server_schedule=0.1)
    _build(name, server_optimizer=optimizer)


def test_the_servers_part_begins_at_the_weights_that_are_drawn():
  class Keeps(corrections.Correction):
    is_stateful = True

    def server_state(self, weights):
      return tuple(weights)

  def draws():
    model = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(5,))])
    return tff.learning.models.from_keras_model(
      model,
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(tf.TensorSpec([None, 5]), tf.TensorSpec([None, 3])),
    )

  process = algorithms.build_drift_corrected(draws, Keeps(), SGD, client_learning_rate=0.1)
  with engine.graph_context():
    state = process.initialize()
  assert np.abs(state.correction[0]).max() > 0
  for found, wanted in zip(state.correction, state.global_model_weights.trainable):
    np.testing.assert_array_equal(found, wanted)


def test_fed_opt_wants_a_server_optimizer():
  with pytest.raises(TypeError) as error:
    algorithms.build_fed_opt(small_problem.model(), None, None, client_learning_rate=0.1)
  assert str(error.value) == f'server_optimizer{OPTIMIZER}None: {SERVER}.'


@pytest.mark.parametrize(
  'algorithm, options',
  [
    ('fed_yogi', {'client_learning_rate': 0.25, 'server_learning_rate': 0.5, 'tau': 0.125}),
    ('fed_yogi', {'beta1': 0.5, 'beta2': 0.75, 'initial_v': 0.25, 'server_schedule': 0.5}),
    ('fed_prox', {'mu': 0.5, 'weight_decay': 0.25, 'clip_norm': 0.5}),
    ('fed_dyn', {'mu': 0.5, 'mean_examples': 4.0}),
    ('ada_best', {'mu': 0.5, 'beta': 0.5, 'beta_decay': 0.5}),
  ],
)
def test_eager_scalars_are_as_good_as_numbers(algorithm, options):
  thetas = []
  with engine.graph_context():
    for form in float, np.array, tf.constant:
      process = _build(algorithm, **{name: form(value) for name, value in options.items()})
      run = small_problem.Run(process, small_problem.clients())
      thetas.append(run.rounds(small_problem.cohorts(2)).theta)
  np.testing.assert_array_equal(thetas[0], thetas[1])
  np.testing.assert_array_equal(thetas[0], thetas[2])


@pytest.mark.parametrize('rate', [0, np.float32(0.1), schedules.InvSqrt(0.1), lambda t: 0.1])
def test_rates_and_schedules_are_taken(rate):
  _build('fed_yogi', client_learning_rate=rate)
  _build('fed_yogi', server_learning_rate=rate)


@pytest.mark.parametrize('name', ['fed_avg', 'ada_best'])
def test_a_server_schedule_replaces_the_server_optimizers_rate(name):
  def schedule(t):  # A plain function of a number.
    if t < 1:
      return 0.0
    return 0.5

  given = {'server_learning_rate': 0.5} if name == 'fed_avg' else {}
  process = _build(name, server_schedule=schedule, **given)
  with engine.graph_context():
    run = small_problem.Run(process, small_problem.clients())
    first = run.theta
    run.round([0, 1])
    np.testing.assert_array_equal(run.theta, first)
    run.round([0, 1])
    assert not np.array_equal(run.theta, first)


def test_a_round_whose_clients_all_have_no_examples_changes_nothing():
  # A mean without weights takes their zeros for updates: finite, and yet of nobody.
  process = _build('ada_best', aggregator=tff.aggregators.UnweightedMeanFactory())
  with engine.graph_context():
    run = small_problem.Run(process, small_problem.clients())
    run.round([0, 1])
    before = run.state
    x, y = run.data[2]
    run.data[2] = x[:0], y[:0]
    run.round([2])
  assert np.abs(run.h).max() > 0
  for part in ('global_model_weights', 'inference_weights', 'correction'):
    found, expected = (tf.nest.flatten(getattr(state, part)) for state in (run.state, before))
    for a, b in zip(found, expected):
      np.testing.assert_array_equal(a, b)
