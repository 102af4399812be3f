"""A small federated problem for tests: seven unequal clients, a perceptron, and a round loop."""

import collections
import dataclasses
import functools

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import oracle
from tff_adaptive import algorithms, corrections, models
from tff_adaptive.client import (
  Batching,
  ClientTraining,
  client_arrays,
  local_training,
  model_adapters,
)

NUM_EXAMPLES = (3, 11, 4, 8, 16, 5, 9)
NUM_CLIENTS = len(NUM_EXAMPLES)
SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 5], tf.float32), y=tf.TensorSpec([None], tf.int32)
)


def clients(seed=0, num_examples=NUM_EXAMPLES):
  """Clients (x float32 [n, 5], y int32 [n]) whose inputs and labels are unlike each other's."""
  rng = np.random.default_rng(seed)
  data = []
  for n in num_examples:
    centre = rng.normal(size=5)
    x = (centre + rng.normal(size=(n, 5))).astype(np.float32)
    data.append((x, rng.choice(3, size=n, p=rng.dirichlet([0.5] * 3)).astype(np.int32)))
  return data


def cohorts(rounds, size=3, seed=1):
  """`rounds` cohorts of client numbers; in 10 rounds of 3 of 7 clients the gaps are unequal."""
  rng = np.random.default_rng(seed)
  return [list(rng.choice(NUM_CLIENTS, size, replace=False)) for _ in range(rounds)]


def theta_0(seed=2):
  """Initial weights as one vector, of float32 precision."""
  return np.random.default_rng(seed).normal(size=sum(oracle.SIZES)).astype(np.float32)


def model(theta=None, dtype=np.float32, **options):
  """The oracle's perceptron as a `tff_adaptive.models.Model`; `options` replace its parts."""

  def forward(weights, x, training, seed):
    del training, seed
    w, a, v, c = weights
    hidden = tf.tanh(tf.cast(x, w.dtype) @ w + a[..., tf.newaxis, :])
    return hidden @ v + c[..., tf.newaxis, :]

  if theta is None:
    theta = theta_0()
  parts = dict(
    initial_weights=[w.astype(dtype) for w in oracle.unpack(theta)],
    forward=forward,
    example_loss=models.sparse_cross_entropy,
    x_spec=SPEC['x'],
    y_spec=SPEC['y'],
    metrics={'accuracy': models.accuracy},
    client_axis=True,
  )
  return models.Model(**{**parts, **options})


def model_with_features(**options):
  """The perceptron, which also gives its hidden layer."""

  def features(weights, x, training, seed):
    del training, seed
    return tf.tanh(x @ weights[0] + weights[1])

  return model(features=features, **options)


def linear_model(**options):
  """A model of two tensors, whose rounds have half the operations of the perceptron's."""
  w, _, _, c = oracle.unpack(theta_0())

  def forward(weights, x, training, seed):
    del training, seed
    return x @ weights[0] + weights[1][..., tf.newaxis, :]

  return model(initial_weights=[w[:, :3], c], forward=forward, **options)


def keras_model(*before, hidden=True):
  """The perceptron, or the linear model, in Keras, after other layers; it counts examples."""
  w, a, v, c = oracle.unpack(theta_0())
  constant = tf.keras.initializers.Constant
  layers = [tf.keras.layers.Input([5]), *before]
  last = w[:, :3]
  if hidden:
    layers.append(tf.keras.layers.Dense(4, 'tanh', True, constant(w), constant(a)))
    last = v
  layers.append(tf.keras.layers.Dense(3, None, True, constant(last), constant(c)))
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(layers),
    input_spec=SPEC,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tff.learning.metrics.NumExamplesCounter()],
  )


def train_locally(
  data, own_model=None, correction=None, state=(), broadcast=(), exchanged=(), t=1, rate=0.2, **how
):
  """Trains a client, or a group of them, from a model's initial weights by direct calls.

  `how` has the fields of `ClientTraining` and the arguments of `algorithms.regularization`, whose
  parts follow the correction. The state, the broadcast and what is exchanged, and the results, are
  the correction's.
  """
  how, parts = _split(how)
  parts = algorithms.regularization(**parts)
  rule = correction or corrections.Correction()
  whole = corrections.chain(rule, *parts)
  is_chain = bool(parts) and type(rule) is not corrections.Correction and len(whole.parts) > 1
  if is_chain:
    nothing = [()] * len(parts)
    state = (state, *nothing) if rule.keeps_client_state() else ()
    broadcast = (broadcast, *nothing) if rule.overrides('broadcast') else ()
    exchanged = (exchanged, *nothing) if rule.overrides('exchange') else ()
  if own_model is None:
    own_model = model()
  local = model_adapters.wrap(own_model)

  def train():
    dataset = data
    if isinstance(data, dict):
      dataset = tf.data.Dataset.from_tensors(data)
    return local_training.train(
      local,
      ClientTraining(**{'batching': Batching(4, shuffle=False), **how}),
      whole,
      weights=local.initial_weights(),
      data=dataset,
      client_state=state,
      message=local_training.Message(
        tf.constant(t), tf.constant(rate), broadcast, exchanged=exchanged
      ),
    )

  # In eager mode a group's steps would be traced one by one.
  if isinstance(data, list):
    trained = tf.function(train, autograph=False)()
  else:
    trained = train()
  if is_chain:
    for name in ('client_state', 'upload'):
      if getattr(trained, name):
        trained = trained._replace(**{name: getattr(trained, name)[0]})
  return trained


def _split(options):
  """Splits options into those of `algorithms.regularization` and the others."""
  names = ('sam_rho', 'clip_norm', 'weight_decay')
  parts = {name: value for name, value in options.items() if name in names}
  return {name: value for name, value in options.items() if name not in names}, parts


def element(data, number, max_steps=None):
  """A client's dataset of one element, as the processes take it."""
  return client_arrays(*data, number, max_steps)


_OF_TRAINING = {field.name for field in dataclasses.fields(ClientTraining)}


@functools.cache
def process(name, rate=0.2, build_model=model, **options):
  """Returns an algorithm, built once; `options`: `ClientTraining`'s fields, and the builder's."""
  options, parts = _split(options)
  if parts:
    options['more_parts'] = tuple(algorithms.regularization(**parts))
  training = {'batching': Batching(4)}
  training.update((key, options.pop(key)) for key in _OF_TRAINING & set(options))
  if name in ('scaffold', 'scaffold_m', 'fed_dyn'):
    options.setdefault('num_clients', NUM_CLIENTS)
  if name in ('fed_adagrad', 'fed_adam', 'fed_yogi'):
    options.setdefault('server_learning_rate', 0.1)
  training = ClientTraining(**training)
  return getattr(algorithms, f'build_{name}')(
    build_model(), client_learning_rate=rate, training=training, **options
  )


class Run:
  """Runs a process. Keeps the states of the clients that took part, and the last metrics."""

  def __init__(self, process, data):
    self.process = process
    self.data = data
    self.state = process.initialize()
    self.client_states = {}
    self.metrics = None
    self.is_stateful = hasattr(process, 'initial_client_state')

  def round(self, cohort, limits=None):
    """One round with the clients of these numbers, with the most steps of each if given."""
    batch = [element(self.data[i], i, limits and limits[i]) for i in cohort]
    return self.step(batch, cohort)

  def step(self, batch, cohort):
    """One round with these elements, of the clients of these numbers."""
    if not self.is_stateful:
      output = self.process.next(self.state, batch)
      self.state = output.state
      self.metrics = output.metrics
      return self
    initial = self.process.initial_client_state
    before = [self.client_states.get(i, initial) for i in cohort]
    self.state, after, self.metrics = self.process.next(self.state, before, batch)
    self.client_states.update(
      (i, tf.nest.map_structure(np.asarray, s)) for i, s in zip(cohort, after)
    )
    return self

  def rounds(self, all_cohorts):
    """Several rounds."""
    for cohort in all_cohorts:
      self.round(cohort)
    return self

  @property
  def theta(self):
    """The cloud model as one float64 vector."""
    return oracle.pack(self.state.global_model_weights.trainable)

  @property
  def theta_bar(self):
    """The mean of the client models as one float64 vector."""
    return oracle.pack(self.state.inference_weights.trainable)

  @property
  def h(self):
    """The server's estimate as one float64 vector."""
    return oracle.pack(_of_part(self.state.correction)['h'])

  def h_i(self, number):
    """A client's estimate as one float64 vector; zeros before its first round."""
    state = self.client_states.get(number, self.process.initial_client_state)
    return oracle.pack(_of_part(state)['h'])


def _of_part(state):
  """The state with an h: the state itself, or in a chain that of the part that has one."""
  if isinstance(state, tuple):
    return next(part for part in state if 'h' in part)
  return state
