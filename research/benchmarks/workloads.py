"""The workloads of the benchmark: data of fixed seeds and shapes, and models."""

import collections
import dataclasses
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

MLP = (784, 100, 100, 26)  # W4's layers.
POOL = 100  # Different clients at most: client c has the data of client c % POOL.


@dataclasses.dataclass(frozen=True)
class Workload:
  """One benchmark workload."""

  name: str  # As on the command line.
  description: str  # One line.
  cohort: int = 10  # Clients a round.
  examples: int = 100  # Examples a client.
  batch_size: int = 20  # B.
  epochs: int = 1  # E.
  population: int = 100  # Registered clients.
  rate: float = 0.01  # Client learning rate.


WORKLOADS = {
  w.name: w
  for w in (
    Workload('W1', 'CNN of EMNIST, 1.2 M parameters, dropout'),
    Workload('W1s', 'the same, 50 clients', cohort=50),
    Workload(
      'W2', 'logistic regression 10,000 -> 500', examples=200, batch_size=100, population=30
    ),
    Workload('W3', 'LSTM of Shakespeare', examples=40, batch_size=4),
    Workload('W4', 'MLP 784-100-100-26', examples=450, batch_size=45, epochs=5, population=1000),
    Workload('W5', "CIFAR-100's ResNet-18 with GroupNorm, 11 M parameters", population=20),
  )
}


def clients(workload: Workload) -> list[collections.OrderedDict[str, np.ndarray]]:
  """The arrays of the clients that differ."""
  return [synthetic_client(workload, c) for c in range(min(workload.population, POOL))]


def synthetic_client(workload: Workload, client: int) -> collections.OrderedDict[str, np.ndarray]:
  """The arrays of a client."""
  rng = np.random.default_rng([10_000, client % POOL])
  n = workload.examples
  if workload.name.startswith('W1'):
    x = rng.random((n, 28, 28, 1), np.float32)
    y = rng.integers(0, 62, n)
  elif workload.name == 'W2':
    bags = rng.random((n, 10000), np.float32) < 0.005
    tags = rng.random((n, 500), np.float32) < 0.01
    return collections.OrderedDict(x=bags.astype(np.float32), y=tags.astype(np.float32))
  elif workload.name == 'W3':
    text = rng.integers(0, 90, (n, 81)).astype(np.int32)
    return collections.OrderedDict(x=text[:, :-1].copy(), y=text[:, 1:].copy())
  elif workload.name == 'W5':
    x = rng.standard_normal((n, 24, 24, 3), np.float32)
    y = rng.integers(0, 100, n)
  else:
    x = rng.random((n, 784), np.float32)
    y = rng.integers(0, MLP[-1], n)
  return collections.OrderedDict(x=x, y=y.astype(np.int32))


def cohort(workload: Workload, round_number: int) -> list[int]:
  """The clients of a round, by number."""
  rng = np.random.default_rng([777, round_number])
  return [int(c) for c in rng.choice(workload.population, workload.cohort, replace=False)]


def build_model(workload: Workload, **options: Any) -> Any:
  """This project's model; the options are those of Shakespeare's."""
  import tensorflow as tf

  from tff_adaptive import models
  from tff_adaptive_tasks import emnist, shakespeare
  from tff_adaptive_tasks.models import layers as layers_lib, resnet

  if workload.name.startswith('W1'):
    return emnist.build_cnn(1)
  if workload.name == 'W3':
    return shakespeare.build_model(1, **options)
  if workload.name == 'W4':
    return layers_lib.perceptron(1, list(MLP))
  if workload.name == 'W5':  # Images that are cropped and standardised already.
    weights = resnet.build(1, 100).initial_weights[0]
    return layers_lib.classifier(weights, lambda w, x, *_: resnet.apply(w, x, 2), [24, 24, 3])
  weights = layers_lib.perceptron_weights(1, [10000, 500])
  return models.Model(
    initial_weights=weights,
    forward=lambda w, x, training, seed: layers_lib.dense(x, *w),
    example_loss=lambda p, y: tf.reduce_mean(
      tf.nn.sigmoid_cross_entropy_with_logits(labels=y, logits=p), -1
    ),
    x_spec=tf.TensorSpec([None, 10000], tf.float32),
    y_spec=tf.TensorSpec([None, 500], tf.float32),
    client_axis=True,
  )


def build_process(workload: Workload, options: Collection[str] = ()) -> Any:
  """This project's FedAvg; xla, lstm, 16-bit types and compressors of `names.OPTIONS` change it."""
  from tff_adaptive import aggregation, algorithms, corrections
  from tff_adaptive.client import Batching, ClientTraining
  from tff_adaptive.models import mixed_precision

  for_model = {}
  if 'lstm' in options:
    for_model['lstm'] = 'compiled'
  model = build_model(workload, **for_model)
  for dtype in {*options} & {*mixed_precision.DTYPES}:
    model = mixed_precision.convert(model, dtype)
  batching = Batching(workload.batch_size, workload.epochs)
  measures = None
  aggregator = None
  if 'ledger' in options:
    measures = 'basic'
  if 'full_ledger' in options:
    measures = 'full'
    aggregator = aggregation.ClientNormsFactory(cosines=True)
  training = ClientTraining(batching=batching, xla='xla' in options, measures=measures)
  compressors = {
    'top_k': corrections.TopK(share=0.05),
    'quantize': corrections.Quantize(bits=8, random=False),
  }
  return algorithms.build_fed_avg(
    model,
    client_learning_rate=workload.rate,
    training=training,
    aggregator=aggregator,
    more_parts=[part for name, part in compressors.items() if name in options],
  )


def stock_model_fn(workload: Workload) -> Callable[[], Any]:
  """The Keras model, as TFF's users write it."""
  import tensorflow as tf
  import tensorflow_federated as tff

  if workload.name == 'W5':  # TFF's own; its normalisation has other groups.
    spec = tff.simulation.baselines.ClientSpec(num_epochs=1, batch_size=workload.batch_size)
    create = tff.simulation.baselines.cifar100.create_image_classification_task
    return create(spec, use_synthetic_data=True).model_fn
  layers = tf.keras.layers
  sparse = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  accuracy = tf.keras.metrics.SparseCategoricalAccuracy

  def model_fn() -> Any:
    inputs = tf.keras.Input([784])
    y = tf.TensorSpec([None], tf.int32)
    loss = sparse
    metrics = [accuracy()]
    stack = [*(layers.Dense(n, 'relu') for n in MLP[1:-1]), layers.Dense(MLP[-1])]
    if workload.name.startswith('W1'):
      inputs = tf.keras.Input([28, 28, 1])
      stack = [layers.Conv2D(n, 3, activation='relu') for n in (32, 64)]
      stack += [layers.MaxPool2D(), layers.Dropout(0.25), layers.Flatten()]
      stack += [layers.Dense(128, 'relu'), layers.Dropout(0.5), layers.Dense(62)]
    elif workload.name == 'W2':
      inputs = tf.keras.Input([10000])
      y = tf.TensorSpec([None, 500])
      stack = [layers.Dense(500)]
      loss = tf.keras.losses.BinaryCrossentropy(from_logits=True)
      metrics = []
    elif workload.name == 'W3':
      inputs = tf.keras.Input([80], dtype=tf.int32)
      y = tf.TensorSpec([None, 80], tf.int32)
      stack = [layers.Embedding(90, 8, input_length=80)]
      stack += [layers.LSTM(256, return_sequences=True) for _ in range(2)]
      stack += [layers.Dense(90)]
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential([inputs, *stack]),
      loss=loss,
      metrics=metrics,
      input_spec=collections.OrderedDict(x=tf.TensorSpec(inputs.shape, inputs.dtype), y=y),
    )

  return model_fn
