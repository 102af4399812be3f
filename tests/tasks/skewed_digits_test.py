"""Digits in AdaBest's partition: exact sizes, seeded splits, IID as the limit of alpha."""

import math

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tests.helpers import task_data
from tff_adaptive_tasks import skewed_digits


def rows(arrays):
  """The examples as a sorted list of bytes: what is there, whatever the order."""
  return sorted(x.tobytes() + y.tobytes() for x, y in zip(arrays['x'], arrays['y']))


def test_every_digit_is_used_once():
  task = tasks.load('digits_skewed', seed=1)
  assert len(task.train) == 100
  parts = [rows(task.train.load_all()), rows(task.validation), rows(task.test)]
  assert len(parts[2]) == 359  # A fifth of 1,797.
  ours = sorted([*parts[0], *parts[1], *parts[2]])
  assert len(ours) == 1797
  other = tasks.load('digits_skewed', seed=2)
  theirs = [*rows(other.train.load_all()), *rows(other.validation), *rows(other.test)]
  assert ours == sorted(theirs)
  assert rows(other.test) != parts[2]
  assert {task.train.num_examples(c) for c in task.train.client_ids} == {13, 14}
  assert len(parts[1]) in range(10 * 13, 10 * 14 + 1)
  x = task.train.load('00')['x']
  assert (x.min(), x.max()) == (0, 1)
  assert x[:, 0].max() == 0  # The frame is background.


def test_smaller_alpha_is_less_alike_and_infinity_is_iid():
  unlike = [
    task_data.labels_report(tasks.load('digits_skewed', alpha=a))['total_variation']
    for a in (0.03, 0.3, math.inf)
  ]
  assert unlike == sorted(unlike, reverse=True)
  limit, iid = (tasks.load('digits_skewed', alpha=a) for a in (math.inf, None))
  np.testing.assert_array_equal(limit.train.load('07')['x'], iid.train.load('07')['x'])


def test_the_test_split_can_be_watched():
  task = tasks.load('digits_skewed', validation='test')
  assert task.validation is task.test
  assert len(task.test['y']) == 359
  assert len(task.train) == 100
  with pytest.raises(tasks.DataError, match="is 'tests'; it must be 'clients' or 'test'"):
    tasks.load('digits_skewed', validation='tests')


@task_data.needs('mnist_digits.npz')
def test_mnist_is_used_whole():
  task = tasks.load('mnist_skewed', task_data.DATA_DIR, alpha=0.03)
  kept = sum(task.train.num_examples(c) for c in task.train.client_ids)
  assert kept + len(task.validation['y']) == 60_000
  assert len(task.test['y']) == 10_000
  x = task.train.load('00')['x']
  assert (x.min(), x.max()) == (0, 1)


def test_the_model_is_ada_bests_for_ten_classes():
  parameters = 784 * 100 + 100 + 100 * 100 + 100 + 100 * 10 + 10
  assert skewed_digits.build_model(0).num_parameters == parameters == 89_610
