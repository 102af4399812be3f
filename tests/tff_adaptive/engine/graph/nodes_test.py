"""The graph of nodes: order, replacement, what is free."""

import tensorflow_federated as tff

from tests.helpers import computations
from tff_adaptive.engine.graph import nodes


def node(*deps, placement=tff.CLIENTS, free=False):
  return nodes.Node(placement, computations.FLOAT, list(deps), None, 0, free)


def test_dependencies_come_first_and_once():
  first, other = node(), node()
  both = node(first, other)
  last = node(both, first)
  found = nodes.reachable([last, both])
  assert len(found) == 4
  assert found[2:] == [both, last]
  assert nodes.reachable([first, last])[0] is first


def test_a_long_chain_is_no_recursion():
  chain = [node()]
  for _ in range(3000):
    chain.append(node(chain[-1]))
  assert nodes.reachable([chain[-1]]) == chain


def test_nodes_inside_a_structure_are_found_and_replaced():
  one, two = node(), node()
  value = tff.structure.Struct([('a', one), (None, tff.structure.Struct([('b', two), ('c', 5)]))])
  assert nodes.nodes_in(value) == [one, two]
  replaced = nodes.map_nodes(lambda n: 1 if n is one else 2, value)
  expected = tff.structure.Struct([('a', 1), (None, tff.structure.Struct([('b', 2), ('c', 5)]))])
  assert replaced == expected


def test_only_parameters_and_messages_are_free():
  parameter = node(free=True)
  computed = node(parameter)
  assert nodes.is_free(parameter)
  assert nodes.is_free(node(parameter, node(placement=tff.SERVER), free=True))
  assert not nodes.is_free(computed)
  assert not nodes.is_free(node(computed, free=True))
