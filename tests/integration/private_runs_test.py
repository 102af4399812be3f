"""Runs with noise: resumed ones have the bits of uninterrupted ones."""

import collections

import numpy as np
import pytest

from tests.helpers import small_problem
from tff_adaptive import aggregation, algorithms, corrections, optimizers, training
from tff_adaptive.client import ClientTraining, batching


class Clients:
  """The small problem's."""

  def __init__(self):
    self._data = dict(zip('abcdefg', small_problem.clients()))
    self.client_ids = sorted(self._data)

  def num_examples(self, client_id):
    return len(self._data[client_id][1])

  def load(self, client_id):
    x, y = self._data[client_id]
    return collections.OrderedDict(x=x, y=y)


def build(name, options):
  model = small_problem.model()
  cohort = aggregation.Cohort(3, model.initial_weights[0], is_weighted=False, seed=3)
  return algorithms.build_drift_corrected(
    model,
    corrections.FedDyn(mu=0.1, num_clients=7),
    optimizers.build_yogi(0.1),
    client_learning_rate=0.1,
    aggregator=aggregation.build_aggregator(name, options, cohort),
    training=ClientTraining(batching=batching.Batching(4)),
  )


def train(process, rounds, folder=None):
  config = training.TrainingConfig(rounds=rounds, clients_per_round=3, seed=5)
  return training.train(
    process,
    Clients(),
    lambda weights: {'accuracy': float(np.sum(weights[1]))},
    config,
    output_dir=folder,
    show_progress=False,
  )


@pytest.mark.parametrize('name, options', [('dp_gaussian', {'count_stddev': 1.0}), ('dp_tree', {})])
def test_a_resumed_run_with_noise_equals_an_uninterrupted_one(graph, tmp_path, name, options):
  import tensorflow_federated as tff

  options = {'noise_multiplier': 0.5, 'clip': 0.3, **options}
  with tff.framework.get_context_stack().install(graph):
    process = build(name, options)
    whole = train(process, 3)
    folder = str(tmp_path)
    train(process, 1, folder)
    resumed = train(process, 3, folder)
  for part in ('global_model_weights', 'inference_weights'):
    found, expected = (getattr(run.state, part).trainable for run in (resumed, whole))
    for mine, theirs in zip(found, expected):
      np.testing.assert_array_equal(mine, theirs)
