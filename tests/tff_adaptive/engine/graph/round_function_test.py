"""Levels of a round: what is read, drawn or refused in each."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import computations, engines

FLOAT, VECTOR, at_clients, at_server = (
  computations.FLOAT,
  computations.VECTOR,
  computations.at_clients,
  computations.at_server,
)


def test_clients_of_unknown_number_are_refused(graph):
  everywhere = tff.federated_computation(lambda: tff.federated_value(1, tff.CLIENTS))
  with pytest.raises(NotImplementedError, match=r'no argument placed there.*default_num_clients'):
    engines.run(graph, everywhere)


def test_a_sequence_of_the_server_is_read_at_each_level(graph):
  scale = tff.tensorflow.computation(
    lambda d, x: tf.reduce_sum(d.get_single_element()) * x, tff.SequenceType(VECTOR), FLOAT
  )

  @tff.federated_computation(at_server(tff.SequenceType(VECTOR)), at_clients(FLOAT))
  def twice(sequence, x):
    received = tff.federated_broadcast(sequence)
    total = tff.federated_sum(tff.federated_map(scale, (received, x)))
    return tff.federated_map(scale, (received, tff.federated_broadcast(total)))

  assert list(engines.run(graph, twice, [np.ones(3, np.float32)], [1.0, 2.0])) == [27, 27]


def test_a_random_value_of_a_client_is_drawn_once(graph):
  draw = tff.tensorflow.computation(lambda x: x + tf.random.uniform([]), FLOAT)
  difference = tff.tensorflow.computation(lambda a, b: a - b, FLOAT, FLOAT)

  @tff.federated_computation(at_clients(FLOAT))
  def centred(x):
    drawn = tff.federated_map(draw, x)
    mean = tff.federated_broadcast(tff.federated_mean(drawn))
    return tff.federated_sum(tff.federated_map(difference, (drawn, mean)))

  assert abs(float(engines.run(graph, centred, [0.0, 0.0, 0.0]))) < 1e-6
