"""When an operation gets one thread. TensorFlow fixes it once, so it is tried in a process too."""

import subprocess
import typing
from collections.abc import Sequence

import pytest
import tensorflow as tf

from tests.helpers import fresh
from tff_adaptive.devices import threads

VARIABLE = 'TF_NUM_INTRAOP_THREADS'
PROGRAM = """
import tensorflow as tf
from tff_adaptive import engine
from tff_adaptive.devices import threads

chosen = tf.config.threading.get_intra_op_parallelism_threads
threads.num_processors = lambda: 3
engine.set_graph_context(parallel_clients=3, device='cpu')  # The default engine chooses it.
assert chosen() == 1
tf.config.threading.set_intra_op_parallelism_threads(0)
tf.constant(1)
threads.one_an_operation(3)
assert chosen() == 0  # Too late.
"""


class Threads(typing.NamedTuple):
  """What is set before so many clients train at once, and what is set then."""

  clients: int
  of_program: int = 0
  has_variable: bool = False
  expected: Sequence[int] = ()


@pytest.mark.parametrize(
  'given',
  [
    Threads(clients=2),
    Threads(clients=3, has_variable=True),
    Threads(clients=3, of_program=2),
    Threads(clients=3, expected=[1]),
    Threads(clients=4, expected=[1]),
  ],
)
def test_pieces_and_threads_are_of_the_processors(monkeypatch, given):
  monkeypatch.setattr(threads, 'num_processors', lambda: 3)
  assert [threads.side_by_side(pieces) for pieces in (None, 9, 2)] == [3, 3, 2]
  if given.has_variable:
    monkeypatch.setenv(VARIABLE, '2')
  else:
    monkeypatch.delenv(VARIABLE, raising=False)
  threading = tf.config.threading
  threads_set = []
  monkeypatch.setattr(threading, 'get_intra_op_parallelism_threads', lambda: given.of_program)
  monkeypatch.setattr(threading, 'set_intra_op_parallelism_threads', threads_set.append)
  threads.one_an_operation(given.clients)
  assert threads_set == list(given.expected)
  monkeypatch.setattr(threads, 'num_processors', lambda: 9)
  assert [threads.side_by_side(pieces) for pieces in (None, 9, 2)] == [4, 4, 2]


def test_where_a_process_has_all_processors_they_are_counted(monkeypatch):
  """macOS has no `sched_getaffinity`."""
  monkeypatch.setattr(threads.os, 'sched_getaffinity', lambda pid: {3, 5}, raising=False)
  assert threads.num_processors() == 2
  monkeypatch.delattr(threads.os, 'sched_getaffinity')
  for count, processors in ((8, 8), (None, 1)):
    monkeypatch.setattr(threads.os, 'cpu_count', lambda count=count: count)
    assert threads.num_processors() == processors


def test_an_operation_gets_one_thread_if_clients_keep_the_processors_busy(monkeypatch):
  monkeypatch.delenv(VARIABLE, raising=False)
  subprocess.run([*fresh.python(), '-c', PROGRAM], check=True)
