"""What partitioners share: their interface, and the division of classes by Dirichlet(alpha)."""

import abc
import dataclasses
import numbers
from typing import Any, NamedTuple

import numpy as np

from tff_adaptive_tasks import errors
from tff_adaptive_tasks.data.partition import LEAST_ALPHA, MOST_ALPHA, Partition

_MOST_TRIES = 1000  # Draws of a whole partition until all clients have enough examples.


class _Number(NamedTuple):
  kind: type
  words: str


# By the annotation of a field. NumPy's numbers are such, too.
_NUMBERS = {
  'int': _Number(numbers.Integral, 'a whole number'),
  'float': _Number(numbers.Real, 'a number'),
}


class Partitioner(abc.ABC):
  """Divides the rows of a data set over clients. The same object always returns the same rows."""

  def __post_init__(self) -> None:
    """Raises DataError unless the numbers among a dataclass's fields are numbers."""
    for field in dataclasses.fields(self):  # type: ignore[arg-type]
      value = getattr(self, field.name)
      annotation: Any = field.type
      expected = _NUMBERS.get(getattr(annotation, '__name__', str(annotation)))
      if expected is not None and not isinstance(value, expected.kind):
        raise errors.DataError(f'{field.name} is {value!r:.80}; it must be {expected.words}')

  @abc.abstractmethod
  def __call__(self, labels: Any) -> Partition:
    """Returns each client's row numbers, int64 arrays.

    Args:
      labels: Array [n] of integers or texts, the label of each example.

    Raises:
      DataError: If the labels are no such array, or an argument is out of range for them.
    """


def codes_of(labels: Any) -> np.ndarray:
  """Returns the number of each example's class, int64 [n]: classes are numbered as they sort."""
  array = np.asarray(labels)
  # A column of a data frame has texts as objects.
  if array.dtype.kind == 'O' and all(isinstance(label, str) for label in array.flat):
    array = array.astype(str)
  if array.ndim != 1 or not array.size or array.dtype.kind not in 'biuU':
    raise errors.DataError(
      f'the labels to divide by have shape {array.shape} and dtype {array.dtype}; give one whole '
      'number or text for each example'
    )
  return np.unique(array, return_inverse=True)[1].astype(np.int64)


def dirichlet(
  codes: np.ndarray,
  num_clients: int,
  alpha: float,
  smallest: int,
  is_balanced: bool,
  rng: np.random.Generator | np.random.RandomState,
) -> Partition:
  """Divides each class by Dirichlet(alpha) until no client has fewer than `smallest` examples."""
  errors.check_range('num_partitions', num_clients, 1, len(codes))
  errors.check_range('alpha', alpha, LEAST_ALPHA, MOST_ALPHA)
  errors.check_range('min_partition_size', smallest, 0, len(codes) // num_clients)
  smallest = max(smallest, 1)  # A client has examples.
  for _ in range(_MOST_TRIES):
    parts = _dirichlet_once(codes, num_clients, alpha, is_balanced, rng)
    if min(map(len, parts)) >= smallest:
      return parts
  raise errors.DataError(
    f'in {_MOST_TRIES:,} draws from Dirichlet({alpha:g}) some of {num_clients} clients had fewer '
    f'than {smallest} of {len(codes):,} examples: take a larger alpha, fewer clients or a smaller '
    'min_partition_size'
  )


def _dirichlet_once(
  codes: np.ndarray,
  num_clients: int,
  alpha: float,
  is_balanced: bool,
  rng: np.random.Generator | np.random.RandomState,
) -> Partition:
  # The calls of `rng`, and the rounding, are those of PFLlib: `PfllibPartitioner` has its rows.
  parts = [np.empty(0, np.int64)] * num_clients
  mean = len(codes) / num_clients
  for label in range(int(codes.max()) + 1):
    rows = np.flatnonzero(codes == label)
    rng.shuffle(rows)
    proportions = rng.dirichlet(np.repeat(alpha, num_clients))
    may_have_more = np.array([len(part) < mean for part in parts])
    if is_balanced:
      proportions = proportions * may_have_more
    if not proportions.sum() > 0:  # With a small alpha those drawn may have enough already.
      proportions = may_have_more.astype(float)
    proportions = proportions / proportions.sum()
    # Rounded down at the cumulated shares: each row belongs to exactly one client.
    ends = (np.cumsum(proportions) * len(rows)).astype(int)[:-1]
    pieces = np.split(rows, ends)
    parts = [np.concatenate(pair) for pair in zip(parts, pieces)]
  return parts
