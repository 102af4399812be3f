"""A state with noise is known by TFF's names, and so is what is secret in it."""

import pytest

from tff_adaptive._utils import noise_states


@pytest.mark.parametrize(
  'names, is_noisy',
  [
    (('query_state', 'agg_state', 'dp_event', 'is_init_state'), True),  # TFF's.
    (('query_state', 'agg_state'), True),
    (('agg_state',), False),
    ((), False),
  ],
)
def test_a_state_with_noise_has_a_query_and_a_sum(names, is_noisy):
  assert noise_states.is_noisy(names) == is_noisy


@pytest.mark.parametrize(
  'leaf, is_secret',
  [
    ('aggregator/inner/query_state/seed', True),
    ('query_state', True),
    ('aggregator/my_query_state', False),
    ('h/0', False),
  ],
)
def test_the_seed_is_in_the_state_of_the_query(leaf, is_secret):
  assert noise_states.have_secret(['theta/0', leaf]) == is_secret
