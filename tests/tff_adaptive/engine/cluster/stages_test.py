"""How a computation is cut: whose each stage is, what it is given."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import on_ray
from tff_adaptive.engine.cluster import stages
from tff_adaptive.engine.graph import feeds

_PAIR = tff.types.FederatedType((np.int32, np.float32), tff.SERVER)


def test_clients_are_given_the_broadcast_and_their_values_and_no_more_of_the_state():
  first = tff.tensorflow.computation(lambda state: state[0], (np.int32, np.float32))
  add = tff.tensorflow.computation(lambda x, y: x + y, np.int32, np.int32)

  @tff.federated_computation(_PAIR, on_ray.AT_CLIENTS)
  def comp(state, x):
    added = tff.federated_map(add, (x, tff.federated_broadcast(tff.federated_map(first, state))))
    return state, tff.federated_sum(added), added

  program = stages.split(comp, None)
  server, clients = program.stages
  assert (server.at_clients, clients.at_clients) == (False, True)
  assert server.inputs == ('argument_part_0',)
  assert set(clients.inputs) == {*server.outputs, 'argument_part_1', feeds.POSITIONS}
  assert clients.num_aggregates == 1
  assert len(clients.outputs) == 2
  assert program.passed_on == ('argument_part_0',)


def test_an_aggregate_that_clients_are_told_of_makes_further_stages():
  subtract = tff.tensorflow.computation(lambda x, total: x - total, np.int32, np.int32)

  @tff.federated_computation(on_ray.AT_CLIENTS)
  def comp(x):
    total = tff.federated_broadcast(tff.federated_sum(x))
    return tff.federated_sum(tff.federated_map(subtract, (x, total)))

  program = stages.split(comp, None)
  assert [stage.num_aggregates for stage in program.stages if stage.at_clients] == [1, 1]
  first, last = (stage for stage in program.stages if stage.at_clients)
  assert first.inputs == ('argument_part', feeds.POSITIONS)
  assert set(last.inputs) == {'argument_part', *first.outputs, feeds.POSITIONS}


@pytest.mark.parametrize('draws', [False, True])
def test_what_needs_nothing_is_made_where_it_is_used_unless_it_is_drawn(draws):
  value = tff.tensorflow.computation(
    lambda: tf.random.uniform([], maxval=9, dtype=tf.int32) if draws else tf.constant(3)
  )
  add = tff.tensorflow.computation(lambda x, y: x + y, np.int32, np.int32)

  @tff.federated_computation(on_ray.AT_CLIENTS)
  def comp(x):
    at_clients = tff.federated_value(value(), tff.CLIENTS)
    return tff.federated_sum(tff.federated_map(add, (x, at_clients)))

  program = stages.split(comp, None)
  assert [stage.at_clients for stage in program.stages] == ([False, True] if draws else [True])
