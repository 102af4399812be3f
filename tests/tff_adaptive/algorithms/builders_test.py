"""What the builders take and refuse, in which words, and what each of them composes."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, optimizers, registry, schedules
from tff_adaptive.algorithms import components, stateful_process
from tff_adaptive.client import Batching, ClientTraining

OPTIMIZER = ' must be of the class Optimizer, found '
SERVER = 'give tff_adaptive.optimizers.build_yogi(0.01), say'
CORRECTION = 'correction must be of the class Correction, found '
SGD = optimizers.build_sgdm(1.0)
UNWEIGHTED = tff.aggregators.UnweightedMeanFactory()
TRAINING = ClientTraining(batching=Batching(4))
CLIENTS = corrections.RegisteredClients(small_problem.NUM_CLIENTS, 8.0)
# Of each kind of hyperparameter a value that is no default.
OTHERS = {bool: True, int: 1, float: 0.3}


def _build(name, model=None, **options):
  """Builds by name, with what the algorithm cannot do without."""
  given = {'client_learning_rate': 0.1, 'training': TRAINING}
  if name == 'fed_yogi':
    given['server_learning_rate'] = 0.1
  if name == 'fed_dyn':
    given['num_clients'] = small_problem.NUM_CLIENTS
  build = getattr(algorithms, f'build_{name}')
  return build(model or small_problem.model(), **{**given, **options})


# The others are built by `build_process`.
BUILT = [name for name in registry.ALGORITHMS if hasattr(algorithms, f'build_{name}')]


@pytest.fixture
def composed(monkeypatch):
  """What the builders compose, in place of composing it."""
  seen = []
  monkeypatch.setattr(stateful_process, 'compose', seen.append)
  return seen


@pytest.mark.parametrize('name', BUILT)
@pytest.mark.parametrize('is_given', [True, False])
def test_an_entry_and_its_builder_compose_the_same(name, is_given, composed):
  """With their defaults, and with other values of all hyperparameters."""
  entry = registry.algorithm(name)
  owners = [entry]
  if entry.server_optimizer is not None:
    owners.append(registry.server_optimizer(entry.server_optimizer))
  given = [{}, {}]
  if is_given:
    for options, owner in zip(given, owners):
      options.update({h.name: OTHERS[h.kind] for h in owner.hyperparameters})
  values, server_values = given
  model = small_problem.model()
  aggregator = tff.aggregators.MeanFactory()
  common = {'client_learning_rate': 0.1, 'training': TRAINING, 'aggregator': aggregator}
  server = algorithms.build_server_optimizer(entry.server_optimizer or 'sgd', 0.5, server_values)
  algorithms.build_process(
    name, model, server_optimizer=server, values=values, clients=CLIENTS, **common
  )
  options = {**values, **server_values}
  if name in ('scaffold', 'scaffold_m', 'fed_dyn'):
    options['num_clients'] = CLIENTS.num_clients
  if name == 'fed_dyn' and options.pop('scale_mu', False):
    options['mean_examples'] = CLIENTS.mean_examples
  if entry.server_optimizer is None:
    options['server_optimizer'] = optimizers.build_sgdm(0.5)
  else:
    options['server_learning_rate'] = 0.5
  getattr(algorithms, f'build_{name}')(model, **options, **common)
  (_, training, correction, server, *rest), from_builder = composed
  for wanted, actual in (
    (correction, from_builder.correction),
    (server, from_builder.server_optimizer),
  ):
    assert type(actual) is type(wanted)
    assert vars(actual) == vars(wanted)
  assert training == from_builder.training == TRAINING.resolved()
  assert list(from_builder[4:]) == rest == [0.1, aggregator, entry.client_weighting, None]


def test_the_rate_of_a_named_server_may_be_a_schedule(composed):
  for name in ('fed_avg', 'fed_avgm', 'fed_adagrad', 'fed_adam', 'fed_yogi'):
    _build(name, server_learning_rate=lambda t: 0.5)
    state = composed.pop().server_optimizer.initialize((tf.TensorSpec([1], tf.float32),))
    assert float(state['optimizer']['learning_rate']) == 0.5


@pytest.mark.parametrize(
  'algorithm, options, words',
  [
    ('fed_yogi', {'client_learning_rate': schedules.InvSqrt}, 'the schedule fails for the int t ='),
    ('fed_yogi', {'client_learning_rate': '1'}, "client_learning_rate must be a number, found '1"),
    ('fed_yogi', {'client_learning_rate': -1}, 'client_learning_rate must be finite and at least'),
    ('fed_yogi', {'server_learning_rate': None}, 'learning_rate must be a number, found None'),
    ('fed_yogi', {'training': Batching(20)}, 'give tff_adaptive.ClientTraining(batching='),
    ('fed_yogi', {'aggregator': 'mean'}, 'aggregator must be a tff.aggregators.Weighted'),
    ('fed_yogi', {'aggregator': UNWEIGHTED}, "no weights: give client_weighting='uniform'"),
    ('fed_yogi', {'model': 'cnn'}, 'model must be a tff_adaptive.models.Model'),
    ('ada_best', {'server_optimizer': 'yogi'}, f"server_optimizer{OPTIMIZER}'yogi': {SERVER}"),
    ('ada_best', {'server_optimizer': tf.keras.optimizers.Adam()}, f'server_optimizer{OPTIMIZER}'),
    ('ada_best', {'beta': 1.1}, 'beta must be in [0, 1], found 1.1'),
    ('ada_best', {'scale_mu': True, 'training': None}, 'give training=tff_adaptive.ClientTraining'),
    ('fed_dyn', {'mean_examples': 'x'}, "mean_examples must be a number, found 'x'"),
    ('fed_dyn', {'mean_examples': 8.0, 'training': None}, 'needs the number of examples before'),
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


def test_a_rate_may_be_a_number_of_any_kind_or_a_function():
  for rate in (0.1, np.float32(0.1), schedules.InvSqrt(0.1), lambda t: 0.1):
    checked = components.check_rate('client_learning_rate', rate)
    assert float(schedules.in_graph(checked)(tf.constant(0))) == np.float32(0.1)
