"""When an operation gets one thread. TensorFlow fixes it once, so it is tried in a process."""

import os
import subprocess

from tests.helpers import fresh

PROGRAM = """
import os
import tensorflow as tf
from tff_adaptive import engine
from tff_adaptive.devices import threads

chosen = tf.config.threading.get_intra_op_parallelism_threads
choose = tf.config.threading.set_intra_op_parallelism_threads
threads.num_processors = lambda: 3

def chosen_for(clients):
  threads.one_an_operation(clients)
  return chosen()

assert threads.side_by_side() == threads.side_by_side(9) == 3
assert threads.side_by_side(2) == 2
assert chosen_for(2) == 0  # A processor would be idle.
os.environ['TF_NUM_INTRAOP_THREADS'] = '2'
assert chosen_for(3) == 0
del os.environ['TF_NUM_INTRAOP_THREADS']
choose(2)
assert chosen_for(3) == 2
choose(0)
assert chosen_for(3) == 1
choose(0)
engine.set_graph_context(parallel_clients=3, device='cpu')  # The default engine chooses it.
assert chosen() == 1
choose(0)
tf.constant(1)
assert chosen_for(3) == 0  # Too late.
"""


def test_an_operation_gets_one_thread_if_clients_keep_the_processors_busy():
  environment = {k: v for k, v in os.environ.items() if k != 'TF_NUM_INTRAOP_THREADS'}
  subprocess.run([*fresh.python(), '-c', PROGRAM], check=True, env=environment)
