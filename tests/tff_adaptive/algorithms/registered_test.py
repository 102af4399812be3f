"""From an entry to a process: the builders' own, and a user's; what is refused."""

import numpy as np
import pytest

from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, engine, optimizers, registry
from tff_adaptive.client.batching import Batching

CLIENTS = corrections.RegisteredClients(small_problem.NUM_CLIENTS, 8.0)
COMMON = {'client_learning_rate': 0.1, 'batching': Batching(4), 'seed': 3}
# Values that are no defaults; what the builders are given besides.
CASES = {
  'fed_avg': ({}, {}),
  'fed_avgm': ({}, {'momentum': 0.5}),
  'fed_adagrad': ({}, {'tau': 0.01, 'beta1': 0.3, 'initial_v': 0.5}),
  'fed_adam': ({}, {'tau': 0.01, 'beta1': 0.5, 'bias_correction': True, 'initial_v': 0.5}),
  'fed_yogi': ({}, {'tau': 0.01, 'beta2': 0.5, 'bias_correction': True, 'initial_v': 0.5}),
  'fed_prox': ({'mu': 0.3}, {}),
  'scaffold': ({'scaffold_option': 1}, {}),
  'scaffold_m': ({}, {}),
  'fed_dyn': ({'mu': 0.3, 'scale_mu': True}, {}),
  'ada_best': ({'mu': 0.3, 'beta': 0.5, 'scale_mu': True, 'beta_decay': 0.5}, {}),
}


def _theta(process, rounds=2):
  with engine.graph_context():
    run = small_problem.Run(process, small_problem.clients())
    return run.rounds(small_problem.cohorts(rounds)).theta


def _builder_options(name, values):
  options = dict(values)
  if name in ('scaffold', 'scaffold_m', 'fed_dyn'):
    options['num_clients'] = CLIENTS.num_clients
  if options.pop('scale_mu', False):
    key = 'mean_examples' if name == 'fed_dyn' else 'scale_mu'
    options[key] = CLIENTS.mean_examples if name == 'fed_dyn' else True
  return options


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_an_entry_and_its_builder_give_the_same_process(name):
  values, server_values = CASES[name]
  entry = registry.algorithm(name)
  server = algorithms.build_server_optimizer(entry.server_optimizer or 'sgd', 0.5, server_values)
  process = algorithms.build_process(
    name, small_problem.model(), server_optimizer=server, values=values, clients=CLIENTS, **COMMON
  )
  options = _builder_options(name, values)
  if entry.server_optimizer is None:
    options['server_optimizer'] = optimizers.build_sgdm(0.5)
  else:
    options['server_learning_rate'] = 0.5
  own = algorithms.build(name, small_problem.model(), **options, **server_values, **COMMON)
  np.testing.assert_array_equal(_theta(process), _theta(own))


@pytest.mark.parametrize(
  'name, option, values',
  [
    ('fed_avgm', 'momentum', (0.0, 0.5)),
    ('fed_adagrad', 'initial_v', (0.5, 0.25)),
    ('fed_adam', 'bias_correction', (False, True)),
    ('fed_adam', 'initial_v', (0.5, 0.25)),
    ('fed_yogi', 'bias_correction', (False, True)),
    ('fed_yogi', 'initial_v', (0.5, 0.25)),
  ],
)
def test_an_option_of_the_server_changes_what_is_learnt(name, option, values):
  first, second = (
    _theta(
      algorithms.build(
        name, small_problem.model(), server_learning_rate=0.1, **{option: value}, **COMMON
      )
    )
    for value in values
  )
  assert not np.array_equal(first, second)


USERS = """
import collections, dataclasses
import tensorflow as tf
from tff_adaptive import corrections, optimizers

@dataclasses.dataclass(frozen=True)
class Pull(corrections.Correction):
  strength: float = 0.5
  name = 'pull'
  is_stateful = True
  def client_state(self, weights):
    return collections.OrderedDict(rounds=tf.zeros([]))
  def gradient(self, client, theta, g):
    return tuple(a + self.strength * (x - y) for a, x, y in zip(g, theta, client.theta_0))
  def client_update(self, client, g_i, steps):
    return collections.OrderedDict(rounds=client.client_state['rounds'] + 1), ()

def halved(learning_rate, factor: float = 0.5):
  return optimizers.build_sgdm(factor * learning_rate)

def wrong(learning_rate):
  return learning_rate
"""


def test_a_users_correction_and_server_optimizer_train(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(USERS)
  server = algorithms.build_server_optimizer(f'{path}:halved', 2.0, {'factor': 0.25})
  process = algorithms.build_process(
    f'{path}:Pull',
    small_problem.model(),
    server_optimizer=server,
    values={'strength': 0.3},
    client_weighting='examples',
    **COMMON,
  )
  own = algorithms.build_fed_prox(
    small_problem.model(), mu=0.3, server_optimizer=optimizers.build_sgdm(0.5), **COMMON
  )
  assert isinstance(process, algorithms.StatefulProcess)
  np.testing.assert_allclose(_theta(process), _theta(own), atol=1e-6)
  with pytest.raises(TypeError, match=r'the result of wrong must be a tff\.learning.optimizers'):
    algorithms.build_server_optimizer(f'{path}:wrong', 1.0)


def test_wrong_names_and_values_are_refused():
  server = optimizers.build_sgdm(1.0)
  for name, options, words in (
    ('adabest', {}, "unknown algorithm 'adabest'. Did you mean ada_best"),
    ('ada_best', {'values': {'betta': 1}}, "unknown hyperparameter of ada_best 'betta'"),
    ('scaffold', {}, 'scaffold needs to know the registered clients: give clients='),
  ):
    with pytest.raises(ValueError) as error:
      algorithms.build_process(
        name, small_problem.model(), server_optimizer=server, **options, **COMMON
      )
    assert str(error.value).startswith(words)
  with pytest.raises(ValueError, match=r"unknown hyperparameter of sgd 'tau'. There are none."):
    algorithms.build_server_optimizer('sgd', 1.0, {'tau': 0.1})
  with pytest.raises(ValueError, match=r"unknown algorithm 'fedavg'. Did you mean fed_avg"):
    algorithms.build('fedavg', small_problem.model())


def test_an_entry_that_contradicts_its_correction_is_refused():
  entry = registry.Algorithm(
    'mine', 'Mine', 'does it', correction=corrections.FedProx, is_stateful=True
  )
  with pytest.raises(ValueError, match='the entry mine has is_stateful=True'):
    algorithms.build_process(
      entry, small_problem.model(), server_optimizer=optimizers.build_sgdm(1.0), **COMMON
    )


def test_an_empty_weighting_is_not_the_algorithms_own():
  with pytest.raises(ValueError, match="client_weighting is ''; it must be one of"):
    algorithms.build_process(
      'fed_avg',
      small_problem.model(),
      server_optimizer=optimizers.build_sgdm(1.0),
      client_weighting='',
      **COMMON,
    )
