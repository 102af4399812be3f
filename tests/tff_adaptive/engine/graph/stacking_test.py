"""Values of all clients in one tensor, and their division among devices."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.engine.graph import stacking

UNKNOWN = tff.TensorType(np.int32, [None])
FIXED = tff.TensorType(np.int32, [2])


@pytest.mark.parametrize('type_spec', [FIXED, UNKNOWN], ids=['fixed', 'boxed'])
@pytest.mark.parametrize('num_clients', [0, 1, 2, 7])
def test_shares_of_devices_are_all_clients_in_order(type_spec, num_clients):
  clients = [tf.fill([2], i) for i in range(num_clients)]

  @tf.function(autograph=False)  # Outside a function TensorArrays hold no datasets.
  def together():
    parts = []
    for device in range(3):
      mine = range(device, num_clients, 3)
      array = stacking.output_array(type_spec, tf.constant(len(mine)))
      for place, i in enumerate(mine):
        array = array.write(place, stacking.box(clients[i], type_spec))
      parts.append(array.stack())
    return stacking.interleave(parts, tf.constant(num_clients))

  for device in range(3):
    mine = stacking.share(device, 3, tf.constant(num_clients))
    assert list(mine) == list(range(device, num_clients, 3))
  stacked = together()
  assert stacked.shape[0] == num_clients
  for i, client in enumerate(clients):
    np.testing.assert_array_equal(stacking.read_stacked([stacked], type_spec, i), client)
