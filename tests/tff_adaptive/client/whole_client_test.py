"""A client in the one form that all processes take."""

import numpy as np
import pytest

from tff_adaptive.client import whole_client

X, Y = np.arange(6.0).reshape(3, 2), np.arange(3)


@pytest.mark.parametrize('steps', [None, 0, 5])
def test_a_client_is_a_dataset_of_one_element(steps):
  (element,) = whole_client.client_arrays(X, Y, 7, steps)
  assert list(element) == ['x', 'y', 'client', 'max_steps'][: 3 + (steps is not None)]
  assert element['x'] is X
  assert element['y'] is Y
  for name, value in (('client', 7), ('max_steps', steps)):
    if value is not None:
      assert (element[name], element[name].dtype) == (value, np.int32)
  assert len(whole_client.client_arrays(X[:0], Y[:0], 0)[0]['x']) == 0


def test_what_does_not_fit_is_refused():
  with pytest.raises(ValueError, match='client 7 has 2 inputs but 3 labels'):
    whole_client.client_arrays(X[:2], Y, 7)
  with pytest.raises(ValueError, match='client 7 has 3 inputs but 2 labels'):
    whole_client.client_arrays(X, Y[:2], 7)
  for steps in (-1, 2**31):
    with pytest.raises(ValueError, match=r'max_steps must be at .*: give client 7 0 or more'):
      whole_client.client_arrays(X, Y, 7, max_steps=steps)
  for client in (-(2**31) - 1, 2**31):
    with pytest.raises(ValueError, match=rf'client must be at .* found {client}: give the client'):
      whole_client.client_arrays(X, Y, client)
