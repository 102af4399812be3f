"""The local training of a client, called by itself: the formulas, groups, and what diverges."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import oracle, small_problem
from tff_adaptive import algorithms, corrections, engine, models
from tff_adaptive.client import Batching, ClientTraining, local_training, model_adapters

BATCH_TYPE = collections.OrderedDict(
  x=tf.TensorSpec([None, 5], tf.float32), y=tf.TensorSpec([None], tf.int32)
)
DATA = small_problem.clients()


def batches(i):
  """A client's examples in batches of 4, TFF's convention."""
  x, y = DATA[i]
  return tf.data.Dataset.from_tensor_slices(collections.OrderedDict(x=x, y=y)).batch(4)


def element(i, data=DATA):
  (found,) = small_problem.element(data[i], i)
  return {name: tf.constant(value) for name, value in found.items()}


def train(data, model=None, correction=None, state=(), broadcast=(), t=1, **training):
  """Trains the small problem's model at rate 0.2 from theta_0."""
  local = model_adapters.wrap(small_problem.model() if model is None else model)
  return local_training.train(
    local,
    ClientTraining(**{'batching': Batching(4, shuffle=False), **training}),
    correction or corrections.Correction(),
    weights=local.initial_weights(),
    data=tf.data.Dataset.from_tensors(data) if isinstance(data, dict) else data,
    client_state=state,
    broadcast=broadcast,
    round_number=tf.constant(t),
    rate=tf.constant(0.2),
  )


def keras_model():
  """The small problem's perceptron, as Keras says it."""
  w, a, v, c = oracle.unpack(small_problem.theta_0())
  constant = tf.keras.initializers.Constant
  layers = [
    tf.keras.layers.Input([5]),
    tf.keras.layers.Dense(4, 'tanh', True, constant(w), constant(a)),
    tf.keras.layers.Dense(3, None, True, constant(v), constant(c)),
  ]
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(layers),
    input_spec=BATCH_TYPE,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def functional_model():
  """The small problem's perceptron as a plain functional model of TFF, without masks."""
  ours = small_problem.model()
  return tff.learning.models.FunctionalModel(
    initial_weights=ours.initial_weights,
    predict_on_batch_fn=tf.function(lambda w, x, training: ours.forward(w[0], x, training, None)),
    loss_fn=lambda output, label, _=None: tf.reduce_mean(ours.example_loss(output, label)),
    metrics_fns=(collections.OrderedDict, lambda state, *_, **__: state, lambda state: state),
    input_spec=BATCH_TYPE,
  )


def test_fed_avg_is_that_of_tff_weight_for_weight():
  """Batched datasets, unequal n_i and K_i, other clients every round; to the last bits."""
  model = small_problem.model()
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
      found, wanted = (
        oracle.pack(p.get_model_weights(s).trainable) for p, s in zip((ours, tffs), states)
      )
      np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-7)
      trained, tff_trained = (o.metrics['client_work']['train'] for o in outputs)
      for name in tff_trained:
        np.testing.assert_allclose(trained[name], tff_trained[name], rtol=1e-6)
  assert np.abs(found - small_problem.theta_0()).max() > 0.1


@pytest.mark.parametrize('model', [None, keras_model, functional_model()], ids=['', 'keras', 'tff'])
@pytest.mark.parametrize('as_arrays', [True, False])
def test_every_kind_of_model_and_of_data_follows_the_formula(model, as_arrays):
  """Padding of the last batch, for this project's models, changes nothing."""
  expected = oracle.FedAvg(
    small_problem.theta_0(),
    DATA,
    server=None,
    eta_l=None,
    batch_size=4,
    clip=0.4,
    weight_decay=0.1,
  )
  data = element(1) if as_arrays else batches(1)
  batching = Batching(4, shuffle=False) if as_arrays else None
  found = train(data, model, batching=batching, clip_norm=0.4, weight_decay=0.1)
  wanted = expected.theta - expected.train(1, 0.2)[0]
  np.testing.assert_allclose(oracle.pack(found.update), wanted, atol=2e-6)
  assert float(found.num_examples) == 11
  assert float(found.squared_norm) == pytest.approx(np.sum(wanted**2), rel=1e-4)
  assert (float(found.is_used), float(found.diverged)) == (1, 0)


def test_the_full_gradient_of_scaffold_option_1_counts_in_no_metric_of_keras():
  zeros = tuple(map(tf.zeros_like, small_problem.model().initial_weights[0]))
  found, plain = (
    train(batches(1), keras_model, correction, {'h': zeros}, zeros, batching=None)
    for correction in (corrections.Scaffold(7, scaffold_option=1), corrections.ScaffoldM(7))
  )
  wanted = oracle.gradient(small_problem.theta_0().astype(np.float64), *DATA[1])
  np.testing.assert_allclose(oracle.pack(found.client_state['h']), wanted, atol=1e-6)
  for one, other in zip(*(tf.nest.flatten(trained.metrics) for trained in (found, plain))):
    np.testing.assert_array_equal(one, other)


def test_a_group_trains_as_its_clients_do_alone():
  """Of unequal sizes, one of them without examples and one that diverges."""
  data = [DATA[0], DATA[4], tuple(a[:0] for a in DATA[2]), (DATA[3][0] * np.inf, DATA[3][1])]
  rng = np.random.default_rng(0)
  states = [
    collections.OrderedDict(
      h=tuple(rng.normal(size=w.shape).astype(np.float32) for w in oracle.unpack(np.zeros(39))),
      last_round=np.float32(t),
    )
    for t in (2, 1, 0, 3)
  ]
  options = dict(broadcast=tf.constant(5.0), t=4, clip_norm=0.5, weight_decay=0.1)
  correction = corrections.AdaBest(0.3, 0.8, scale_mu=True)
  states = [tf.nest.map_structure(tf.constant, state) for state in states]
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
    for a, b in zip(tf.nest.flatten(one), tf.nest.flatten(together)):
      np.testing.assert_allclose(b[i], a, rtol=1e-5, atol=1e-6)
  assert together.is_used.numpy().tolist() == [1, 1, 0, 0]
  assert together.diverged.numpy().tolist() == [0, 0, 0, 1]
  assert together.num_examples.numpy().tolist() == [3, 16, 0, 8]


@pytest.mark.parametrize('value', [np.inf, np.nan])
def test_a_client_that_diverges_changes_nothing_but_is_counted(value):
  x, y = DATA[4]
  x = x.copy()
  x[1, 2] = value
  kept = tuple(tf.constant(w + 1) for w in small_problem.model().initial_weights[0])
  zeros = tuple(map(tf.zeros_like, kept))
  found = train(element(0, [(x, y)]), None, corrections.Scaffold(7), {'h': kept}, zeros)
  assert (float(found.is_used), float(found.diverged), float(found.squared_norm)) == (0, 1, 0)
  for tree in (found.update, found.upload, tf.nest.flatten(found.metrics)):
    assert not any(np.any(leaf) for leaf in tree)
  for leaf, before in zip(found.client_state['h'], kept):
    np.testing.assert_array_equal(leaf, before)


def test_seeds_have_62_bits_and_a_clip_norm_may_be_given():
  training = ClientTraining(seed=2**62 - 1, clip_norm=0.5)
  assert (training.seed, training.clip_norm, training.xla) == (2**62 - 1, 0.5, False)
  with pytest.raises(ValueError, match='seed must be at most'):
    ClientTraining(seed=2**62)


def test_clients_train_together_by_batches_of_arrays_and_optimizers_without_slots():
  ours = small_problem.model()
  for can, model, momentum, batching in (
    *((True, ours, 0.0, Batching(4)), (False, ours, 0.9, Batching(4))),
    *((False, ours, 0.0, None), (False, ours, 0.0, Batching(None))),
    (False, functional_model(), 0.0, Batching(4)),
  ):
    sgd = tff.learning.optimizers.build_sgdm(0.1, momentum)
    training = ClientTraining(sgd, batching)
    assert local_training.can_group(model_adapters.wrap(model), training) == can


def drawing_model(cells):
  """Its update shows which cell each local step drew by its seed."""

  def forward(weights, x, training, seed):
    drawn = tf.random.stateless_uniform([], seed, maxval=cells, dtype=tf.int32)
    return weights[0][drawn] * tf.ones_like(x[:, 0])

  return models.Model(
    initial_weights=(np.zeros(cells, np.float32),),
    forward=forward,
    example_loss=lambda y_hat, y: y_hat,
    x_spec=BATCH_TYPE['x'],
    y_spec=BATCH_TYPE['y'],
  )


@pytest.mark.parametrize('given_as', ['whole arrays', 'groups', 'batches'])
def test_no_two_local_steps_draw_the_same(given_as):
  model, cohort, epochs = drawing_model(10**5), [1, 2, 3], 1  # Neighbours, as rounds are.
  seen = set()
  for t in (1, 2):
    if given_as == 'batches':
      found = [train(batches(i).repeat(epochs), model, t=t, batching=None) for i in cohort]
    elif given_as == 'groups':
      found = [train([element(i) for i in cohort], model, t=t, batching=Batching(4, epochs))]
    else:
      found = [train(element(i), model, t=t, batching=Batching(4, epochs)) for i in cohort]
    for trained in found:
      seen |= set(np.flatnonzero(np.reshape(trained.update[0], [-1, 10**5]).sum(0)))
  assert len(seen) == 2 * sum(epochs * -(-small_problem.NUM_EXAMPLES[i] // 4) for i in cohort)
