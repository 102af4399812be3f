"""Partitions are exact, seeded and use each example at most once."""

import numpy as np
import pytest

from tasks import errors, partition, partition_report

LABELS = np.random.default_rng(0).integers(0, 10, 4321)
COARSE = np.repeat(np.arange(20), 5)  # Of 100 fine labels.
FINE = np.random.default_rng(1).integers(0, 100, 5000)

PARTITIONERS = {
  'iid': lambda seed: partition.iid(len(LABELS), 37, seed),
  'unbalanced': lambda seed: partition.iid(len(LABELS), 37, seed, unbalance=0.3),
  'dirichlet': lambda seed: partition.label_dirichlet(LABELS, 37, 0.03, seed),
  'dirichlet_unbalanced': lambda seed: partition.label_dirichlet(LABELS, 37, 0.3, seed, 0.3),
  'pachinko': lambda seed: partition.pachinko(FINE, COARSE[FINE], 50, seed=seed),
}


@pytest.mark.parametrize('name', PARTITIONERS)
def test_every_example_is_used_once_and_the_seed_decides(name):
  parts = PARTITIONERS[name](3)
  n = len(FINE) if name == 'pachinko' else len(LABELS)
  np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(n))
  for a, b in zip(parts, PARTITIONERS[name](3)):
    np.testing.assert_array_equal(a, b)
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


def test_a_small_alpha_makes_clients_less_alike():
  spread = [
    partition_report.report(LABELS, partition.label_dirichlet(LABELS, 40, a))['total_variation']
    for a in (0.03, 0.3, 3.0, 1000.0)
  ]
  assert spread == sorted(spread, reverse=True)
  assert spread[0] > 0.7
  # Even with equal proportions, draws of about 108 examples deviate somewhat.
  assert spread[-1] < 0.15


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
  parts = partition.label_shards(labels, 100, 2, seed=0)
  assert {len(p) for p in parts} == {600}
  used = np.concatenate(parts)
  assert len(np.unique(used)) == 60_000
  classes = [len(np.unique(labels[p])) for p in parts]
  # A shard has one label, or two where it crosses a border: 9 borders in 200 shards.
  assert max(classes) <= 4
  assert np.mean(classes) < 2.2
  shards = np.sort(labels[np.concatenate(parts)])
  np.testing.assert_array_equal(shards, np.sort(labels))


def test_shards_leave_out_fewer_examples_than_shards():
  parts = partition.label_shards(LABELS, 50, 2)
  used = np.concatenate(parts)
  assert len(used) == len(np.unique(used)) == 4300


def test_pachinko_concentrates_on_coarse_labels():
  parts = partition.pachinko(FINE, COARSE[FINE], 50, 0.1, 10.0, seed=0, examples_per_client=60)
  assert all(len(p) == 60 for p in parts)
  used = np.concatenate(parts)
  assert len(used) == len(np.unique(used))
  coarse = partition_report.report(COARSE[FINE], parts)
  iid = partition_report.report(COARSE[FINE], partition.iid(len(FINE), 50))
  assert coarse['classes_per_client'] < 0.5 * iid['classes_per_client']
  # Within a coarse label the fine ones are spread (concentration 10): most of the five appear.
  counts = partition_report.label_counts(FINE, parts, 100).reshape(50, 20, 5)
  many = counts.sum(2) >= 20
  assert (counts > 0).sum(2)[many].mean() > 3.5


def test_one_in_eleven_is_held_out():
  train, held_out = partition.hold_out(110, 11, seed=1)
  assert (len(train), len(held_out)) == (100, 10)
  np.testing.assert_array_equal(np.sort(np.concatenate([train, held_out])), np.arange(110))


def test_the_report_counts():
  labels = np.array([0, 0, 1, 1])
  report = partition_report.report(labels, [np.array([0, 1]), np.array([2, 3])])
  assert report['clients'] == 2
  assert report['examples'] == 4
  assert report['total_variation'] == 0.5
  assert report['largest_class_share'] == 1
  np.testing.assert_array_equal(
    partition_report.label_counts(labels, [np.array([0, 2, 3])]), [[1, 2]]
  )


@pytest.mark.parametrize(
  'call, named',
  [
    (lambda: partition.iid(3, 5), '3 examples'),
    (lambda: partition.iid(3, 0), 'num_clients is 0'),
    (lambda: partition.label_dirichlet(LABELS, 5, 0.0), 'alpha is 0'),
    (lambda: partition.label_dirichlet(LABELS, 5, float('nan')), 'alpha is nan'),
    (lambda: partition.client_sizes(9, 3, unbalance=-1), 'unbalance is -1'),
    (lambda: partition.label_shards(LABELS, 5, 0), 'shards_per_client is 0'),
    (lambda: partition.pachinko(np.array([0, 0]), np.array([0, 1]), 1), 'several coarse'),
    (lambda: partition.hold_out(5, 11), 'one client in 11'),
  ],
)
def test_errors_name_the_value(call, named):
  with pytest.raises(errors.DataError, match=named):
    call()
