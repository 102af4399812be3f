"""Partitions are exact, seeded and use each example at most once."""

import hashlib

import numpy as np
import pytest

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data import partition

LABELS = np.random.default_rng(0).integers(0, 10, 4321)

PARTITIONERS = {
  'iid': lambda seed: partition.iid(len(LABELS), 37, seed),
  'unbalanced': lambda seed: partition.iid(len(LABELS), 37, seed, unbalance=0.3),
  'dirichlet': lambda seed: partition.label_dirichlet(LABELS, 37, 0.03, seed),
  'dirichlet_unbalanced': lambda seed: partition.label_dirichlet(LABELS, 37, 0.3, seed, 0.3),
}


@pytest.mark.parametrize('name', PARTITIONERS)
def test_every_example_is_used_once_and_the_seed_decides(name):
  parts = PARTITIONERS[name](3)
  np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(LABELS)))
  assert any(not np.array_equal(a, b) for a, b in zip(parts, PARTITIONERS[name](4)))
  if 'unbalanced' not in name:
    sizes = [len(p) for p in parts]
    assert max(sizes) - min(sizes) <= 1


def test_sizes_are_exact_log_normal_and_never_zero():
  sizes = partition.client_sizes(100_000, 1000, seed=5, unbalance=0.3)
  assert sizes.sum() == 100_000
  assert abs(np.log(sizes).std() - 0.3) < 0.02
  assert partition.client_sizes(12, 10, seed=0, unbalance=3.0).min() >= 1
  np.testing.assert_array_equal(partition.client_sizes(10, 4), [3, 3, 2, 2])
  for clients in (1, 3):  # As few and as many as there may be.
    assert len(partition.client_sizes(3, clients, unbalance=10.0)) == clients
  assert [len(part) for part in partition.hold_out(11)] == [10, 1]


def _digest(parts):
  """A hash of who has which rows, in which order."""
  rows = [','.join(map(str, part)) for part in parts]
  return hashlib.sha256('\n'.join(rows).encode()).hexdigest()[:12]


@pytest.mark.parametrize(
  'build, digest',
  [
    (lambda **seed: [partition.client_sizes(100, 7, **seed, unbalance=0.3)], '1e5530da7c10'),
    (lambda **seed: partition.iid(100, 7, **seed, unbalance=0.3), 'b437f4ce6fa3'),
    (lambda **seed: partition.label_dirichlet(LABELS[:99], 7, 0.3, **seed), '4001c29c6153'),
    (lambda **seed: partition.label_shards(LABELS[:100], 7, **seed), '27a47bf010d4'),
    (lambda **seed: partition.hold_out(40, **seed), 'b9f1e339f81c'),
  ],
)
def test_the_partition_of_a_seed_stays_what_it_was(build, digest):
  """Published runs are repeated from their seed; the default is 0."""
  assert _digest(build()) == digest
  assert _digest(build(seed=0)) == digest


def test_dirichlet_client_proportions_have_the_dirichlet_variance():
  # With many examples of each class no class runs out, so proportions stay as they were drawn:
  # the variance of one is p (1 - p) / (classes alpha + 1).
  labels = np.repeat(np.arange(4), 100_000)
  parts = partition.label_dirichlet(labels, 1000, 0.5, seed=1)[:]
  first = np.array([np.mean(labels[p] == 0) for p in parts])
  assert abs(first.mean() - 0.25) < 0.02
  assert abs(first.var() - 0.25 * 0.75 / (4 * 0.5 + 1)) < 0.01


def test_shards_as_in_the_fedavg_paper():
  labels = np.random.default_rng(2).integers(0, 10, 60_000)
  parts = partition.label_shards(labels, 100, seed=0)
  assert {len(p) for p in parts} == {600}
  used = np.concatenate(parts)
  assert len(np.unique(used)) == 60_000
  classes = [len(np.unique(labels[p])) for p in parts]
  # A shard has one label, or two where it crosses a border: 9 borders in 200 shards.
  assert max(classes) <= 4
  assert np.mean(classes) < 2.2
  used = np.concatenate(partition.label_shards(LABELS, 50))
  assert len(used) == len(np.unique(used)) == 4300  # Fewer are left out than there are shards.


@pytest.mark.parametrize(
  'call, named',
  [
    (lambda: partition.iid(3, 5), 'num_clients is 5; it must be from 1 to 3'),
    (lambda: partition.iid(3, 0), 'num_clients is 0'),
    (lambda: partition.label_dirichlet(LABELS, 5, 1e-100), r'alpha is 1e-100; .* from 0.0001 to'),
    (lambda: partition.iid(99, 5, unbalance=1e3), 'unbalance is 1000.0; it must be from 0 to 10'),
    (lambda: partition.label_dirichlet(LABELS, 5, float('nan')), 'alpha is nan'),
    (lambda: partition.client_sizes(9, 3, unbalance=-1), 'unbalance is -1'),
    (lambda: partition.label_shards(LABELS[:9], 5), 'num_clients is 5; it must be from 1 to 4'),
    (lambda: partition.hold_out(10), 'one client in 11'),
  ],
)
def test_errors_name_the_value(call, named):
  with pytest.raises(errors.DataError, match=named):
    call()


def test_counts_and_report_by_hand():
  counts = partition.counts_by_client([np.array([0, 0]), np.array([0, 1])])
  np.testing.assert_array_equal(counts, [[2, 0], [1, 1]])
  report = partition.report_of_counts(counts)
  assert report == {
    **{'clients': 2, 'examples': 4, 'smallest': 2, 'largest': 2, 'median': 2, 'mean': 2},
    'classes_per_client': 1.5,
    'largest_class_share': 0.75,
    'total_variation': pytest.approx(0.25),
  }
