"""The graph of nodes: order, replacement, what is free."""

import tensorflow_federated as tff

from tests.helpers import computations
from tff_adaptive.engine.graph import nodes


def node(*deps, placement=tff.CLIENTS, free=False):
  return nodes.Node(placement, computations.FLOAT, list(deps), None, 0, free)


def test_a_long_chain_is_no_recursion():
  chain = [node()]
  for _ in range(3000):
    chain.append(node(chain[-1]))
  assert nodes.reachable([chain[-1]]) == chain


def test_only_parameters_and_messages_are_free():
  parameter = node(free=True)
  computed = node(parameter)
  assert nodes.is_free(parameter)
  assert nodes.is_free(node(parameter, node(placement=tff.SERVER), free=True))
  assert not nodes.is_free(computed)
  assert not nodes.is_free(node(computed, free=True))
