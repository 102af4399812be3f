"""The pictures of the guide are those of the script, and show what the page says."""

import re

import numpy as np
import pytest

from docs.tools import pictures


def test_the_page_has_each_picture(tmp_path):
  pictures.draw(tmp_path)
  names = {path.stem for path in tmp_path.iterdir()}
  assert names == set(pictures.PICTURES) == {path.stem for path in pictures.FOLDER.iterdir()}
  page = (pictures.FOLDER.parent / 'from_machine_learning.md').read_text(encoding='utf-8')
  assert re.findall(r'\]\(pictures/(\w+)\.svg\)', page) == [
    'round',
    'participation',
    'local_epochs',
    'two_rates',
    'drift',
    'alpha',
  ]


@pytest.mark.parametrize('steps', [1, 5, 20])
def test_fed_avg_ends_at_its_fixed_point(steps):
  """theta = [sum_i (I - M_i^K)]^-1 sum_i (I - M_i^K) b_i with M_i = I - eta_l A_i."""
  weights = [
    np.eye(2) - np.linalg.matrix_power(np.eye(2) - pictures.RATE * a, steps)
    for a in pictures.CURVATURES
  ]
  fixed_point = np.linalg.solve(sum(weights), sum(w @ b for w, b in zip(weights, pictures.MINIMA)))
  np.testing.assert_allclose(pictures.server_path(400, steps)[-1], fixed_point, atol=1e-12)
  is_minimum = np.allclose(fixed_point, pictures.minimum())
  assert is_minimum == (steps == 1)
