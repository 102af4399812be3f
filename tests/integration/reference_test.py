"""All ten algorithms give the numbers of revision e20f8c7, from before the house was made smaller.

reference.json was made there, with seed 1 and 12 rounds, by `python -m tests.helpers.reference`;
three of the algorithms train a network besides.
"""

import json
import pathlib

import numpy as np
import pytest

from scripts import train
from tests.helpers import fakes, reference

EXPECTED = json.loads(
  pathlib.Path(__file__).with_name('reference.json').read_text(encoding='utf-8')
)
RELATIVE = 1e-6


@pytest.mark.parametrize('name', sorted(EXPECTED))
def test_a_run_gives_the_numbers_that_it_gave(tmp_path, name):
  task, algorithm = name.split('-')
  folder = tmp_path / name
  flags = [f'--task={task}', f'--algorithm={algorithm}', '--rounds=12', '--seed=1']
  with fakes.no_figures():
    assert train.main(['train.py', *flags, f'--output_dir={folder}']) == 0
  found, expected = reference.of_run(str(folder)), EXPECTED[name]
  assert len(found['weights']) == len(expected['weights'])
  for array, (norm, *products) in zip(found['weights'], expected['weights']):
    np.testing.assert_allclose(array, [norm, *products], rtol=RELATIVE, atol=RELATIVE * norm)
  assert found['metrics'].keys() >= expected['metrics'].keys()
  for metrics in (found['metrics'], expected['metrics']):
    # The deviation is what is left of the mean square, which has lost digits where that is small.
    metrics['update_norm_std'] = np.hypot(metrics['update_norm_std'], metrics['update_norm_mean'])
  # Processors round differently: a norm of a difference of weights is known to their last digit.
  last = np.finfo(np.float32).eps * np.linalg.norm([norm for norm, *_ in expected['weights']])
  for column, value in expected['metrics'].items():
    atol = last if 'norm' in column or 'spread' in column else 1e-8
    np.testing.assert_allclose(
      found['metrics'][column], value, rtol=RELATIVE, atol=atol, err_msg=column
    )
