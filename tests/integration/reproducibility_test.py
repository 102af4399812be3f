"""Which ways of training give the same bits; docs/design/reproducibility.md has the whole table.

A stateless and a stateful algorithm. `subrounds_test` and `ray_run_test` say it of subrounds and of
the workers of a cluster, `corrections_oracle_test` of clients in batched operations,
`engines_agree_test` of TFF's runtime, `loop_test` of resumed runs.
"""

import hashlib
import os
import subprocess

import numpy as np
import pytest
import tensorflow as tf

from tests.helpers import engines, fresh, small_problem
from tff_adaptive import engine
from tff_adaptive.client import batching

COHORTS = ([3, 1, 6], [5, 1, 2])
_CODE = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
from tests.integration import reproducibility_test as test
from tff_adaptive import engine
assert engine.GraphContext().parallel_clients == 1
print(test.digest(sys.argv[1], engine.GraphContext()))
"""


def digest(name, context):
  """One text for all bits of two rounds: states, what clients keep, metrics."""
  process = small_problem.process(name, 0.1, batching=batching.Batching(4, 2))
  done = engines.run(context, small_problem.Run, process, small_problem.clients())
  engines.run(context, done.rounds, COHORTS)
  values = tf.nest.flatten([done.state, done.client_states, done.metrics])
  return hashlib.sha256(b''.join(np.asarray(value).tobytes() for value in values)).hexdigest()


@pytest.mark.parametrize('name', ['fed_yogi', 'ada_best'])
def test_clients_at_the_same_time_one_processor_and_two_threads_give_the_same_bits(name):
  expected = digest(name, engine.GraphContext(parallel_clients=1))
  assert digest(name, engine.GraphContext(parallel_clients=3)) == expected
  root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
  environment = {**os.environ, 'PYTHONPATH': root, 'TF_NUM_INTRAOP_THREADS': '2'}
  command = [*fresh.python(), '-c', _CODE, name]
  done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
  assert done.stdout.split() == [expected]
