"""The workloads of the benchmark: fixed-seed data and models, or real data where there is some.

W1 to W6 are synthetic and of fixed shape. `digits_real`, `emnist_real` and `shakespeare_real` are
tasks of this project on the files in --data_dir, next to TFF's own baseline tasks on them.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Workload:
  """One benchmark workload."""

  name: str  # As on the command line.
  description: str  # One line.
  cohort: int = 10  # Clients a round.
  examples: int = 100  # Examples a client (synthetic workloads).
  batch_size: int = 20  # B.
  epochs: int = 1  # E.
  population: int = 100  # Registered clients.
  rate: float = 0.01  # Client learning rate.
  task: str | None = None  # Name of a task with real data, or None.
  task_options: tuple = ()  # Its options, or those of W3's model.

  @property
  def is_by_hand(self) -> bool:
    """Whether there is a program by hand for it: the variant hand."""
    return not (self.has_lstm or self.task)

  @property
  def has_lstm(self) -> bool:
    """Whether its model has LSTMs, which may be compiled operations."""
    return self.name in ('W3', 'shakespeare_real')

  @property
  def pool(self) -> int:
    """How many clients have data of their own: client c has those of client c % pool."""
    return min(self.population, POOL)


MLPS = {'W4': (784, 100, 100, 26), 'W6': (784, 200, 200, 10)}
POOL = 100  # Different synthetic clients at most.
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
    Workload(
      'W6', "EMNIST's 2NN, 784-200-200-10, 50 clients, 5 steps each", cohort=50, population=200
    ),
    Workload(
      'digits_real',
      'EMNIST digits, real data, the CNN',
      task='emnist_cr',
      task_options=(('only_digits', True),),
      rate=0.1,
    ),
    Workload('emnist_real', 'EMNIST, 62 classes, real data, the CNN', task='emnist_cr', rate=0.1),
    Workload(
      'shakespeare_real', 'Shakespeare, real data', batch_size=4, task='shakespeare', rate=1.0
    ),
  )
}


def synthetic_client(workload: Workload, client: int) -> collections.OrderedDict[str, np.ndarray]:
  """The arrays of a client of W1 to W6."""
  rng = np.random.default_rng([10_000, client % POOL])
  n = workload.examples
  if workload.name.startswith('W1'):
    x, y = rng.random((n, 28, 28, 1), np.float32), rng.integers(0, 62, n)
  elif workload.name == 'W2':
    bags, tags = rng.random((n, 10000), np.float32) < 0.005, rng.random((n, 500), np.float32) < 0.01
    return collections.OrderedDict(x=bags.astype(np.float32), y=tags.astype(np.float32))
  elif workload.name == 'W3':
    text = rng.integers(0, 90, (n, 81)).astype(np.int32)
    return collections.OrderedDict(x=text[:, :-1].copy(), y=text[:, 1:].copy())
  elif workload.name == 'W5':
    x, y = rng.standard_normal((n, 24, 24, 3), np.float32), rng.integers(0, 100, n)
  else:
    x, y = rng.random((n, 784), np.float32), rng.integers(0, MLPS[workload.name][-1], n)
  return collections.OrderedDict(x=x, y=y.astype(np.int32))


def cohort(workload: Workload, population: int, round_number: int) -> list[int]:
  """The clients of a round, by number."""
  rng = np.random.default_rng([777, round_number])
  return [int(c) for c in rng.choice(population, workload.cohort, replace=False)]


def build_model(workload: Workload) -> Any:
  """This project's model of a workload without a task."""
  import tensorflow as tf

  from tff_adaptive import models
  from tff_adaptive_tasks import emnist, shakespeare
  from tff_adaptive_tasks.models import layers as layers_lib, resnet

  if workload.name.startswith('W1'):
    return emnist.build_cnn(1)
  if workload.name == 'W3':
    return shakespeare.build_model(1, **dict(workload.task_options))
  if workload.name in MLPS:
    return layers_lib.perceptron(1, list(MLPS[workload.name]))
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


def stock_model_fn(workload: Workload) -> Callable[[], Any]:
  """The Keras model of a synthetic workload, as TFF's users write it."""
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
    inputs, y = tf.keras.Input([784]), tf.TensorSpec([None], tf.int32)
    loss, metrics = sparse, [accuracy()]
    *hidden, outputs = MLPS.get(workload.name, (784, 1))[1:]
    stack = [*(layers.Dense(n, 'relu') for n in hidden), layers.Dense(outputs)]
    if workload.name.startswith('W1'):
      inputs = tf.keras.Input([28, 28, 1])
      stack = [layers.Conv2D(n, 3, activation='relu') for n in (32, 64)]
      stack += [layers.MaxPool2D(), layers.Dropout(0.25), layers.Flatten()]
      stack += [layers.Dense(128, 'relu'), layers.Dropout(0.5), layers.Dense(62)]
    elif workload.name == 'W2':
      inputs, y = tf.keras.Input([10000]), tf.TensorSpec([None, 500])
      stack = [layers.Dense(500)]
      loss, metrics = tf.keras.losses.BinaryCrossentropy(from_logits=True), []
    elif workload.name == 'W3':
      inputs, y = tf.keras.Input([80], dtype=tf.int32), tf.TensorSpec([None, 80], tf.int32)
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
