"""Rounds of a small problem in any context, and references to what clients have."""

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks
from tests.helpers import small_problem
from tff_adaptive import algorithms, corrections, optimizers, training as training_lib
from tff_adaptive._utils import client_references
from tff_adaptive.client import Batching, ClientTraining

COHORTS = ([0, 1, 2, 3, 4, 5, 6], [4], [5, 0, 2])  # Also fewer clients than subrounds.


# What may act in a round: an exchange and kept optimizer states, a factor of the server's step and
# averaged optimizer states.
METHODS = {
  'mime-keep': (corrections.Mime('adam', base_eps=0.1), ('sgdm', 'keep')),
  'fed_exp-average': (corrections.FedExP(), ('adam', 'average')),
}
# Error feedback and random rounding at the clients, and what the server keeps of its messages.
COMPRESSED = {
  'compressed': (
    corrections.chain(
      corrections.Scaffold(small_problem.NUM_CLIENTS),
      corrections.TopK(share=0.3, feedback='ef14'),
      corrections.Qsgd(levels=3),
      corrections.QuantizeDown(bits=4),
    ),
    ('sgdm', 'reset'),
  )
}
OPTIMIZERS = {
  'sgdm': optimizers.build_sgdm(1.0, 0.5),
  'adam': tff.learning.optimizers.build_adam(1.0, epsilon=0.1),
}


def build(name):
  """A process by its name in the registry, in `METHODS` or in `COMPRESSED`."""
  described = {**METHODS, **COMPRESSED}
  if name not in described:
    return small_problem.process(name, 0.1, small_problem.linear_model, batching=Batching(4, 2))
  correction, (optimizer, state) = described[name]
  training = ClientTraining(OPTIMIZERS[optimizer], Batching(4), optimizer_state=state)
  options = dict(client_learning_rate=0.1, client_weighting='examples', training=training)
  return algorithms.build_drift_corrected(small_problem.linear_model(), correction, **options)


def run(process, context, cohorts=COHORTS):
  """All values of some rounds: states, what clients keep, metrics."""
  with tff.framework.get_context_stack().install(context):
    done = small_problem.Run(process, small_problem.clients()).rounds(cohorts)
  return [np.asarray(v) for v in tf.nest.flatten([done.state, done.client_states, done.metrics])]


def trained(process, context, rounds, folder=None, clients=None, **options):
  """The state after `training.train`, which goes on with what is in the folder."""
  arrays = {f'c{i}': pair for i, pair in enumerate(small_problem.clients())}
  config = {'rounds': rounds, 'clients_per_round': 5, 'rounds_per_checkpoint': 1, **options}
  with tff.framework.get_context_stack().install(context):
    result = training_lib.train(
      process,
      clients or tasks.InMemoryClientData(arrays),
      lambda weights: {},
      training_lib.TrainingConfig(**config),
      output_dir=folder and str(folder),
      show_progress=False,
    )
  return [np.asarray(v) for v in tf.nest.flatten(result.state)]


class Source:
  """Gives integers."""

  def __init__(self, values):
    self.values = values

  def load(self, keys):
    return [self.values[key] for key in keys]


def references(source, keys):
  return [client_references.ClientReference(source, key) for key in keys]
