"""What a server adds up of compressed messages remains the mean of what its clients keep."""

import dataclasses

import numpy as np
import pytest

import oracle
from oracle import compressed
from tests.helpers import engines, small_problem
from tff_adaptive import algorithms, corrections
from tff_adaptive.client import Batching, ClientTraining

N = small_problem.NUM_CLIENTS


def train(graph, part, top_k, cohorts, **batching):
  """The run of a correction with top-k."""
  batching = {'local_steps': 2, **batching}
  process = algorithms.build_drift_corrected(
    small_problem.model(),
    corrections.chain(part, top_k),
    client_learning_rate=0.2,
    training=ClientTraining(batching=Batching(4, shuffle=False, **batching)),
  )
  run = engines.run(graph, small_problem.Run, process, small_problem.clients())
  return engines.run(graph, run.rounds, cohorts)


def top(**how):
  return corrections.TopK(share=0.2, **how)


WAYS = {
  'none': top(),
  'ef14': top(feedback='ef14'),
  'decay': top(feedback='ef14', decay=0.7),
  'ef21': top(feedback='ef21'),
}


@dataclasses.dataclass(frozen=True)
class Sum:
  """A sum that a server keeps.

  Attributes:
    server: Its name in the server's state.
    client: The name of its share in a client's state, of which it is the mean.
    memory: Which of the client's memories has what the server will get later.
    sign: Of the memory in the share.
  """

  server: str
  client: str
  memory: int
  sign: int = 1


SUMS = {
  corrections.Scaffold(N): [Sum('h', 'h', 1)],
  corrections.ScaffoldM(N): [Sum('h', 'h', 1)],
  corrections.FedDyn(0.3, N): [Sum('h', 'h', 0)],
  corrections.FedVARP(N): [Sum('mean_last', 'last', 0)],
  corrections.FedDC(0.1, N): [Sum('h', 'h', 0, sign=-1), Sum('c', 'c', 1)],
}
CASES = [(part, way) for part in SUMS for way in WAYS]


@pytest.mark.parametrize(('part', 'way'), CASES, ids=[f'{part.name}-{way}' for part, way in CASES])
@pytest.mark.sample(1)
def test_what_a_server_adds_up_is_what_clients_have_sent(graph, part, way):
  """Otherwise the sums would drift apart, and training would end at another model."""
  run = train(graph, part, WAYS[way], small_problem.cohorts(5))
  for one in SUMS[part]:
    total = 0.0
    for state in run.client_states.values():
      total = total + oracle.pack(state[0][one.client])
      if way != 'none':
        total = total - one.sign * oracle.pack(state[1]['memory'][one.memory])
    known = oracle.pack(run.state.correction[0][one.server])
    assert np.abs(known).max() > 1e-2
    np.testing.assert_allclose(known, total / N, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('way', ['none', 'ef21'])
@pytest.mark.sample(1)
def test_scaffnews_control_variates_are_zero_in_the_mean(graph, way):
  """But for what the server will get later, times p / eta_l."""
  run = train(graph, corrections.Scaffnew(), WAYS[way], [list(range(N))] * 3)
  total = 0.0
  largest = 0.0
  for state in run.client_states.values():
    scale = float(state[0]['scale'])
    moved = run.theta - oracle.pack(state[0]['ended'])
    h = oracle.pack(state[0]['h']) + scale * moved
    largest = max(largest, np.abs(h).max())
    total = total + h
    if way != 'none':
      total = total - scale * oracle.pack(state[1]['memory'][0])
  assert largest > 1e-2
  np.testing.assert_allclose(total / N, 0, atol=1e-5)


FEEDBACKS = ('none', 'ef14', 'ef21')


@pytest.mark.parametrize('feedback', FEEDBACKS)
@pytest.mark.sample(1)
def test_scaffold_ends_at_the_optimum_whatever_is_left_out(feedback):
  """The oracle's, on least squares of unlike clients: top-k of a tenth, half of them in a round."""
  rng = np.random.default_rng(0)
  size = sum(oracle.SIZES)
  inputs = [rng.normal(size=(60, size)) for _ in range(6)]
  outputs = [rng.normal(size=60) + 2 * i for i in range(6)]
  optimum = np.linalg.lstsq(np.concatenate(inputs), np.concatenate(outputs), rcond=None)[0]

  def gradient(theta, x, y):
    return x.T @ (x @ theta - y) / len(y)

  def channel():
    return compressed.Channel(lambda v: compressed.top_k(v, 0.1), feedback)

  run = compressed.Scaffold(
    np.zeros(size),
    list(zip(inputs, outputs)),
    server=oracle.Sgd(1.0),
    eta_l=lambda t: 0.05,
    epochs=3,
    gradient=gradient,
    channel=channel(),
    second_channel=channel(),
  )
  for _ in range(1500):
    run.round(list(rng.choice(6, 3, replace=False)))
  np.testing.assert_allclose(run.theta, optimum, atol=1e-6)
