"""How TensorFlow's threads are laid on the processors. Imports TensorFlow only where it is used."""

import contextlib
import os

_MOST = 4


def num_processors() -> int:
  """The processors that this process may use."""
  return len(os.sched_getaffinity(0))


def side_by_side(pieces: int | None = None) -> int:
  """How many pieces of work (clients, batches of an evaluation) should be in work at once.

  As many as there are processors, at most 4, for memory, and no more than there are pieces.
  """
  return min(_MOST, num_processors(), pieces or _MOST)


def one_an_operation(parallel_clients: int) -> None:
  """Has each TensorFlow operation use one thread, where the clients keep all processors busy.

  An operation that two clients' threads divide among themselves again makes both wait: rounds of
  LSTMs took twice as long. Nothing changes if the clients are fewer than the processors, if the
  number of threads was chosen (`tf.config.threading` or TF_NUM_INTRAOP_THREADS), or if TensorFlow
  has already run an operation: it takes the number from then on as fixed.
  """
  import tensorflow as tf

  chosen = tf.config.threading.get_intra_op_parallelism_threads()
  is_chosen = chosen or 'TF_NUM_INTRAOP_THREADS' in os.environ
  if not is_chosen and parallel_clients >= num_processors():
    with contextlib.suppress(RuntimeError):  # TensorFlow has begun.
      tf.config.threading.set_intra_op_parallelism_threads(1)
