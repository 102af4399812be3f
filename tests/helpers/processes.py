"""Small models, data, and TFF's own learning processes."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms, models
from tff_adaptive.client import ClientTraining, batching, client_arrays

FEATURES, CLASSES = 3, 2
SGD = tff.learning.optimizers.build_sgdm(0.1)
MOMENTUM = tff.learning.optimizers.build_sgdm(0.1, momentum=0.9)
ADAM = tff.learning.optimizers.build_adam(0.05)
SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, FEATURES], tf.float32), y=tf.TensorSpec([None], tf.int32)
)


def keras_model():
  """A Keras model with trainable and non-trainable variables and two metrics."""
  glorot = tf.keras.initializers.GlorotUniform
  network = tf.keras.Sequential(
    [
      tf.keras.Input([FEATURES]),
      tf.keras.layers.Dense(4, 'tanh', kernel_initializer=glorot(1)),
      tf.keras.layers.Dense(4, kernel_initializer=glorot(2), trainable=False),
      tf.keras.layers.Dense(CLASSES, kernel_initializer=glorot(3)),
    ]
  )
  return tff.learning.models.from_keras_model(
    network,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    input_spec=SPEC,
  )


def linear_model():
  """A linear model of this project."""
  rng = np.random.default_rng(0)
  weights = rng.normal(0, 0.3, [FEATURES, CLASSES]).astype(np.float32)
  return models.Model(
    initial_weights=[weights, np.zeros(CLASSES, np.float32)],
    forward=lambda w, x, training, seed: tf.matmul(x, w[0]) + w[1],
    example_loss=models.sparse_cross_entropy,
    metrics={'accuracy': models.accuracy},
    x_spec=tf.TensorSpec([None, FEATURES], tf.float32),
    y_spec=tf.TensorSpec([None], tf.int32),
  )


def examples(client, count):
  """A client's examples as whole arrays."""
  rng = np.random.default_rng(client)
  y = rng.integers(0, CLASSES, count).astype(np.int32)
  x = (rng.normal(0, 1, [count, FEATURES]) + y[:, np.newaxis]).astype(np.float32)
  return collections.OrderedDict(x=x, y=y)


def whole(*clients):
  """A cohort of this project: clients (number, examples) as whole arrays."""
  return [client_arrays(**examples(i, n), client=i) for i, n in clients]


def batches(client, count):
  """A client's examples as a list of batches of two."""
  data = examples(client, count)
  return [
    collections.OrderedDict((k, v[i : i + 2]) for k, v in data.items()) for i in range(0, count, 2)
  ]


def dataset(client, count):
  """A client's examples as a dataset of batches of two."""
  return tf.data.Dataset.from_tensor_slices(examples(client, count)).batch(2)


def cohorts():
  """Two rounds: other clients, cohort sizes and forms in each."""
  return [[dataset(1, 5), dataset(2, 2), dataset(3, 7)], [batches(3, 7), dataset(4, 1)]]


def fed_avg(**options):
  """TFF's FedAvg of the linear model."""
  return tff.learning.algorithms.build_weighted_fed_avg(linear_model(), SGD, SGD, **options)


def own(name='fed_yogi', **options):
  """An algorithm of this project on the linear model, for whole arrays."""
  rates = dict(client_learning_rate=0.1)
  if name == 'fed_yogi':
    rates['server_learning_rate'] = 0.05
  return getattr(algorithms, f'build_{name}')(
    linear_model(), training=ClientTraining(batching=batching.Batching(2)), **rates, **options
  )


def unweighted_fed_avg(aggregator):
  """TFF's unweighted FedAvg with an aggregator."""
  return tff.learning.algorithms.build_unweighted_fed_avg(
    linear_model(), SGD, SGD, model_aggregator=aggregator
  )


def preprocessed():
  """FedAvg with a part that looks words up in a table and batches them at the clients."""

  @tff.tensorflow.computation(tff.SequenceType(np.str_))
  def preprocess(words):
    table = tf.lookup.StaticHashTable(
      tf.lookup.KeyValueTensorInitializer(['yes', 'no'], tf.constant([0, 1])), 1
    )

    def example(word):
      label = table.lookup(word)
      return collections.OrderedDict(x=tf.fill([FEATURES], tf.cast(label, tf.float32)), y=label)

    return words.map(example).batch(2)

  return tff.simulation.compose_dataset_computation_with_learning_process(preprocess, fed_avg())


_learning = tff.learning.algorithms

PROCESSES = {
  'weighted_fed_avg': lambda: _learning.build_weighted_fed_avg(keras_model, MOMENTUM, ADAM),
  'fed_sgd_variables': lambda: _learning.build_fed_sgd(
    keras_model, MOMENTUM, loop_implementation=tff.learning.LoopImplementation.DATASET_ITERATOR
  ),
  'mime_lite_variables': lambda: _learning.build_weighted_mime_lite(keras_model, MOMENTUM),
  'robust': lambda: fed_avg(
    model_aggregator=tff.learning.robust_aggregator(
      debug_measurements_fn=tff.learning.add_debug_measurements
    )
  ),
  'dp_without_noise': lambda: unweighted_fed_avg(tff.learning.dp_aggregator(0.0, 3.0)),
  'secure': lambda: unweighted_fed_avg(tff.aggregators.SecureSumFactory(1.0, -1.0)),
}
