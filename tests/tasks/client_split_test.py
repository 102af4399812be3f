"""Who is held out: every example in one part, the same for a seed, whole units."""

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import client_split


def clients(number=30):
  """Clients of 1 to 20 examples, each example a number of its own."""
  sizes = [1 + 7 * i % 20 for i in range(number)]
  starts = np.cumsum([0, *sizes])
  return tasks.InMemoryClientData(
    {
      f'c{i:02d}': (np.arange(s, s + n), np.arange(s, s + n))
      for i, (s, n) in enumerate(zip(starts, sizes))
    }
  )


def examples(part):
  if part is None:
    return set()
  values = np.concatenate([part.load(c)['x'] for c in part.client_ids]).tolist()
  assert len(values) == sum(part.num_examples(c) for c in part.client_ids)
  return set(values)


def test_clients_and_examples_are_in_one_part_each():
  data = clients()
  split = client_split.split_clients(data, seed=3, heldout_clients=0.2, heldout_examples=0.25)
  assert len(split.train) == 24
  assert set(split.train.client_ids) | set(split.unseen.client_ids) <= set(data.client_ids)
  assert set(split.train.client_ids) & set(split.unseen.client_ids) == set()
  assert list(split.train.client_ids) == sorted(split.train.client_ids)
  parts = [examples(part) for part in (split.train, split.heldout, split.unseen, split.unseen_rest)]
  ids = *split.train.client_ids, *split.unseen.client_ids
  assert sum(map(len, parts)) == len(set.union(*parts)) == sum(map(data.num_examples, ids))
  gone = set(data.client_ids) - set(ids)
  assert all(data.num_examples(c) < 4 for c in gone)  # Never train, and nothing to hold out.
  for client_id in split.heldout.client_ids:
    total = data.num_examples(client_id)
    assert split.heldout.num_examples(client_id) == total // 4
    assert split.train.num_examples(client_id) == total - total // 4


def test_it_depends_on_the_seed_and_each_clients_place_alone():
  def drawn(seed, share=0.25):
    split = client_split.split_clients(
      clients(), seed=seed, heldout_clients=0.2, heldout_examples=share
    )
    return split.train.client_ids, split.heldout.load(split.heldout.client_ids[-1])['x'].tolist()

  assert drawn(1)[0] != drawn(2)[0]
  without = client_split.split_clients(clients(), seed=1, heldout_clients=0.2)
  assert drawn(1) == (without.train.client_ids, [293])
  assert ' '.join(without.unseen.client_ids) == 'c01 c02 c03 c08 c15 c24'  # Runs are repeated.
  data = clients()
  assert examples(without.unseen) | examples(without.train) == examples(data)
  assert client_split.split_clients(data, seed=1) == client_split.ClientSplit(
    data, None, None, None
  )


def test_examples_of_a_unit_stay_together_and_a_share_of_whole_examples_is_that_many():
  data = tasks.InMemoryClientData({'a': (np.arange(40), np.arange(40))})
  for seed in range(5):
    split = client_split.split_clients(
      data, seed=seed, heldout_examples=0.3, unit_starts=lambda x: np.asarray(x) % 4 == 0
    )
    assert split.unseen is split.unseen_rest is None
    held = split.heldout.load('a')['x']
    assert len(held) == split.heldout.num_examples('a') == 12
    assert (held[::4] % 4 == 0).all()  # Where units begin.
    assert (held.reshape(3, 4) == held[::4, None] + np.arange(4)).all()
  data = tasks.InMemoryClientData({'a': (np.arange(100), np.arange(100))})
  for share, count in ((0.29, 29), (0.289999, 28)):  # 0.29 * 100 = 28.999...96.
    split = client_split.split_clients(data, seed=0, heldout_examples=share)
    assert split.heldout.num_examples('a') == len(examples(split.heldout)) == count


def test_too_large_a_share_is_refused():
  with pytest.raises(tasks.DataError, match='30 of 30 clients would be held out'):
    client_split.split_clients(clients(), seed=0, heldout_clients=0.99)
  with pytest.raises(tasks.DataError, match=r'no client has enough examples to hold out 0\.01'):
    client_split.split_clients(clients(), seed=0, heldout_examples=0.01)
  split = client_split.split_clients(clients(), seed=0, heldout_clients=0.01)
  assert len(split.unseen) == 1
  with pytest.raises(tasks.DataError, match='is not in this part'):
    split.train.load(split.unseen.client_ids[0])


def test_clients_of_one_size_hold_out_other_rows():
  """Rows that are the same for all clients would be a bias where their order means something."""
  data = tasks.InMemoryClientData({f'c{i:02d}': (np.arange(40), np.arange(40)) for i in range(200)})
  held = client_split.split_clients(data, seed=0, heldout_examples=0.25).heldout
  rows = np.array([held.load(client_id)['x'] for client_id in held.client_ids])
  assert len({row.tobytes() for row in rows}) == 200
  # Each row is held out by 50 of 200 clients, with a standard deviation of 6.1.
  counts = np.bincount(rows.ravel(), minlength=40)
  assert abs(counts - 50).max() < 5 * 6.1
