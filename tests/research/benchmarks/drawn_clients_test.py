"""Drawn clients are the same wherever they are drawn, and as many as one likes."""

import pickle

import numpy as np
import pytest

from research.benchmarks import drawn_clients


def test_a_copy_draws_the_same_and_sizes_need_no_examples():
  clients = drawn_clients.DrawnClients(10**6, 8, 3)
  copy = pickle.loads(pickle.dumps(clients))
  assert len(pickle.dumps(clients)) < 2000
  sizes = []
  for i in (0, 1, 77, 999_999):
    client = clients.client_ids[i]
    examples = clients.load(client)
    np.testing.assert_equal(copy.load(client), examples)
    sizes.append(copy.num_examples(client))
    assert examples['x'].shape == (sizes[-1], 8)
    assert examples['y'].shape == (sizes[-1],)
    assert 20 <= sizes[-1] <= 200
  assert len(set(sizes)) > 1
  other = drawn_clients.DrawnClients(10**6, 8, 4).load('c0000077')
  assert not np.array_equal(other['x'][:20], clients.load('c0000077')['x'][:20])


def test_ids_are_sorted_and_not_held():
  ids = drawn_clients.Ids(1000)
  assert len(ids) == 1000
  assert list(ids) == sorted(ids)
  assert (ids[-1], ids[np.int64(7)], ids[2:4]) == ('c0000999', 'c0000007', ['c0000002', 'c0000003'])
  with pytest.raises(IndexError):
    ids[1000]
