"""The local training of a client, called by itself: the formulas, groups, and what diverges."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import oracle
from tests.helpers import closeness, engines, small_problem
from tff_adaptive import algorithms, corrections, engine, models, optimizers
from tff_adaptive.client import (
  Batching,
  ClientTraining,
  client_arrays,
  local_training,
  model_adapters,
)

DATA = small_problem.clients()
train = small_problem.train_locally
keras_model = small_problem.keras_model


def batches(i):
  """A client's examples in batches of 4, TFF's convention."""
  x, y = DATA[i]
  return tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y)).batch(4)


def element(i, data=DATA):
  (of_client,) = small_problem.element(data[i], i)
  return {name: tf.constant(value) for name, value in of_client.items()}


def test_fed_avg_is_that_of_tff_weight_for_weight():
  """Batched datasets, unequal n_i and K_i, other clients every round; to the last bits."""
  model = small_problem.linear_model()
  ours = algorithms.build_fed_avg(model, client_learning_rate=0.2)
  tffs = tff.learning.algorithms.build_weighted_fed_avg(
    model, client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.2)
  )
  with engine.graph_context():
    states = ours.initialize(), tffs.initialize()
    for cohort in small_problem.cohorts(2):
      data = [batches(i) for i in cohort]
      outputs = ours.next(states[0], data), tffs.next(states[1], data)
      states = outputs[0].state, outputs[1].state
      actual, wanted = (
        oracle.pack(p.get_model_weights(s).trainable) for p, s in zip((ours, tffs), states)
      )
      np.testing.assert_allclose(actual, wanted, rtol=1e-6, atol=1e-7)
      trained, tff_trained = (o.metrics['client_work']['train'] for o in outputs)
      for name in tff_trained:
        np.testing.assert_allclose(trained[name], tff_trained[name], rtol=1e-6)
  assert np.abs(actual - oracle.pack(model.initial_weights[0])).max() > 0.1


@pytest.mark.parametrize('model', [None, keras_model], ids=['', 'keras'])
@pytest.mark.parametrize('as_arrays', [True, False])
@pytest.mark.sample(2)
def test_every_kind_of_model_and_of_data_follows_the_formula(model, as_arrays):
  """Padding of the last batch, for this project's models, changes nothing."""
  expected = oracle.FedAvg(
    small_problem.theta_0(), DATA, server=None, eta_l=None, batch_size=4, clip=0.4, weight_decay=0.1
  )
  if as_arrays:
    data = element(1)
  else:
    data = batches(1)
  if as_arrays:
    batching = Batching(4, shuffle=False)
  else:
    batching = None
  trained = train(data, model, batching=batching, clip_norm=0.4, weight_decay=0.1)
  wanted = expected.theta - expected.train(1, 0.2)[0]
  closeness.assert_close(oracle.pack(trained.update), wanted)
  assert float(trained.num_examples) == 11
  assert float(trained.squared_norm) == pytest.approx(np.sum(wanted**2), rel=1e-4)
  assert (float(trained.is_used), float(trained.diverged)) == (1, 0)


def _two_inputs():
  """The linear model of a dict with a pair in it: its parts are columns of the problem's x."""
  w, _, _, c = oracle.unpack(small_problem.theta_0())
  a = tf.keras.Input([2], name='a')
  b = tf.keras.Input([1], name='b')
  d = tf.keras.Input([2], name='d')
  dense = tf.keras.layers.Dense(
    3,
    kernel_initializer=tf.keras.initializers.Constant(w[:, :3]),
    bias_initializer=tf.keras.initializers.Constant(c),
  )
  output = dense(tf.keras.layers.Concatenate()([a, b, d]))
  return tff.learning.models.from_keras_model(
    tf.keras.Model({'ab': (a, b), 'd': d}, output),
    input_spec=collections.OrderedDict(
      x=collections.OrderedDict(
        ab=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])), d=tf.TensorSpec([None, 2])
      ),
      y=tf.TensorSpec([None], tf.int32),
    ),
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )


@pytest.mark.exhaustive
def test_a_model_of_several_inputs_trains_on_whole_arrays():
  """As the model of one input, whose columns are the several inputs."""
  actual, wanted = (
    algorithms.build_scaffold(
      model, num_clients=7, client_learning_rate=0.2, training=ClientTraining(batching=Batching(4))
    )
    for model in (_two_inputs, small_problem.linear_model())
  )

  def parts(x):
    return collections.OrderedDict(ab=(x[:, :2], x[:, 2:3]), d=x[:, 3:])

  cohort = [0, 1, 3]
  nested = [client_arrays(parts(DATA[i][0]), DATA[i][1], i) for i in cohort]
  flat = [client_arrays(*DATA[i], i) for i in cohort]
  results = []
  with engine.graph_context():
    for process, data in ((actual, nested), (wanted, flat)):
      state = process.initialize()
      client_states = [process.initial_client_state] * 3
      for _ in range(2):
        state, client_states, _ = process.next(state, client_states, data)
      results.append((state.global_model_weights.trainable, client_states))
  engines.assert_same(*results)


def test_the_full_gradient_of_scaffold_option_1_counts_in_no_metric_of_keras():
  zeros = tuple(map(tf.zeros_like, small_problem.model().initial_weights[0]))
  actual = train(
    batches(1),
    keras_model,
    corrections.Scaffold(7, scaffold_option=1),
    {'h': zeros},
    zeros,
    batching=None,
  )
  plain = train(
    batches(1), keras_model, corrections.ScaffoldM(7), {'h': zeros}, zeros, batching=None
  )
  wanted = oracle.gradient(small_problem.theta_0().astype(np.float64), *DATA[1])
  closeness.assert_close(oracle.pack(actual.client_state['h']), wanted)
  for one, other in zip(*(tf.nest.flatten(trained.metrics) for trained in (actual, plain))):
    np.testing.assert_array_equal(one, other)


def at_random(tree, i):
  """Other weights and other numbers >= 0, of the same structure."""

  def other(leaf):
    shape = leaf.shape
    if shape.rank:
      return tf.random.stateless_uniform(shape, [i, 7])
    return tf.constant(3.0 - i)

  return tf.nest.map_structure(other, tree)


MOMENTUM = optimizers.build_sgdm(1.0, 0.5)


def _named(value):
  """Without addresses: all workers of a test run must name a test alike."""
  if isinstance(value, dict):
    return ' '.join(value)
  return type(value).__name__


@pytest.mark.parametrize(
  'correction, options',
  [
    (corrections.Correction(), {}),
    (corrections.AdaBest(0.3, 0.8, scale_mu=True), {'optimizer': MOMENTUM}),
    (corrections.DeltaSGD(), {'sam_rho': 0.3}),
  ],
  ids=_named,
)
@pytest.mark.sample(1)
def test_a_group_trains_as_its_clients_do_alone(correction, options):
  """With and without states, gradients at other points, and an optimizer with momentum.

  The sizes are unequal, one client has no examples, and one diverges, which changes nothing.
  """
  data = [DATA[0], DATA[4], tuple(a[:0] for a in DATA[2]), (DATA[3][0] * np.inf, DATA[3][1])]
  model = small_problem.linear_model()
  weights = tuple(map(tf.constant, model.initial_weights[0]))
  options = dict(options, own_model=model, t=4, clip_norm=0.5, weight_decay=0.1)
  options['broadcast'] = at_random(correction.broadcast(correction.server_state(weights)), 1)
  states = [at_random(correction.client_state(weights), i) for i in range(4)]
  alone = [
    train(element(i, data), correction=correction, state=state, **options)
    for i, state in enumerate(states)
  ]
  together = train(
    [element(i, data) for i in range(4)],
    correction=correction,
    state=tf.nest.map_structure(lambda *leaves: tf.stack(leaves), *states),
    **options,
  )
  for i, one in enumerate(alone):
    for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(together), strict=True):
      closeness.assert_close(b[i], a)
  assert together.is_used.numpy().tolist() == [1, 1, 0, 0]
  assert together.diverged.numpy().tolist() == [0, 0, 0, 1]
  assert together.num_examples.numpy().tolist() == [3, 16, 0, 8]
  diverged = alone[3]
  for leaf in tf.nest.flatten([diverged.update, diverged.upload, diverged.metrics]):
    assert not np.any(leaf)
  for leaf, before in zip(tf.nest.flatten(diverged.client_state), tf.nest.flatten(states[3])):
    np.testing.assert_array_equal(leaf, before)


def test_what_is_exchanged_counts_of_clients_with_examples_and_finite_numbers():
  data = [DATA[1], tuple(a[:0] for a in DATA[2]), (DATA[3][0] * np.inf, DATA[3][1])]
  model = model_adapters.wrap(small_problem.model())

  @tf.function(autograph=False)
  def exchange():
    return local_training.exchange(
      model,
      ClientTraining(batching=Batching(4)),
      corrections.Mime(),
      model.initial_weights(),
      [element(i, data) for i in range(3)],
      (),
      local_training.Message(tf.constant(1), tf.constant(0.2)),
    )

  sent, num_examples = exchange()
  assert num_examples.numpy().tolist() == [11, 0, 0]
  wanted = oracle.gradient(small_problem.theta_0().astype(np.float64), *DATA[1])
  for i, g in enumerate((wanted, 0 * wanted, 0 * wanted)):
    closeness.assert_close(oracle.pack([leaf[i] for leaf in sent]), g)


def test_a_penalty_does_not_move_clients_that_have_taken_their_steps():
  def penalty(weights):
    return 0.1 * tf.add_n([tf.reduce_sum(w * w, [-2, -1]) for w in (weights[0], weights[2])])

  model = small_problem.model(penalty=penalty)
  together = train([element(i) for i in (4, 0)], model)  # Four steps and one.
  for k, i in enumerate((4, 0)):
    for a, b in zip(train(element(i), model).update, together.update):
      closeness.assert_close(b[k], a)


@pytest.mark.parametrize(
  'bad',
  [
    {'optimizer': 'sgd'},
    {'batching': 20},
    {'seed': None},
    {'seed': -1},
    {'seed': 2**62},
    {'optimizer_state': 'kept'},
  ],
)
def test_bad_client_training_names_the_field(bad):
  with pytest.raises((TypeError, ValueError), match=next(iter(bad))):
    ClientTraining(**bad)
  assert ClientTraining(seed=2**62 - 1).seed == 2**62 - 1


def test_clients_train_together_by_batches_of_arrays():
  def can_group(model, batching, momentum=0.0):
    sgd = tff.learning.optimizers.build_sgdm(0.1, momentum)
    training = ClientTraining(sgd, batching)
    return local_training.can_group(model_adapters.wrap(model), training)

  ours = small_problem.model()
  assert can_group(ours, Batching(4))
  assert can_group(ours, Batching(4), momentum=0.9)
  assert not can_group(ours, None)
  assert not can_group(ours, Batching(None))
  assert not can_group(keras_model, Batching(4))


def drawing_model(cells):
  """Its update shows which cell each local step drew by its seed."""

  def forward(weights, x, training, seed):
    drawn = tf.random.stateless_uniform([], seed, maxval=cells, dtype=tf.int32)
    return weights[0][drawn] * tf.ones_like(x[:, 0])

  return models.Model(
    initial_weights=(np.zeros(cells, np.float32),),
    forward=forward,
    example_loss=lambda y_hat, y: y_hat,
    x_spec=small_problem.SPEC['x'],
    y_spec=small_problem.SPEC['y'],
  )


@pytest.mark.sample(1)
@pytest.mark.parametrize('given_as', ['whole arrays', 'batches'])
def test_no_two_local_steps_draw_the_same(given_as):
  model = drawing_model(10**5)
  cohort = [1, 2, 3]  # Neighbours, as rounds are.
  epochs = 1

  def drawn(*trained):
    return set(np.flatnonzero(np.concatenate([t.update[0] for t in trained], None)) % 10**5)

  seen = set()
  for t in (1, 2):
    if given_as == 'batches':
      results = [train(batches(i).repeat(epochs), model, t=t, batching=None) for i in cohort]
    else:
      results = [train(element(i), model, t=t, batching=Batching(4, epochs)) for i in cohort]
    seen |= drawn(*results)
  assert len(seen) == 2 * sum(epochs * -(-small_problem.NUM_EXAMPLES[i] // 4) for i in cohort)
  if given_as == 'whole arrays':
    together = train([element(i) for i in cohort], model, t=t, batching=Batching(4, epochs))
    assert drawn(together) == drawn(*results)
