"""The embedded digits."""

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import digits


@pytest.fixture(scope='module')
def task():
  return tasks.load('digits', seed=1)


def test_the_images_follow_emnist(task):
  x = task.validation['x']
  assert (x.dtype, x.shape[1:], x.min(), x.max()) == (np.float32, (28, 28, 1), 0, 1)
  assert np.all(x[:, [0, 1, -2, -1]] == 1)  # The frame is background.
  model = task.build_model(0)
  assert model.num_parameters == 79510
  assert not np.any(model.forward(model.initial_weights[0], np.ones_like(x), False, None))


def test_enlarging_keeps_flat_images_and_the_mean():
  np.testing.assert_allclose(digits.enlarge(np.full([1, 8, 8], 0.25))[0, 2:-2, 2:-2], 0.75)
  each = 1 - digits.enlarge(np.eye(64).reshape(64, 8, 8))
  np.testing.assert_allclose(each.sum((1, 2, 3)), 9, rtol=1e-5)  # Three times as large each way.
  rows = (each[8 * 3 + 4, :, :, 0].sum(1) * np.arange(28)).sum() / 9
  assert rows == pytest.approx(2 + 3 * 3 + 1)  # The ink stays where it was.


def test_every_image_is_used_once(task):
  sizes = [task.train.num_examples(c) for c in task.train.client_ids]
  assert len(sizes) == 60
  assert sum(sizes) + len(task.validation['y']) == 1797
  other = tasks.load('digits', seed=2)
  assert not np.array_equal(task.train.load('07')['y'], other.train.load('07')['y'])
  assert not np.array_equal(task.validation['y'], other.validation['y'])
  sums = [t.train.load_all()['x'].sum() + t.validation['x'].sum() for t in (task, other)]
  assert sums[0] == pytest.approx(sums[1], rel=1e-6)
