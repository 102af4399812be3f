"""A text for all bits of some rounds, to compare them between processes."""

import hashlib

import numpy as np
import tensorflow as tf

from tests.helpers import engines, small_problem
from tff_adaptive.client import batching

COHORTS = ([3, 1, 6], [5, 1, 2])


def digest(name, context):
  """One text for all bits of two rounds: states, what clients keep, metrics."""
  linear = small_problem.linear_model
  batches = batching.Batching(4, 2)
  process = small_problem.process(name, 0.1, linear, batching=batches)
  done = engines.run(context, small_problem.Run, process, small_problem.clients())
  engines.run(context, done.rounds, COHORTS)
  values = tf.nest.flatten([done.state, done.client_states, done.metrics])
  return hashlib.sha256(b''.join(np.asarray(value).tobytes() for value in values)).hexdigest()
