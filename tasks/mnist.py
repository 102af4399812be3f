"""MNIST as in McMahan et al. (2017): grey 28 x 28 images, 0 is background and 1 is ink."""

from typing import Any, Literal

import tensorflow as tf

from tff_adaptive import models
from tff_adaptive_tasks import preparation, task as task_lib
from tff_adaptive_tasks.data import image_arrays, partition
from tff_adaptive_tasks.models import layers

INK = preparation.Preparation(deviation=255.0)


def load(
  name: str,
  data_dir: str | None = None,
  seed: int = 0,
  num_clients: int = 100,
  split: Literal['iid', 'shards'] = 'iid',
) -> task_lib.Task:
  """Loads MNIST as in "Communication-Efficient Learning of Deep Networks ...", section 3.

  Args:
    name: 'mnist_2nn' or 'mnist_cnn'.
    data_dir: The folder with `mnist.npz` or `mnist_digits.npz`; None uses TensorFlow Datasets.
    seed: The seed of the partition.
    num_clients: Number of clients.
    split: 'iid', or 'shards', where each client gets two shards of the examples sorted by label.

  Returns:
    The task. Its validation data are the test split.

  Raises:
    tasks.DataError: If the data cannot be used or `num_clients` is out of its range.
  """
  train, test, source = image_arrays.load(image_arrays.MNIST, data_dir)
  if split == 'iid':
    indices = partition.iid(len(train.y), num_clients, seed)
  else:
    indices = partition.label_shards(train.y, num_clients, seed)
  builders = {'mnist_cnn': build_cnn, 'mnist_2nn': build_2nn}
  return task_lib.Task(
    name=name,
    build_model=builders[name],
    train=task_lib.InMemoryClientData.from_partition(INK(train.x), train.y, indices),
    validation=task_lib.example_arrays(INK(test.x), test.y),
    source=source,
    preparation=INK,
  )


def build_2nn(seed: int) -> models.Model:
  """Builds the FedAvg paper's perceptron with two hidden layers of 200 (199,210 parameters)."""
  return layers.perceptron(seed, [784, 200, 200, 10], image_arrays.MNIST.shape)


def build_cnn(seed: int) -> models.Model:
  """Builds the FedAvg paper's CNN: two 5 x 5 convolutions, dense 512 (1,663,370 parameters)."""
  draw = layers.Initializer(seed)
  weights = (
    *(draw.glorot_uniform(5, 5, 1, 32), layers.zeros(32)),
    *(draw.glorot_uniform(5, 5, 32, 64), layers.zeros(64)),
    # Two poolings leave 7 x 7 pixels of 64 channels.
    *(draw.glorot_uniform(3136, 512), layers.zeros(512)),
    *(draw.glorot_uniform(512, 10), layers.zeros(10)),
  )

  def forward(weights: Any, x: tf.Tensor, training: bool, seed: tf.Tensor | None) -> tf.Tensor:
    del training, seed
    for kernel, bias in (weights[:2], weights[2:4]):
      h = tf.nn.relu(layers.conv(x, kernel, bias, padding='SAME'))
      x = layers.max_pool(h, 2, 2, 'SAME')
    h = tf.nn.relu(layers.dense(layers.flatten(x), *weights[4:6]))
    return layers.dense(h, *weights[6:])

  return layers.classifier(weights, forward, image_arrays.MNIST.shape)
