"""What SCAFFOLD and SCAFFOLD/m refuse; ten rounds of their formulas: corrections_oracle_test."""

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import correction_inputs as inputs
from tff_adaptive import corrections, registry

BOTH = (corrections.Scaffold, corrections.ScaffoldM)
G, H = inputs.weights(6), inputs.weights(8)


@pytest.mark.parametrize('kind', BOTH)
def test_a_client_without_steps_divides_by_nothing(kind):
  client = inputs.client_round(broadcast=H)
  zero = tuple(np.zeros_like(g) for g in G)
  state, upload = kind(12).client_update(client, zero, tf.constant(0.0))
  for leaf in (*state['h'], *upload):
    assert np.isfinite(leaf).all()


def test_the_option_is_one_or_two_and_by_default_the_registrys():
  default = registry.ALGORITHMS['scaffold'].default('scaffold_option')
  assert corrections.Scaffold(12).scaffold_option == default
  with pytest.raises(ValueError, match='scaffold_option must be 1 or 2, found 3'):
    corrections.Scaffold(12, 3)
  for kind in BOTH:
    with pytest.raises(ValueError, match='num_clients must be at least 1, found 0'):
      kind(0)
