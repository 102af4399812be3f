"""Initial weights; the ResNet. A client axis: `batched_clients_test`."""

import collections
import itertools
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow_federated.python.simulation.models import resnet_models

from tff_adaptive_tasks.models import layers, resnet


def test_a_convolution_of_an_unknown_number_of_examples_keeps_what_is_known():
  @tf.function(input_signature=[tf.TensorSpec([2, None, 8, 8, 3]), tf.TensorSpec([2, 3, 3, 3, 5])])
  def shapes(x, kernel):
    y = layers.max_pool(layers.conv(x, kernel), 2, 2)
    assert y.shape[2:] == [3, 3, 5]
    assert layers.flatten(y).shape[2:] == [45]
    return y

  assert shapes(tf.ones([2, 4, 8, 8, 3]), tf.ones([2, 3, 3, 3, 5])).shape == [2, 4, 3, 3, 5]


def test_initial_weights_have_the_distributions_of_their_names():
  draw = layers.Initializer(3)
  assert np.ptp(draw.glorot_uniform(3, 3, 8, 40)) / 2 == pytest.approx((6 / 432) ** 0.5, rel=0.01)
  he = draw.he_normal(5, 5, 4, 50) / 0.02**0.5  # Of deviation 1, and cut off at 2 / 0.8796.
  assert (he.std(), he.max()) == (pytest.approx(1, rel=0.03), pytest.approx(2.274, rel=0.01))
  for wide in (draw.orthogonal(3, 5), draw.orthogonal(5, 3).T):
    np.testing.assert_allclose(wide @ wide.T, np.eye(3), atol=1e-6)
  assert len({draw.orthogonal(3, 3)[0, 0] > 0 for _ in range(20)}) == 2  # Not that of a QR alone.


IMAGES = np.random.default_rng(0).integers(0, 256, [3, 32, 32, 3]).astype(np.uint8)
LABELS = np.array([3, 99, 0], np.int32)


def tff_resnet(weights):
  """TFF's baseline with our weights, which are in the order in which its layers are made."""
  basic = resnet_models.ResidualBlock.BASIC
  theirs = resnet_models.create_resnet((24, 24, 3), 100, basic, [2, 2], initial_filters=32)
  by_number = sorted(
    theirs.layers, key=lambda layer: int((re.search(r'\d+$', layer.name) or [0])[0])
  )
  kinds = {'conv': 'Conv2D', 'norm': 'GroupNormalization', 'dense': 'Dense'}
  left = {kind: [] for kind in kinds.values()}
  for layer in by_number:
    left.get(type(layer).__name__, []).append(layer)
  weights = iter(weights)
  for kind, *_ in resnet._layers(100):
    layer = left[kinds[kind]].pop(0)
    layer.set_weights([next(weights) for _ in layer.weights])
  assert not any(left.values())
  return theirs


def test_the_resnet_is_tffs_with_32_groups_and_its_l2(monkeypatch):
  of = {'conv': np.prod, 'norm': lambda s: 2 * s[0], 'dense': lambda s: (s[0] + 1) * s[1]}
  assert sum(of[kind](shape) for kind, *shape in resnet._layers(100)) == 11_227_812
  monkeypatch.setattr(resnet, '_FILTERS', (32, 64))  # Two of the four stages.
  model = resnet.build(1, 100, groups=32)
  assert model.initial_weights[0][-2].std() == pytest.approx(0.01, rel=0.05)
  weights = [tf.constant(w + 0.5 * (w.ndim == 1)) for w in model.initial_weights[0]]
  theirs = tff_resnet(weights)
  x = tf.image.per_image_standardization(tf.cast(IMAGES[:, 4:28, 4:28], tf.float32))
  expected = theirs(x)
  np.testing.assert_allclose(
    tf.nn.softmax(model.forward(weights, IMAGES, False, None)), expected, rtol=1e-3, atol=1e-5
  )
  loss = tf.keras.losses.SparseCategoricalCrossentropy()(LABELS, expected) + sum(theirs.losses)
  np.testing.assert_allclose(model.loss_and_metrics(weights, IMAGES, LABELS)[0], loss, rtol=1e-5)


def test_training_crops_and_flips_by_the_seed():
  x = tf.constant(np.repeat(IMAGES[:1], 400, 0))
  a = resnet.prepare(x, tf.constant([1, 2])).numpy()
  b = resnet.prepare(x, tf.constant([1, 2])).numpy()
  c = resnet.prepare(x, tf.constant([1, 3])).numpy()
  np.testing.assert_array_equal(a, b)
  assert not np.array_equal(a, c)
  # Every image is one of the 9 x 9 x 2 crops, and they are all about as frequent.
  cuts = [IMAGES[0, r : r + 24, c : c + 24] for r, c in itertools.product(range(9), repeat=2)]
  crops = tf.image.per_image_standardization(np.float32([*cuts, *(x[:, ::-1] for x in cuts)]))

  def counted(images):
    return collections.Counter(tuple(np.round(image[0, :3, 0], 3)) for image in images)

  known = counted(crops.numpy())
  augmented = counted(a)
  assert len(known) == 162
  assert set(augmented) <= set(known)
  assert max(augmented.values()) <= 12
  assert abs(sum(augmented[crop] for crop in [*known][:81]) - 200) < 40  # Half are not flipped.
