"""From an entry to a process: a user's correction and server optimizer, and what is refused."""

import numpy as np
import pytest

from tests.helpers import engines, small_problem
from tff_adaptive import algorithms, corrections, optimizers, registry, schedules
from tff_adaptive.client import Batching, ClientTraining

COMMON = {'client_learning_rate': 0.2, 'training': ClientTraining(batching=Batching(4))}
USERS = """
import collections, dataclasses
import tensorflow as tf
import tensorflow_federated as tff
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

class _WithoutRate(tff.learning.optimizers.Optimizer):
  def initialize(self, specs):
    return ()
  def next(self, state, weights, gradients):
    return state, weights

def without_rate(learning_rate):
  return _WithoutRate()

def with_schedule(learning_rate):
  return optimizers.build_yogi(lambda t: 0.1)
"""


@pytest.fixture
def users(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(USERS)
  return path


def test_a_users_correction_and_server_optimizer_train(users, graph):
  server = algorithms.build_server_optimizer(f'{users}:halved', 2.0, {'factor': 0.25})
  process = algorithms.build_process(
    f'{users}:Pull',
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
  thetas = []
  for each in (process, own):
    run = engines.run(graph, small_problem.Run, each, small_problem.clients())
    thetas.append(engines.run(graph, run.rounds, small_problem.cohorts(2)).theta)
  np.testing.assert_allclose(*thetas, atol=1e-6)


def test_a_users_server_optimizer_gets_a_number_and_is_scheduled(users):
  for schedule, first in ((schedules.InvSqrt(0.4), 0.4), (lambda t: 0.3 + 0 * t, 0.3)):
    made = algorithms.build_server_optimizer(f'{users}:halved', schedule)
    state = made.initialize((np.zeros([1], np.float32),))
    assert float(state['optimizer']['learning_rate']) == pytest.approx(first)
  for name in ('without_rate', 'with_schedule'):
    algorithms.build_server_optimizer(f'{users}:{name}', 0.1)
    with pytest.raises(ValueError, match=r'^the server optimizer has no learning rate .*: return'):
      algorithms.build_server_optimizer(f'{users}:{name}', lambda t: 0.1)


def test_wrong_names_and_values_are_refused(users):
  for name, options, words in (
    ('adabest', {}, "unknown algorithm 'adabest'. Did you mean ada_best"),
    ('ada_best', {'values': {'betta': 1}}, "unknown hyperparameter of ada_best 'betta'"),
    ('scaffold', {}, 'scaffold needs to know the registered clients: give clients='),
    ('fed_avg', {'client_weighting': ''}, "client_weighting is ''; it must be one of"),
  ):
    with pytest.raises(ValueError) as error:
      algorithms.build_process(name, small_problem.model(), **options, **COMMON)
    assert str(error.value).startswith(words)
  with pytest.raises(ValueError, match=r"unknown hyperparameter of sgd 'tau'. There are none."):
    algorithms.build_server_optimizer('sgd', 1.0, {'tau': 0.1})
  with pytest.raises(ValueError, match=r"unknown algorithm 'fedavg'. Did you mean fed_avg"):
    algorithms.build('fedavg', small_problem.model())
  with pytest.raises(TypeError, match=r'the result of wrong must be a tff\.learning.optimizers'):
    algorithms.build_server_optimizer(f'{users}:wrong', 1.0)


def test_an_entry_that_contradicts_its_correction_is_refused():
  entry = registry.Algorithm(
    'mine', 'Mine', 'does it', correction=corrections.FedProx, is_stateful=True
  )
  with pytest.raises(ValueError, match='the entry mine has is_stateful=True'):
    algorithms.build_process(entry, small_problem.model(), **COMMON)
