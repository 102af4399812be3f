"""Runs with noise: resumed ones have the bits of uninterrupted ones, whose noise is a secret."""

import numpy as np
import pytest
import tensorflow_federated as tff

import tff_adaptive_tasks as tasks
from tests.helpers import fakes, small_problem
from tff_adaptive import aggregation, algorithms, training
from tff_adaptive.client import ClientTraining, batching
from tff_adaptive.runs import state_file

OPTIONS = {'noise_multiplier': 0.5, 'clip': 0.3}
CLIENTS = tasks.InMemoryClientData(dict(zip('abcdefg', small_problem.clients())))


def build(name, options):
  model = small_problem.linear_model()
  cohort = aggregation.Cohort(3, model.initial_weights[0])
  return algorithms.build_fed_avg(
    model,
    client_learning_rate=0.1,
    client_weighting='uniform',
    aggregator=aggregation.build_aggregator(name, options, cohort),
    training=ClientTraining(batching=batching.Batching(4)),
  )


class StopAfter(training.Callback):
  def __init__(self, stop, rounds):
    self._stop = stop
    self._rounds = rounds

  def round_end(self, row):
    if row['round'] == self._rounds:
      self._stop.request()


def train(process, rounds, folder=None, stop_after=None):
  stop = training.Stop()
  options = dict(clients_per_round=3, seed=5, stop=stop, callbacks=[StopAfter(stop, stop_after)])
  return fakes.train(folder, rounds, process, CLIENTS, **options)


def weights(run):
  return np.concatenate([np.ravel(w) for w in run.state.global_model_weights.trainable])


def _assert_is_only_there(path):
  leaves = state_file.read_last(str(path))[1]
  (secret,) = (leaf for name, leaf in leaves.items() if name.endswith(('sum_state/seed', '/seeds')))
  others = [p.read_bytes() for p in path.parents[1].rglob('*') if p.is_file() and p != path]
  assert others
  for word in secret:
    assert not any(str(word).encode() in content or word.tobytes() in content for content in others)


@pytest.fixture(autouse=True)
def _graph_context(graph):
  with tff.framework.get_context_stack().install(graph):
    yield


@pytest.mark.parametrize(
  'name, more, stops', [('dp_gaussian', {'count_stddev': 1.0}, [0, 1]), ('dp_tree', {}, [1])]
)
@pytest.mark.exhaustive
def test_a_resumed_run_with_noise_equals_an_uninterrupted_one(tmp_path, name, more, stops):
  """Also of another process, which has drawn another secret, and after round 0."""
  process = build(name, {**OPTIONS, **more})
  other = build(name, {**OPTIONS, **more})
  whole = weights(train(process, 3))
  unlike = weights(train(other, 3))
  assert not np.any(whole == unlike)
  for rounds in stops:
    folder = str(tmp_path / str(rounds))
    train(process, 3, folder, stop_after=rounds)
    (path,) = (tmp_path / str(rounds) / 'checkpoints').iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    _assert_is_only_there(path)
    np.testing.assert_array_equal(weights(train(other, 3, folder)), whole)
