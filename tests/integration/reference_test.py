"""Algorithms have the defaults and give the numbers of commit e20f8c7, which reference.json has."""

import json
import pathlib

import numpy as np
import pytest

import tff_adaptive
from scripts import train
from scripts.cli import flags, resolve
from tests.helpers import fakes

REFERENCE = json.loads(
  pathlib.Path(__file__).with_name('reference.json').read_text(encoding='utf-8')
)
EXPECTED = REFERENCE['runs']
RELATIVE = 1e-6


def outcome(folder):
  """Of each array of weights its norm and its products with fixed random arrays; the last row."""
  weights = []
  for array in tff_adaptive.load_run(folder).weights:
    values = np.asarray(array, np.float64).ravel()
    directions = np.random.RandomState(0).standard_normal((8, values.size))
    weights.append([np.linalg.norm(values), *(directions @ values)])
  return weights, {k: float(v) for k, v in fakes.rows(folder)[-1].items() if v}


def test_defaults_are_those_that_they_were():
  for name, expected in REFERENCE['settings'].items():
    task, algorithm = name.split('-')
    parsed = flags.parse(['train.py', f'--task={task}', f'--algorithm={algorithm}'])
    defaults = resolve.resolve(parsed).flat()
    assert {key: defaults[key] for key in expected} == expected, name


@pytest.mark.sample(1)
@pytest.mark.parametrize('name', sorted(EXPECTED))
def test_a_run_gives_the_numbers_that_it_gave(tmp_path, name):
  task, algorithm = name.split('-')
  folder = str(tmp_path / name)
  flags = [f'--task={task}', f'--algorithm={algorithm}', '--rounds=12', '--seed=1']
  with fakes.no_figures():
    assert train.main(['train.py', *flags, f'--output_dir={folder}']) == 0
  weights, numbers = outcome(folder)
  expected = EXPECTED[name]['metrics']
  assert len(weights) == len(EXPECTED[name]['weights'])
  for array, (norm, *products) in zip(weights, EXPECTED[name]['weights']):
    np.testing.assert_allclose(array, [norm, *products], rtol=RELATIVE, atol=RELATIVE * norm)
  assert numbers.keys() >= expected.keys()
  for metrics in (numbers, expected):
    # The deviation is what is left of the mean square, which has lost digits where that is small.
    metrics['update_norm_std'] = np.hypot(metrics['update_norm_std'], metrics['update_norm_mean'])
  # Processors round differently: a norm of a difference of weights is known to their last digit.
  last = np.finfo(np.float32).eps * np.linalg.norm([w[0] for w in EXPECTED[name]['weights']])
  for column, value in expected.items():
    atol = last if 'norm' in column or 'spread' in column else 1e-8
    np.testing.assert_allclose(numbers[column], value, rtol=RELATIVE, atol=atol, err_msg=column)
