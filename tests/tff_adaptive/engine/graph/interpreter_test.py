"""What the interpreter of building blocks does not know is named."""

import pytest
import tensorflow_federated as tff

from tests.helpers import computations, engines

FLOAT, at_server = computations.FLOAT, computations.at_server


def test_an_unknown_intrinsic_is_named(graph):
  type_spec = at_server(FLOAT)
  intrinsic = tff.framework.Intrinsic('federated_wonder', tff.FunctionType(type_spec, type_spec))
  call = tff.framework.Call(intrinsic, tff.framework.Reference('x', type_spec))
  block = tff.framework.Lambda('x', type_spec, call)
  computation = tff.framework.ConcreteComputation.from_building_block(block)
  with pytest.raises(NotImplementedError, match=r'federated_wonder.*native context'):
    engines.run(graph, computation, 1.0)
