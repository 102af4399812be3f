"""What a part knows of a client, and where it may act, alone and in a group of clients."""

import collections
import dataclasses

import numpy as np
import pytest
import tensorflow as tf

import oracle
from oracle import newer
from tests.helpers import small_problem
from tff_adaptive import corrections
from tff_adaptive.corrections import base

DATA = small_problem.clients()
WEIGHTS = tuple(map(tf.constant, oracle.unpack(small_problem.theta_0())))


def element(i):
  x, y = DATA[i]
  return collections.OrderedDict(x=tf.constant(x), y=tf.constant(y), client=tf.constant(i))


@dataclasses.dataclass(frozen=True)
class Looks(corrections.Correction):
  """Uploads what it knows."""

  def client_update(self, client, g_i, steps):
    return (), collections.OrderedDict(
      seed=client.seed,
      counts=client.label_counts(3),
      planned=client.planned_steps,
      loss=client.full_loss(),
    )


def data_of(clients):
  """What `train_locally` takes of one client, or of a group."""
  data = [element(i) for i in clients]
  if len(data) == 1:
    return data[0]
  return data


def looked(clients, t=1):
  """The uploads of clients: one by a direct call, several as a group."""
  return small_problem.train_locally(data_of(clients), correction=Looks(), t=t).upload


def test_a_part_knows_its_clients_labels_loss_steps_and_seed():
  alone = looked([1])
  x, y = DATA[1]
  np.testing.assert_array_equal(alone['counts'], np.bincount(y, minlength=3))
  assert float(alone['planned']) == 3  # 11 examples in batches of 4.
  wanted = newer.loss(small_problem.theta_0(), x, y)
  assert float(alone['loss']) == pytest.approx(wanted, rel=1e-6)
  group = looked([1, 4])
  for name, value in alone.items():
    np.testing.assert_allclose(group[name][0], value, rtol=1e-6)
  seeds = {tuple(np.asarray(s)) for s in (*group['seed'], looked([1], t=2)['seed'])}
  assert len(seeds) == 3  # By client and by round.


@dataclasses.dataclass(frozen=True)
class Elsewhere(corrections.Correction):
  """Begins at theta + 1, takes gradients half way back, and doubles the loss."""

  def begin(self, client, theta):
    return base.combine(lambda w: w + 1.0, theta)

  def point(self, client, theta):
    return base.combine(lambda y, x: (y + x) / 2, theta, client.theta_0)

  def loss(self, client, batch):
    return 2 * batch.loss


@pytest.mark.parametrize('clients', [[4], [1, 4]], ids=['alone', 'in a group'])
def test_a_part_begins_elsewhere_takes_gradients_elsewhere_and_changes_the_loss(clients):
  trained = small_problem.train_locally(data_of(clients), correction=Elsewhere())
  received = small_problem.theta_0().astype(np.float64)
  for position, i in enumerate(clients):
    x, y = DATA[i]
    theta = received + 1
    for start in range(0, len(y), 4):
      batch = x[start : start + 4], y[start : start + 4]
      theta = theta - 0.2 * 2 * oracle.gradient((theta + received) / 2, *batch)
    update = trained.update
    if len(clients) > 1:
      update = [leaf[position] for leaf in update]
    np.testing.assert_allclose(oracle.pack(update), received - theta, rtol=1e-5, atol=1e-6)


def test_hooks_of_a_chain_act_one_after_another():
  chain = corrections.chain(Elsewhere(), corrections.FedInit(0.5))
  client = base.ClientRound(
    theta_0=WEIGHTS,
    client_state=((), chain.client_state(WEIGHTS)[1]),
    broadcast=(),
    t=tf.constant(1.0),
    eta_l=tf.constant(0.1),
    num_examples=tf.constant(1.0),
    full_gradient=lambda: WEIGHTS,
  )
  first = chain.begin(client, WEIGHTS)
  np.testing.assert_allclose(first[0], WEIGHTS[0] + 1.0)
  assert chain.overrides('begin', 'point', 'loss')
  assert not chain.overrides('personal')


@pytest.mark.parametrize('order', [1, -1])
def test_what_moves_the_received_model_leaves_weights_that_stay_where_they_ended(order):
  stays = (False, False, True, True)
  keeps = corrections.FedPer().with_groups(stays=stays)
  chain = corrections.chain(*[keeps, corrections.FedInit(0.5)][::order])
  kept_weights = tuple(w + 1.0 for w in base.only(stays, WEIGHTS))
  ended = tuple(w + 1.0 for w in WEIGHTS)  # What FedInit remembers of the round before.
  states = [{'own': kept_weights}, {'ended': ended, 'has_ended': tf.ones([])}]
  trained = small_problem.train_locally(
    data_of([0]), correction=chain, state=tuple(states[::order]), rate=0.0
  )
  kept_after = trained.client_state[0 if order == 1 else 1]['own']
  for after, before in zip(kept_after, kept_weights, strict=True):
    np.testing.assert_allclose(after, before, rtol=1e-6)


@dataclasses.dataclass(frozen=True)
class Wrong(corrections.Correction):
  """Returns what it was told to in place of weights or a loss."""

  hook: str = ''

  def begin(self, client, theta):
    return theta[:1] if self.hook == 'begin' else theta

  def point(self, client, theta):
    return theta[0] if self.hook == 'point' else theta

  def loss(self, client, batch):
    if self.hook == 'loss':
      return batch.outputs
    return batch.loss


@pytest.mark.parametrize('hook', ['begin', 'point', 'loss'])
def test_a_hook_that_returns_something_else_is_named(hook):
  with pytest.raises(TypeError, match=rf'^Wrong\.{hook} must return (weights|a loss)'):
    small_problem.train_locally(element(4), correction=Wrong(hook))


def test_weights_that_stay_are_what_the_client_begins_with():
  """FedProx behind FedPer pulls a client's head towards its own, not towards the server's."""
  names = [f'weight_{i}' for i in range(4)]
  kinds = [frozenset({'body'})] * 2 + [frozenset({'head'})] * 2
  named = [
    base.NamedWeight(name, tuple(w.shape), own_kinds)
    for name, w, own_kinds in zip(names, WEIGHTS, kinds)
  ]
  chain = corrections.chain(corrections.FedPer(), corrections.FedProx(0.5)).resolved(named)
  beginning = base.combine(lambda w: w + 0.5, base.only(chain.stays, WEIGHTS))
  state = (collections.OrderedDict(own=beginning), ())
  head = np.concatenate([np.full(size, i >= 2) for i, size in enumerate(oracle.SIZES)])
  received = np.where(head, small_problem.theta_0() + 0.5, small_problem.theta_0())
  theta = received.astype(np.float64)
  x, y = DATA[4]
  for start in range(0, len(y), 4):
    g = oracle.gradient(theta, x[start : start + 4], y[start : start + 4])
    theta = theta - 0.2 * (g + 0.5 * (theta - received))
  trained = small_problem.train_locally(element(4), correction=chain, state=state)
  assert [tuple(leaf.shape) for leaf in trained.update] == [(5, 4), (4,)]
  np.testing.assert_allclose(
    oracle.pack(trained.update), (received - theta)[~head], rtol=1e-5, atol=1e-6
  )
  np.testing.assert_allclose(
    oracle.pack(trained.client_state[0]['own']), theta[head], rtol=1e-5, atol=1e-6
  )
