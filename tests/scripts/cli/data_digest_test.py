"""The digest of data: other for whatever differs, and the same for the same data."""

import numpy as np
import pandas as pd
import pytest

import tff_adaptive_tasks as tasks
from scripts.cli import data_digest

RNG = np.random.default_rng(3)
TABLE = pd.DataFrame(
  {
    'site': np.arange(40) % 5,
    'age': RNG.integers(20, 90, 40) / 2,
    'sex': RNG.choice(['f', 'm'], 40),
    'ill': RNG.choice(['no', 'yes'], 40),
  }
)


def digest(table=TABLE, **options):
  return data_digest.of(tasks.from_frame(table, 'site', 'ill', **options))


def test_the_same_data_have_the_same_digest():
  assert digest() == digest(TABLE.copy())
  assert digest(standardise=True) == digest(standardise=True)


@pytest.mark.parametrize(
  'change, options',
  [
    ({'ill': TABLE['ill'].replace({'no': 'yes', 'yes': 'no'})}, {}),
    ({'ill': TABLE['ill'].replace({'no': 'none'})}, {}),  # Only the name of a class.
    ({'sex': TABLE['sex'].replace({'f': 'd'})}, {}),  # Only the name of a category.
    ({'age': TABLE['age'] + 1}, {}),
    ({'site': TABLE['site'] + 1}, {}),
    ({}, {'seed': 1}),
    ({}, {'standardise': True}),
  ],
)
def test_other_data_have_another_digest(change, options):
  assert digest(TABLE.assign(**change), **options) != digest()


def test_models_with_several_inputs_and_texts_are_told_apart():
  def digest_of(age, name):
    inputs = {'numbers': (np.array([age]), np.zeros(1)), 'name': np.array([name], object)}
    examples = {'x': inputs, 'y': np.ones(1)}
    return [bytes(part) for part in data_digest._of_examples(examples, has_inputs=True)]

  assert digest_of(3.0, 'ann') == digest_of(3.0, 'ann')
  assert digest_of(3.0, 'ann') != digest_of(4.0, 'ann')
  assert digest_of(3.0, 'ann') != digest_of(3.0, 'bob')
