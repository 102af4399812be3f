"""Public partitioners: each row once, by the seed, in the proportions of their papers."""

import dataclasses
import math

import numpy as np
import pytest
from sklearn import model_selection

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import errors, partition
from tff_adaptive_tasks.data import partition as draws

LABELS = np.random.default_rng(0).integers(0, 10, 3000)
# Fashion-MNIST has 7,000 images of each class. PFLlib's numbers depend on nothing else of it.
FASHION = np.repeat(np.arange(10), 7000)

USING_ALL = [
  partition.IidPartitioner(30),
  partition.IidPartitioner(30, unbalance=0.5),
  partition.DirichletPartitioner(30, alpha=0.3),
  partition.DirichletPartitioner(30, alpha=0.3, self_balancing=False, min_partition_size=1),
  partition.InnerDirichletPartitioner(30, alpha=0.03),
  partition.ShardPartitioner(31, num_shards_per_partition=3),
  partition.PathologicalPartitioner(30, 3, 'deterministic'),
  partition.PathologicalPartitioner(30, 3, 'first-deterministic'),
  partition.LinearPartitioner(30),
  partition.SquarePartitioner(12),
  partition.ExponentialPartitioner(6),
  partition.NaturalIdPartitioner(),
  partition.PfllibPartitioner(),
  partition.PfllibPathologicalPartitioner(),
]


def counts_of(parts, labels):
  return draws.counts_by_client([labels[rows] for rows in parts])


@pytest.mark.parametrize('partitioner', USING_ALL, ids=repr)
def test_each_row_is_used_once_and_the_same_rows_come_again(partitioner):
  parts = partitioner(LABELS)
  np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(3000))
  assert min(map(len, parts)) >= 1
  assert all(rows.dtype == np.int64 for rows in parts)
  again = partitioner(LABELS)
  assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))


@pytest.mark.parametrize('partitioner', [p for p in USING_ALL if hasattr(p, 'seed')], ids=repr)
def test_another_seed_gives_other_rows(partitioner):
  other = dataclasses.replace(partitioner, seed=7)(LABELS)
  assert any(not np.array_equal(a, b) for a, b in zip(partitioner(LABELS), other, strict=True))


@pytest.mark.parametrize('partitioner', USING_ALL, ids=repr)
def test_labels_may_be_texts(partitioner):
  names = np.array([f'class {label}' for label in LABELS])  # These sort as the numbers do.
  for one, other in zip(partitioner(LABELS), partitioner(names.astype(object)), strict=True):
    np.testing.assert_array_equal(one, other)


def test_dirichlet_has_the_variance_of_its_distribution():
  # A share of Dirichlet(alpha) over N clients has the mean 1 / N and the variance
  # (1 / N) (1 - 1 / N) / (N alpha + 1).
  num_clients = 5
  alpha = 0.8
  labels = np.repeat(np.arange(400), 50)
  partitioner = partition.DirichletPartitioner(
    num_clients, alpha, min_partition_size=1, self_balancing=False
  )
  shares = counts_of(partitioner(labels), labels) / 50
  expected = (1 / num_clients) * (1 - 1 / num_clients) / (num_clients * alpha + 1)
  np.testing.assert_allclose(shares.mean(1), 1 / num_clients, atol=0.05)
  np.testing.assert_allclose(shares.var(), expected, rtol=0.1)


def test_a_client_above_the_mean_gets_nothing_of_later_classes():
  # After each class, a client that had the mean already has no more than before.
  parts = partition.DirichletPartitioner(10, alpha=0.3, seed=2)(LABELS)
  cumulative = np.cumsum(counts_of(parts, LABELS), 1)
  is_full = cumulative[:, :-1] >= len(LABELS) / 10
  added = np.diff(cumulative, axis=1)
  assert is_full.any()
  assert (added[is_full] == 0).all()


def test_the_smallest_client_has_as_many_as_asked_for():
  for smallest in (1, 60, 150):
    parts = partition.DirichletPartitioner(15, 0.5, min_partition_size=smallest)(LABELS)
    assert min(map(len, parts)) >= smallest


def test_a_smaller_alpha_is_less_alike():
  unlike = []
  for alpha in (0.05, 0.5, 5.0, 500.0):
    parts = partition.DirichletPartitioner(20, alpha, min_partition_size=1)(LABELS)
    unlike.append(draws.report_of_counts(counts_of(parts, LABELS))['total_variation'])
  assert unlike == sorted(unlike, reverse=True)
  assert unlike[-1] < 0.1


@pytest.mark.parametrize('mode', ['random', 'first-deterministic', 'deterministic'])
@pytest.mark.parametrize('size', [1, 2, 10])
def test_pathological_clients_have_as_many_classes_as_asked_for(mode, size):
  parts = partition.PathologicalPartitioner(40, size, mode, seed=3)(LABELS)
  counts = counts_of(parts, LABELS)
  np.testing.assert_array_equal((counts > 0).sum(1), size)
  for of_class in counts.T:  # Its clients share it evenly.
    shares = of_class[of_class > 0]
    assert shares.max() - shares.min() <= 1
  if mode == 'first-deterministic':
    assert all(counts[client, client % 10] for client in range(40))
  if mode == 'deterministic':
    for client in range(40):
      assert set(np.flatnonzero(counts[client])) == {(client + i) % 10 for i in range(size)}


def test_classes_that_nobody_has_are_named():
  with pytest.warns(UserWarning, match=r'no client has the classes with the numbers \[3, 4, 5, 6'):
    parts = partition.PathologicalPartitioner(2, 2, 'deterministic')(LABELS)
  assert set(LABELS[np.concatenate(parts)]) == {0, 1, 2}


def test_shards_are_those_of_mcmahan_where_they_divide_the_examples():
  labels = LABELS[:1000]
  parts = partition.ShardPartitioner(50, seed=4)(labels)
  for rows, known in zip(parts, draws.label_shards(labels, 50, 4), strict=True):
    np.testing.assert_array_equal(rows, known)
  assert all(len(set(labels[rows])) <= 4 for rows in parts)  # Two shards of ten, sorted by label.


@pytest.mark.parametrize(
  'cls, units',
  [
    (partition.LinearPartitioner, [1, 2, 3, 4]),
    (partition.SquarePartitioner, [1, 4, 9, 16]),
    (partition.ExponentialPartitioner, [math.e, math.e**2, math.e**3, math.e**4]),
  ],
)
def test_sizes_grow_as_the_name_says(cls, units):
  sizes = [len(rows) for rows in cls(4)(LABELS)]
  expected = [int(3000 * unit / sum(units)) for unit in units]
  expected[-1] = 3000 - sum(expected[:-1])
  assert sizes == expected


def test_given_sizes_leave_the_rest():
  parts = partition.SizePartitioner([5, 1, 9])(LABELS)
  assert [len(rows) for rows in parts] == [5, 1, 9]
  assert len(set(np.concatenate(parts))) == 15


def test_ids_are_clients_in_their_order():
  ids = np.array(['b', 'a', 'b', 'c', 'a'])
  assert [rows.tolist() for rows in partition.NaturalIdPartitioner()(ids)] == [[1, 4], [0, 2], [3]]


def test_clients_of_a_partition_have_their_rows():
  parts = partition.ShardPartitioner(5)(LABELS)
  clients = tasks.InMemoryClientData.from_partition(np.arange(3000), LABELS, parts)
  np.testing.assert_array_equal(clients.load('3')['x'], parts[3])


# What PFLlib's users committed as `dataset/FashionMNIST/config.json` and `dataset/fmnist/
# config.json`: the number of examples by label of the first and of the last client.
@pytest.mark.parametrize(
  'partitioner, first, last',
  [
    pytest.param(
      partition.PfllibPartitioner(50, alpha=0.3),
      [0, 55, 110, 139, 37, 1577, 0, 0, 0, 0],
      [158, 36, 36, 1, 142, 13, 8, 7, 88, 45],
      id='ryota7777/FIDSUS',
    ),
    pytest.param(
      partition.PfllibPathologicalPartitioner(20, 10),
      [72, 276, 78, 190, 294, 275, 233, 60, 80, 257],
      [3089, 3712, 3524, 2540, 3714, 3189, 3831, 3009, 3586, 3867],
      id='FJJT/PFL-Non-IID',
    ),
    pytest.param(
      partition.PfllibPathologicalPartitioner(20, 10, balance=True),
      [350] * 10,
      [350] * 10,
      id='SZN1630/BHPFLAB-master',
    ),
  ],
)
def test_pfllib_gave_its_users_the_same_clients(partitioner, first, last):
  counts = counts_of(partitioner(FASHION), FASHION)
  assert counts[0].tolist() == first
  assert counts[-1].tolist() == last


def test_the_leaderboards_clients_do_not_depend_on_which_version_of_pfllib_made_them():
  def sizes(smallest):
    partitioner = partition.PfllibPartitioner(min_partition_size=smallest)
    return [len(rows) for rows in partitioner(FASHION)]

  assert sizes(1) == sizes(40)


@pytest.mark.parametrize(
  'partitioner', [partition.PfllibPartitioner(), partition.PfllibPathologicalPartitioner()]
)
def test_pfllibs_test_rows_are_scikit_learns_from_the_same_random_numbers(partitioner):
  parts = partitioner(LABELS)
  train, test = partitioner.train_and_test(LABELS)
  rng = np.random.RandomState(partitioner.seed)
  partitioner._draw(LABELS, rng)  # PFLlib goes on with the generator that it divided with.
  for client, rows in enumerate(parts):
    known = model_selection.train_test_split(rows, train_size=0.75, random_state=rng)
    np.testing.assert_array_equal(train[client], known[0])
    np.testing.assert_array_equal(test[client], known[1])


def test_noise_grows_from_client_to_client():
  x = np.zeros([40_000, 3], np.float32)
  parts = np.split(np.arange(40_000), 4)
  noisy = partition.feature_noise(x, parts, 0.4, seed=1)
  variances = [noisy[rows].var() for rows in parts]
  np.testing.assert_allclose(variances, [0.1, 0.2, 0.3, 0.4], rtol=0.03)
  assert noisy.dtype == np.float32
  assert not x.any()
  assert np.array_equal(noisy, partition.feature_noise(x, parts, 0.4, seed=1))
  assert not np.array_equal(noisy, partition.feature_noise(x, parts, 0.4, seed=2))
  np.testing.assert_array_equal(partition.feature_noise(x, parts, 0.0), x)


@pytest.mark.parametrize(
  'partitioner, labels, words',
  [
    (partition.IidPartitioner(0), LABELS, 'num_partitions is 0; it must be from 1 to 3,000'),
    (partition.DirichletPartitioner(4000), LABELS, 'num_partitions is 4000'),
    (partition.DirichletPartitioner(5, alpha=0), LABELS, 'alpha is 0; it must be from 0.0001'),
    (partition.DirichletPartitioner(5, alpha=math.nan), LABELS, 'alpha is nan'),
    (
      partition.DirichletPartitioner(5, min_partition_size=601),
      LABELS,
      'min_partition_size is 601; it must be from 0 to 600',
    ),
    (
      partition.DirichletPartitioner(30, 0.01, min_partition_size=10),
      LABELS,
      'in 1,000 draws from Dirichlet.0.01. some of 30 clients had fewer than 10 of 3,000',
    ),
    (partition.DirichletPartitioner(5), LABELS / 2, 'of dtype float64|dtype float64; give one'),
    (partition.DirichletPartitioner(5), np.eye(3, dtype=int), r'have shape \(3, 3\)'),
    (partition.ShardPartitioner(1501), LABELS, 'num_partitions is 1501; it must be from 1 to 1,50'),
    (partition.ShardPartitioner(5, 0), LABELS, 'num_shards_per_partition is 0'),
    (partition.PathologicalPartitioner(5, 11), LABELS, 'num_classes_per_partition is 11'),
    (partition.PathologicalPartitioner(5, 2, 'rnd'), LABELS, "is 'rnd'; it must be 'random', 'det"),
    (
      partition.PathologicalPartitioner(4, 1),
      np.array([0, 0, 0, 0]),
      None,
    ),
    (
      partition.PathologicalPartitioner(4, 2),
      np.array([0, 0, 0, 0, 1]),
      '4 clients would share the 1 examples of the class with the number 1',
    ),
    (partition.ExponentialPartitioner(20), LABELS, '12 of 20 clients would have no example of 30'),
    (partition.SizePartitioner([1, 0]), LABELS, r'partition_sizes is \[1, 0\]; give one whole'),
    (partition.SizePartitioner([3001]), LABELS, 'the sum of partition_sizes is 3001'),
    (
      partition.PfllibPathologicalPartitioner(3, 2),
      LABELS,
      '3 clients with 2 classes cannot have all 10 classes',
    ),
    (
      partition.PfllibPathologicalPartitioner(100, 9),
      LABELS[:300],
      'has too few examples',
    ),
  ],
)
def test_what_cannot_be_divided_is_refused(partitioner, labels, words):
  if words is None:
    assert len(partitioner(labels)) == 4
    return
  with pytest.raises(tasks.DataError, match=words):
    partitioner(labels)


def test_noise_that_cannot_be_added_is_refused():
  parts = [np.arange(3)]
  with pytest.raises(tasks.DataError, match='needs floating-point inputs; they are uint8'):
    partition.feature_noise(np.zeros(3, np.uint8), parts, 1)
  with pytest.raises(tasks.DataError, match='feature_noise is -1; it must be from 0'):
    partition.feature_noise(np.zeros(3), parts, -1)


@pytest.mark.parametrize('kind', [*partition.NAMES.values()], ids=[*partition.NAMES])
def test_numbers_that_are_none_are_refused_by_name(kind):
  needed = {
    'num_partitions': 3,
    'alpha': 0.5,
    'num_shards_per_partition': 2,
    'num_classes_per_partition': 2,
  }
  fields = {field.name for field in dataclasses.fields(kind)}
  arguments = {name: value for name, value in needed.items() if name in fields}
  kind(**arguments)
  for value in (2.5, '3'):
    with pytest.raises(errors.DataError, match=r"num_partitions is '?[23][.5]*'?; it must be a w"):
      kind(**(arguments | {'num_partitions': value}))
  if 'alpha' in fields:
    with pytest.raises(errors.DataError, match="alpha is 'x'; it must be a number"):
      kind(**(arguments | {'alpha': 'x'}))


def test_more_clients_than_examples_are_refused_by_the_partitioners_name():
  for kind in (partition.IidPartitioner, partition.LinearPartitioner):
    with pytest.raises(errors.DataError, match='num_partitions is 9; it must be from 1 to 4'):
      kind(9)(np.arange(4) % 2)
  with pytest.raises(errors.DataError, match='num_partitions is 9'):
    partition.InnerDirichletPartitioner(9, 0.5)(np.arange(4) % 2)
