"""What is drawn from one seed for different purposes has nothing in common."""

import itertools

import numpy as np

import tff_adaptive_tasks as tasks
from tests.helpers import small_problem
from tff_adaptive import training
from tff_adaptive._utils import draws
from tff_adaptive.client import Batching, ClientTraining
from tff_adaptive.training import client_evaluation
from tff_adaptive_tasks import client_split

_OF_RUN = (draws.HELDOUT_CLIENTS, draws.EVALUATED_CLIENTS, draws.FINE_TUNING)


def test_no_two_purposes_share_a_stream():
  rounds = range(200)
  purposes = range(1, 6)
  numbers = [(t,) for t in rounds] + [*itertools.product(rounds, purposes)]
  numbers += [(tag,) for tag in _OF_RUN] + [(draws.HELDOUT_EXAMPLES, i) for i in range(200)]
  firsts = {int(draws.generator(5, *n).integers(2**62)) for n in numbers}
  assert len(firsts) == len(numbers)


def test_what_is_no_rounds_has_a_number_that_no_round_has(monkeypatch):
  seen = []
  generator = draws.generator
  monkeypatch.setattr(draws, 'generator', lambda *n: seen.append(n) or generator(*n))
  data = tasks.InMemoryClientData({c: (np.arange(9), np.arange(9)) for c in 'abcd'})
  split = client_split.split_clients(data, seed=5, heldout_clients=0.3, heldout_examples=0.3)
  split.train.load(split.train.client_ids[0])
  client_evaluation._choose('abcd', 2, 5)
  training.build_personalization(
    small_problem.model(), ClientTraining(batching=Batching(4), seed=5), lambda rounds: 0.1
  )
  assert {n[0] for n in seen} == {5}
  assert {n[1] for n in seen} == {*_OF_RUN, draws.HELDOUT_EXAMPLES}
  assert min(_OF_RUN) >= 2**31
