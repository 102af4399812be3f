"""The number of threads that TensorFlow uses. Imports TensorFlow only in functions that need it."""

import contextlib
import os

_MOST = 4  # Each piece of work has its activations in memory.


def num_processors() -> int:
  """Returns the number of processors that this process may use."""
  if hasattr(os, 'sched_getaffinity'):
    return len(os.sched_getaffinity(0))
  return os.cpu_count() or 1  # macOS does not restrict a process to some processors.


def side_by_side(pieces: int | None = None) -> int:
  """Returns how many pieces of work, such as clients, should run at once.

  This is the number of processors, but at most 4, to save memory, and at most the number of pieces.
  """
  return min(_MOST, num_processors(), pieces or _MOST)


def one_an_operation(parallel_clients: int) -> None:
  """Makes each TensorFlow operation use one thread if the clients keep all processors busy.

  If operations of several clients each use several threads, they wait for each other: rounds of
  LSTMs took twice as long. Nothing changes if there are fewer clients than processors, if the
  number of threads was chosen (`tf.config.threading` or TF_NUM_INTRAOP_THREADS), or if TensorFlow
  has already run an operation, after which the number is fixed.
  """
  import tensorflow as tf

  num_threads = tf.config.threading.get_intra_op_parallelism_threads()  # 0 if it is not set.
  is_chosen = num_threads or 'TF_NUM_INTRAOP_THREADS' in os.environ
  if not is_chosen and parallel_clients >= num_processors():
    with contextlib.suppress(RuntimeError):  # TensorFlow has already run an operation.
      tf.config.threading.set_intra_op_parallelism_threads(1)
