"""Divides centralised examples over clients; no example is used twice.

A `Partition` is a list with one int64 array for each client: row numbers in random order, which the
seed decides. `report_of_counts` describes how clients differ. Nothing here imports TensorFlow.
"""

from collections.abc import Sequence

import numpy as np

from tff_adaptive_tasks import errors

Partition = list[np.ndarray]

# Beyond these limits the draws are NaN, or never end.
LEAST_ALPHA = 1e-4
MOST_ALPHA = 1e6
_MOST_UNBALANCE = 10.0


def client_sizes(
  num_examples: int, num_clients: int, seed: int = 0, unbalance: float = 0.0
) -> np.ndarray:
  """Returns the clients' sizes, int64 [num_clients], each >= 1, with the sum `num_examples`.

  Args:
    num_examples: Number of examples to divide.
    num_clients: Number of clients.
    seed: Seed of the log-normal draws.
    unbalance: Standard deviation of the logarithm of the sizes, 0 to 10. AdaBest (section 4.1) has
      0.3 for unbalanced clients. With 0 sizes are equal up to one example.

  Raises:
    DataError: If there are too few examples or `unbalance` is out of range.
  """
  errors.check_range('num_clients', num_clients, 1, num_examples)  # Each has an example.
  errors.check_range('unbalance', unbalance, 0, _MOST_UNBALANCE)
  rng = np.random.default_rng([seed, 1])
  # Log-normal, so that a size is never negative.
  share = np.exp(unbalance * rng.standard_normal(num_clients))
  exact = share / share.sum() * (num_examples - num_clients)
  sizes = np.floor(exact).astype(np.int64)
  missing = num_examples - num_clients - int(sizes.sum())
  # The largest remainders get the examples that rounding down left; ties go to the first client.
  sizes[np.argsort(sizes - exact, kind='stable')[:missing]] += 1
  return sizes + 1


def iid(num_examples: int, num_clients: int, seed: int = 0, unbalance: float = 0.0) -> Partition:
  """Gives each client an IID sample; for arguments and errors see `client_sizes`."""
  sizes = client_sizes(num_examples, num_clients, seed, unbalance)
  order = np.random.default_rng([seed, 2]).permutation(num_examples)
  return np.split(order, np.cumsum(sizes)[:-1])


def label_dirichlet(
  labels: np.ndarray, num_clients: int, alpha: float, seed: int = 0, unbalance: float = 0.0
) -> Partition:
  """Gives each client its own label proportions, drawn from Dirichlet(alpha).

  A client's labels are drawn from its proportions. If a class has no examples left, other classes
  take its place ("Measuring the Effects of Non-Identical Data Distribution for Federated Visual
  Classification", Hsu et al., 2019). Sizes are those of `client_sizes`.

  Args:
    labels: int [n], the class of each example.
    num_clients: See `client_sizes`.
    alpha: Concentration of each class, 1e-4 to 1e6. 0.03 gives almost one class to each client, and
      100 almost IID clients.
    seed: Seed of the whole partition.
    unbalance: See `client_sizes`, also for errors. An `alpha` out of range raises DataError, too.
  """
  errors.check_range('alpha', alpha, LEAST_ALPHA, MOST_ALPHA)
  labels = np.asarray(labels)
  sizes = client_sizes(len(labels), num_clients, seed, unbalance)
  rng = np.random.default_rng([seed, 3])
  pools = [rng.permutation(np.flatnonzero(labels == c)) for c in np.unique(labels)]
  left = np.array([len(rows) for rows in pools], np.int64)
  proportions = rng.dirichlet(np.full(len(pools), alpha), num_clients)
  partition: list = [None] * num_clients
  # In random order, so that it is not always the last clients that find classes used up.
  for i in rng.permutation(num_clients):
    rows = []
    missing = int(sizes[i])
    while missing:
      p = np.where(left > 0, proportions[i], 0.0)
      if p.sum() <= 0:  # Its classes are used up: draw from all that is left.
        p = left.astype(np.float64)
      counts = np.minimum(rng.multinomial(missing, p / p.sum()), left)
      # Each pool is in random order, and is used up from its beginning.
      rows += [pool[len(pool) - n :][:c] for pool, n, c in zip(pools, left, counts)]
      left -= counts
      missing -= int(counts.sum())
    partition[i] = rng.permutation(np.concatenate(rows))
  return partition


def label_shards(labels: np.ndarray, num_clients: int, seed: int = 0) -> Partition:
  """Sorts examples by label, cuts them into equal shards, and gives each client two shards.

  In "Communication-Efficient Learning of Deep Networks from Decentralized Data" (McMahan et al.,
  2017), section 3, MNIST has 200 shards of 300 for 100 clients. Remaining examples are not used.
  """
  num_shards = 2 * num_clients
  errors.check_range('num_clients', num_clients, 1, len(labels) // 2)  # Each shard has an example.
  return _dealt(np.asarray(labels), num_clients, 2, seed, len(labels) // num_shards * num_shards)


def shards(
  labels: np.ndarray, num_clients: int, shards_per_client: int, seed: int = 0
) -> Partition:
  """Deals shards as `label_shards` does, of sizes that differ by one, so that no row is left.

  Raises:
    DataError: If there are more shards than examples.
  """
  errors.check_range('num_shards_per_partition', shards_per_client, 1, len(labels))
  errors.check_range('num_partitions', num_clients, 1, len(labels) // shards_per_client)
  return _dealt(np.asarray(labels), num_clients, shards_per_client, seed, len(labels))


def _dealt(
  labels: np.ndarray, num_clients: int, shards_per_client: int, seed: int, num_used: int
) -> Partition:
  """Deals the shards of `num_used` random examples, sorted by label, to the clients."""
  rng = np.random.default_rng([seed, 4])
  used = rng.permutation(len(labels))[:num_used]
  by_label = used[np.argsort(labels[used], kind='stable')]
  num_shards = num_clients * shards_per_client
  pieces = np.array_split(by_label, num_shards)
  hands = rng.permutation(num_shards).reshape(num_clients, shards_per_client)
  partition = []
  for hand in hands:
    rows = np.concatenate([pieces[number] for number in hand])
    partition.append(rng.permutation(rows))
  return partition


def hold_out(num_clients: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
  """Sets one client in 11 aside for tuning (AdaBest, section 4.1; 10 of 110 in D.3).

  Returns sorted indices of training and held-out clients; fewer than 11 clients raise DataError.
  """
  if num_clients < 11:
    raise errors.DataError(f'one client in 11 cannot be held out of {num_clients}; use more')
  order = np.random.default_rng([seed, 6]).permutation(num_clients)
  k = num_clients // 11
  return np.sort(order[k:]), np.sort(order[:k])


def counts_by_client(labels: Sequence[np.ndarray]) -> np.ndarray:
  """Counts examples by client and label, int64 [clients, classes], from each client's labels."""
  num_classes = 1 + max(int(np.max(y)) for y in labels)
  return np.stack([np.bincount(y, minlength=num_classes) for y in labels])


def report_of_sizes(sizes: Sequence[int]) -> dict[str, float]:
  """Returns the numbers of clients and examples, and statistics of the clients' sizes, by name."""
  return {
    'clients': len(sizes),
    'examples': int(np.sum(sizes)),
    'smallest': int(np.min(sizes)),
    'largest': int(np.max(sizes)),
    'median': float(np.median(sizes)),
    'mean': float(np.mean(sizes)),
  }


def report_of_counts(counts: np.ndarray) -> dict[str, float]:
  """Describes how the clients' labels differ.

  Args:
    counts: int [clients, classes], the number of examples by label.

  Returns:
    The result of `report_of_sizes`, with these means over clients: classes_per_client,
    largest_class_share, and total_variation, the distance between a client's label distribution and
    that of all clients (0 is equal, near 1 is very different).
  """
  sizes = counts.sum(1)
  shares = counts / sizes[:, None]
  overall = counts.sum(0) / counts.sum()
  return {
    **report_of_sizes(sizes.tolist()),
    'classes_per_client': float((counts > 0).sum(1).mean()),
    'largest_class_share': float(shares.max(1).mean()),
    'total_variation': float(0.5 * np.abs(shares - overall).sum(1).mean()),
  }
