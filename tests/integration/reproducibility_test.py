"""Which ways of training give the same bits; docs/design/reproducibility.md has the whole table.

A stateless and a stateful algorithm; `research/faults/reproducibility.py` does this with whole
commands. `subrounds_test` and `ray_run_test` say it of subrounds and of the workers of a cluster,
`corrections_oracle_test` of clients in batched operations, `loop_test` of resumed runs.
"""

import hashlib
import os
import subprocess

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import fresh, small_problem
from tff_adaptive import algorithms, engine
from tff_adaptive.client import ClientTraining, batching

NAMES = ('fed_yogi', 'ada_best')
COHORTS = ([3, 1, 6], [5, 1, 2])
_CODE = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
from tests.integration import reproducibility_test as test
from tff_adaptive import engine
assert engine.GraphContext().parallel_clients == 1
print(*(test.digest(test.train(name, engine.GraphContext())) for name in test.NAMES))
"""


def train(name, context):
  """All values of two rounds: states, what clients keep, metrics."""
  rate = {'server_learning_rate': 0.1} if name == 'fed_yogi' else {}
  process = algorithms.build(
    name,
    small_problem.model(),
    client_learning_rate=0.1,
    training=ClientTraining(batching=batching.Batching(4, 2)),
    **rate,
  )
  with tff.framework.get_context_stack().install(context):
    done = small_problem.Run(process, small_problem.clients()).rounds(COHORTS)
  return [np.asarray(v) for v in tf.nest.flatten([done.state, done.client_states, done.metrics])]


def digest(values):
  """One text for all bits."""
  return hashlib.sha256(b''.join(value.tobytes() for value in values)).hexdigest()


@pytest.fixture(scope='module')
def courses():
  """What each algorithm comes to with one client at a time."""
  return {name: train(name, engine.GraphContext(parallel_clients=1)) for name in NAMES}


@pytest.mark.parametrize('name', NAMES)
def test_clients_at_the_same_time_give_the_same_bits(courses, name):
  found = train(name, engine.GraphContext(parallel_clients=3))
  assert digest(found) == digest(courses[name])


@pytest.mark.parametrize('name', NAMES)
def test_the_native_runtime_is_close(courses, name, native):
  found = train(name, native)
  assert len(found) == len(courses[name])
  for one, other in zip(found, courses[name]):
    np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


def test_one_processor_gives_the_bits_of_several(courses):
  root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
  environment = {**os.environ, 'PYTHONPATH': root}
  done = subprocess.run(
    [*fresh.python(), '-c', _CODE], env=environment, capture_output=True, text=True, check=True
  )
  assert done.stdout.split() == [digest(courses[name]) for name in NAMES]
