"""From an entry to a process: a user's correction and server optimizer, and what is refused."""

import dataclasses
import typing

import numpy as np
import pytest
import tensorflow_federated as tff

import oracle
from tests.helpers import engines, small_problem
from tff_adaptive import algorithms, corrections, optimizers, registry, schedules
from tff_adaptive.algorithms import builders
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive.registry import entries

COMMON = {'client_learning_rate': 0.2, 'training': ClientTraining(batching=Batching(4))}
USERS = """
import collections, dataclasses
import tensorflow as tf
from tff_adaptive import corrections, optimizers

@dataclasses.dataclass(frozen=True)
class Pull(corrections.Correction):
  strength: float = 0.5
  name = 'pull'
  def client_state(self, weights):
    return collections.OrderedDict(rounds=tf.zeros([]))
  def gradient(self, client, theta, g):
    return tuple(a + self.strength * (x - y) for a, x, y in zip(g, theta, client.theta_0))
  def client_update(self, client, g_i, steps):
    return collections.OrderedDict(rounds=client.client_state['rounds'] + 1), ()

@dataclasses.dataclass(frozen=True)
class Sends(corrections.Correction):
  def server_state(self, weights):
    return weights, tf.zeros([], tf.float64)
  def broadcast(self, server_state):
    return server_state
  def client_update(self, client, g_i, steps):
    return (), client.full_gradient()

def halved(learning_rate, factor: float = 0.5):
  return optimizers.build_sgdm(factor * learning_rate)

def wrong(learning_rate):
  return learning_rate
"""


@pytest.fixture
def users(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(USERS)
  return path


@pytest.mark.exhaustive
def test_a_users_correction_and_server_optimizer_train(users, graph):
  server = algorithms.build_server_optimizer(f'{users}:halved', 2.0, {'factor': 0.25})
  model = small_problem.model()
  sgd = optimizers.build_sgdm(0.5)
  options = {'values': {'strength': 0.3}, 'client_weighting': 'examples', **COMMON}
  process = algorithms.build_process(f'{users}:Pull', model, server_optimizer=server, **options)
  fed_prox = algorithms.build_fed_prox(model, mu=0.3, server_optimizer=sgd, **COMMON)
  assert isinstance(process, algorithms.StatefulProcess)
  thetas = []
  for each in (process, fed_prox):
    run = engines.run(graph, small_problem.Run, each, small_problem.clients())
    thetas.append(engines.run(graph, run.rounds, small_problem.cohorts(2)).theta)
  np.testing.assert_allclose(*thetas, atol=1e-6)


def test_a_users_server_optimizer_gets_a_number_and_is_scheduled(users):
  for schedule, first in ((schedules.InvSqrt(0.4), 0.4), (lambda t: 0.3 + 0 * t, 0.3)):
    optimizer = algorithms.build_server_optimizer(f'{users}:halved', schedule)
    state = optimizer.initialize((np.zeros([1], np.float32),))
    assert float(state['optimizer']['learning_rate']) == pytest.approx(first)


class Stands(typing.NamedTuple):
  """A name, what is given beside it, and what clients do then."""

  name: str
  given: dict
  parts: list
  expected: dict


def test_a_name_stands_for_how_clients_train_where_nothing_is_said(monkeypatch):
  seen = []

  def build(model, correction, server_optimizer, **options):
    seen.append((correction, options['training']))

  monkeypatch.setattr(builders, 'build_drift_corrected', build)
  adamw = optimizers.build_adamw(1.0, beta2=0.95, decay=0.1)
  amsgrad = optimizers.build_amsgrad(1.0)
  sgd = optimizers.build_sgd(1.0)
  clip = corrections.Clip(1.0)
  sam = corrections.Sam(0.05)
  for case in (
    Stands('diloco', {}, [clip], dict(optimizer=adamw, optimizer_state='keep')),
    Stands(
      'diloco', {'optimizer': amsgrad}, [clip], dict(optimizer=amsgrad, optimizer_state='keep')
    ),
    # What is given counts as given, though it is what others have by default.
    Stands('diloco', {'optimizer': sgd}, [clip], dict(optimizer=sgd, optimizer_state='keep')),
    Stands('diloco', {'optimizer_state': 'reset'}, [clip], dict(optimizer=adamw)),
    Stands('fed_sam', {}, [sam], dict(optimizer=None, optimizer_state=None)),
    Stands('fed_lalr', {}, [], dict(optimizer=amsgrad, optimizer_state='average')),
    Stands('fed_avg', {}, [], dict(optimizer=None, optimizer_state=None)),
  ):
    training = dataclasses.replace(COMMON['training'], **case.given)
    server = optimizers.build_sgdm(1.0)
    algorithms.build_process(
      case.name, None, server_optimizer=server, client_learning_rate=0.1, training=training
    )
    correction, composed = seen.pop()
    assert correction == corrections.chain(*case.parts) or not case.parts
    wanted = dataclasses.replace(training, **case.expected)
    assert type(composed.optimizer) is type(wanted.optimizer)
    assert composed.optimizer is None or vars(composed.optimizer) == vars(wanted.optimizer)
    assert composed.optimizer_state == wanted.optimizer_state


def test_parts_that_are_given_replace_those_of_the_name(monkeypatch):
  seen = []
  monkeypatch.setattr(
    builders, 'build_drift_corrected', lambda model, correction, *_, **__: seen.append(correction)
  )
  for parts in ([corrections.Sam(0.2)], [], None):
    algorithms.build_process('fed_sam', None, client_learning_rate=0.1, more_parts=parts)
  assert seen[0] == corrections.Sam(0.2)
  assert type(seen[1]) is corrections.Correction
  assert seen[2] == corrections.Sam(0.05)


@pytest.mark.exhaustive
def test_diloco_with_tffs_sgd_takes_steps_of_sgd(graph):
  """AdamW's steps would be about the rate in each coordinate."""
  training = ClientTraining(
    optimizer=tff.learning.optimizers.build_sgdm(), optimizer_state='reset', batching=Batching(4)
  )
  thetas = []
  for name in ('diloco', 'fed_avg'):
    process = algorithms.build_process(
      name,
      small_problem.model(),
      server_optimizer=optimizers.build_sgdm(1.0),
      client_learning_rate=0.2,
      training=training,
      client_weighting='uniform',
      more_parts=[],
    )
    run = engines.run(graph, small_problem.Run, process, small_problem.clients())
    thetas.append(engines.run(graph, run.rounds, small_problem.cohorts(2)).theta)
  np.testing.assert_array_equal(*thetas)


def test_wrong_names_and_values_are_refused(users):
  for name, options, words in (
    ('adabest', {}, "unknown algorithm 'adabest'. Did you mean ada_best"),
    ('ada_best', {'values': {'betta': 1}}, "unknown option of ada_best 'betta'"),
    ('fed_avg', {'client_weighting': ''}, "client_weighting is ''; it must be one of"),
    ('fed_adam', {}, 'FedAdam has a server optimizer, whose rate has no default'),
  ):
    with pytest.raises(ValueError, match=f'^{words}'):
      algorithms.build_process(name, small_problem.model(), **options, **COMMON)
  with pytest.raises(ValueError, match=r"unknown option of sgd 'tau'. There are none."):
    algorithms.build_server_optimizer('sgd', 1.0, {'tau': 0.1})
  with pytest.raises(TypeError, match='the result of wrong must be of the class Optimizer'):
    algorithms.build_server_optimizer(f'{users}:wrong', 1.0)


N = small_problem.theta_0().size
BODY = sum(oracle.SIZES[:2]) / N
HEAD = sum(oracle.SIZES[2:]) / N
MATRICES = (oracle.SIZES[0] + oracle.SIZES[2]) / N
# n down and up, gradients a step and over all examples; where these are not (1, 1, 1, 0).
COSTS = {
  'scaffold': (2, 2, 1, 0),
  **dict.fromkeys(('scaffold_m', 'fed_cm'), (2, 1, 1, 0)),
  **dict.fromkeys(('fed_nova', 'fed_exp'), (1, 1 + 1 / N, 1, 0)),
  'mime_lite': (2, 2, 1, 1),
  'mime': (3, 2, 2, 1),
  **dict.fromkeys(('delta_sgd', 'fed_sam', 'fed_speed'), (1, 1, 2, 0)),
  'mo_fed_sam': (2, 1, 2, 0),
  'fed_gamma': (2, 2, 2, 0),
  'fed_dc': (2, 2, 1, 0),
  'fed_smoo': (2, 2, 2, 0),
  'q_fed_avg': (1, 1 + 1 / N, 1, 0),
  **dict.fromkeys(('ditto', 'apfl'), (1, 1, 2, 0)),
  'p_fed_me': (1, 1, 5, 0),
  **dict.fromkeys(('fed_per', 'fed_rep', 'fed_babu'), (BODY, BODY, 1, 0)),
  'lg_fed_avg': (HEAD, HEAD, 1, 0),
  'afl': (1 + 7 / N, 1 + 7 / N, 1, 0),
  # The mean of v of four tensors, and the number of steps; what is broadcast is the last update.
  'fed_adamw': (2 + 5 / N, 1 + 5 / N, 1, 0),
  'fed_muon': (2 + MATRICES, 1 + MATRICES, 1, 0),
  'fed_lada': (4, 3, 1, 0),
  # Prototypes of 3 classes with 4 features, and a number for each class.
  'fed_proto': (15 / N, 15 / N, 1, 0),
  'fed_lalr': (4 + 1 / N, 4 + 1 / N, 1, 0),  # m, v, its maximum, and the step.
}


@pytest.mark.parametrize('name', registry.ALGORITHMS)
def test_what_is_sent_and_computed_is_as_published_or_traced(name):
  model = small_problem.model()
  clients = corrections.RegisteredClients(7, 8.0)
  if name == 'fed_bn':
    with pytest.raises(ValueError, match=r"^layers=norm: the model has no weight 'norm'"):
      algorithms.counts(name, model, clients=clients)
    return
  counts = algorithms.counts(name, model, clients=clients)
  assert counts == registry.Counts(*COSTS.get(name, (1, 1, 1, 0)))
  entry = registry.algorithm(name)
  if entry.settings:
    return  # Of the correction's name.
  correction = entries.resolve(entry.correction).configure(entry.values({}), clients)
  traced = algorithms.counts(correction, model)
  # The quotients are a second sum here, and AdaBest's n_i a number: see `costs.CostModel`.
  differing = {
    'scaffold_m': (2, 2),
    'fed_cm': (2, 2),
    'fed_acg': (2, 1),
    'ada_best': (1 + 1 / N, 1 + 1 / N),
  }
  down, up = differing.get(name, (counts.down, counts.up))
  assert traced == dataclasses.replace(counts, down=down, up=up)


def test_costs_depend_on_hyperparameters_and_on_how_clients_train(users):
  model = small_problem.model()
  clients = corrections.RegisteredClients(7, 8.0)
  adam = algorithms.counts('mime', model, values={'base_optimizer': 'adam'})
  assert (adam.down, adam.up) == (4, 2)
  one = algorithms.counts('scaffold', model, values={'scaffold_option': 1}, clients=clients)
  assert (one.gradients, one.full_gradients) == (1, 1)
  assert algorithms.counts('delta_sgd+sam', model).gradients == 4  # Both are sharp.
  assert algorithms.counts('fed_sam', model).gradients == 2
  momentum = optimizers.build_sgdm(0.1, 0.9)
  for state, times in (('average', 2 + 1 / N), ('keep', 1), ('reset', 1)):  # m, and the step.
    training = ClientTraining(momentum, optimizer_state=state)
    assert algorithms.counts('fed_avg', model, training=training) == registry.Counts(times, times)
  assert algorithms.counts(f'{users}:Sends', model) == registry.Counts(2 + 2 / N, 2, 1, 1)


def test_a_correction_in_the_place_of_a_name_is_refused_with_the_function_that_takes_one():
  part = corrections.chain(corrections.Sam(0.05), corrections.Clip(1.0))
  with pytest.raises(
    TypeError, match=r'^algorithm must be a name, .* found Chain: .* build_drift_c'
  ):
    algorithms.build_process(part, None, client_learning_rate=0.1)
