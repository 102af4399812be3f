"""Values in messages and digests look the same with and without NumPy's types."""

import hashlib
import types

import numpy as np
import pytest

from tff_adaptive import population
from tff_adaptive._utils import validation, value_text
from tff_adaptive.population import availability
from tff_adaptive.training import loop


@pytest.mark.parametrize(
  'value, expected',
  [
    (np.str_('a'), "'a'"),
    (np.float64('nan'), 'nan'),
    (np.float32(0.1), '0.1'),
    (np.bool_(True), 'True'),
    ([np.int32(3), (np.str_('b'),)], "[3, ('b',)]"),
    ({np.str_('a'): np.float64(2)}, "{'a': 2.0}"),
    (np.array([1, 2]), 'array([1, 2])'),
    ('a', "'a'"),
  ],
)
def test_numpys_scalars_are_formatted_as_pythons(value, expected):
  assert value_text.in_text(value) == expected


def test_messages_name_clients_and_values_without_numpys_types():
  with pytest.raises(TypeError, match=r"rate must be a number, found '0\.1': give"):
    validation.real('rate', np.str_('0.1'), 'give a rate')
  with pytest.raises(TypeError, match=r'rounds must be a whole number, found 1\.5: give'):
    validation.whole_number('rounds', np.float64(1.5), 1, 'give rounds')
  with pytest.raises(ValueError, match="have no probability, 'a' among them"):
    availability.by_client({}, [np.str_('a')], 'probability')
  with pytest.raises(ValueError, match="probability of client 'a' must be in"):
    population.Independent({np.str_('a'): 2.0})


def test_a_run_is_resumed_with_the_same_clients_under_numpys_strings():
  expected = hashlib.sha256(b"['a', 'b']").hexdigest()
  for ids in (['a', 'b'], list(np.array(['a', 'b']))):
    clients = types.SimpleNamespace(client_ids=ids, num_examples=lambda name: 1)
    assert loop._described(clients)['client_ids'] == expected
