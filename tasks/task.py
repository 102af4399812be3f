"""Tasks: a model, clients with data, and data to evaluate on.

A task does not depend on an algorithm. For a task of your own, make a `Task` whose clients are, for
example, an `InMemoryClientData`:

    clients = InMemoryClientData({'alice': (x_alice, y_alice), 'bob': (x_bob, y_bob)})
    task = Task(name='mine', build_model=build_model, train=clients,
                validation=example_arrays(x_test, y_test), source='my own arrays')
"""

import abc
import collections
import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_adaptive_tasks import (
  errors,
  preparation as preparation_lib,
  text_preparation as text_preparation_lib,
)

if TYPE_CHECKING:
  from tff_adaptive import models

ExampleArrays = collections.OrderedDict  # OrderedDict(x=array[n, ...], y=array[n, ...])


def example_arrays(x: Any, y: Any, where: str = 'the data') -> ExampleArrays:
  """Combines inputs and targets into `OrderedDict(x=array, y=array)`.

  Args:
    x: Array [n, ...], the inputs.
    y: Array [n, ...], the targets.
    where: A description of the arrays for error messages.

  Raises:
    DataError: If x and y have different numbers of examples, no examples, or masked values.
  """
  errors.check_unmasked(x, f'x of {where}')
  errors.check_unmasked(y, f'y of {where}')
  x = np.asarray(x)
  y = np.asarray(y)
  if x.ndim == 0 or y.ndim == 0 or x.shape[0] != y.shape[0]:
    raise errors.DataError(
      f'{where}: x has shape {x.shape} and y {y.shape}; their first dimension, the number of '
      'examples, must be the same'
    )
  if x.shape[0] == 0:
    raise errors.DataError(f'{where} has no examples; leave it out or give it at least one')
  return collections.OrderedDict(x=x, y=y)


def check_finite(arrays: Mapping[str, np.ndarray], where: str) -> None:
  """Raises RowError if a number is not finite. The message has `where`, array and row."""
  for name, array in arrays.items():
    # Integers, texts and objects are always finite, or are refused elsewhere.
    if array.dtype.kind not in 'fc' or np.isfinite(array).all():
      continue
    at = tuple(np.argwhere(~np.isfinite(array))[0])
    after = f', has {array[at]}; it must be finite'
    raise errors.RowError(f'{where}: {name}, ', int(at[0]), after)


def check_ids(ids: Sequence[str], where: str) -> None:
  """Raises DataError if a client id occurs twice or is not UTF-8; names `where` and the id."""
  for client_id, count in collections.Counter(ids).items():
    if count > 1:
      raise errors.DataError(f'{where}: the client {client_id!r:.80} is there more than once')
    # Ids are stored in SQLite and JSON as UTF-8.
    if re.search('[\ud800-\udfff]', client_id):
      raise errors.DataError(f'{where}: the client {client_id!r:.80} is not UTF-8: rename it')


class ClientData(abc.ABC):
  """The interface to the clients' examples, which are loaded client by client as arrays."""

  @property
  @abc.abstractmethod
  def client_ids(self) -> Sequence[str]:
    """The ids of all clients, sorted."""

  @abc.abstractmethod
  def num_examples(self, client_id: str) -> int:
    """Returns the number of examples that `load` returns, without loading them."""

  @abc.abstractmethod
  def load(self, client_id: str) -> ExampleArrays:
    """Returns one client's examples, in the form that the model takes.

    Args:
      client_id: One of `client_ids`.

    Returns:
      OrderedDict(x=array[n, ...], y=array[n, ...]), n >= 1.

    Raises:
      DataError: If the id is unknown or the client's data cannot be used.
    """

  def __len__(self) -> int:
    return len(self.client_ids)

  def load_all(self) -> ExampleArrays:
    """Returns the examples of all clients, one client after the other."""
    parts = [self.load(c) for c in self.client_ids]
    x = np.concatenate([part['x'] for part in parts])
    y = np.concatenate([part['y'] for part in parts])
    return example_arrays(x, y)


class InMemoryClientData(ClientData):
  """Clients whose examples are arrays in memory.

  Args:
    arrays: (x, y) by client id, two arrays [n, ...] with n >= 1. Ids are converted to strings.

  Raises:
    DataError: If there are no clients, or two have the same id, such as 1 and '1'. Also if a client
      has no examples, different numbers of x and y, or a number that is not finite.
  """

  def __init__(self, arrays: Mapping[str, tuple[Any, Any]]):
    if not arrays:
      raise errors.DataError('there are no clients: give at least one')
    self._arrays: dict[str, ExampleArrays] = {}
    for client_id, (x, y) in arrays.items():
      examples = example_arrays(x, y, f'client {client_id!r}')
      check_finite(examples, f'client {client_id!r}')
      self._arrays[str(client_id)] = examples
    # After str(), 1 and '1' are one client: the dict above would have lost one.
    check_ids(list(map(str, arrays)), 'the clients')
    self._ids = sorted(self._arrays)

  @classmethod
  def from_partition(
    cls, x: np.ndarray, y: np.ndarray, indices: Sequence[np.ndarray]
  ) -> 'InMemoryClientData':
    """Builds clients from centralised arrays and one array of row numbers for each client.

    Args:
      x: Array [n, ...] of all inputs.
      y: Array [n, ...] of all targets.
      indices: For each client, an int array of row numbers of x and y.

    Returns:
      An `InMemoryClientData`. Its ids are '0', '1', ..., padded with zeros to one length.

    Raises:
      DataError: If x and y have different numbers of examples; also see the constructor.
    """
    examples = example_arrays(x, y, 'the data to split')
    # Padded, so that the order of texts is the order of numbers.
    width = len(str(len(indices) - 1))
    return cls(
      {f'{i:0{width}d}': (examples['x'][r], examples['y'][r]) for i, r in enumerate(indices)}
    )

  @property
  def client_ids(self) -> Sequence[str]:
    return self._ids

  def _find(self, client_id: str) -> ExampleArrays:
    if client_id not in self._arrays:
      raise errors.DataError(f'unknown client {client_id!r}; there are {len(self._ids)} clients')
    return self._arrays[client_id]

  def num_examples(self, client_id: str) -> int:
    return len(self._find(client_id)['x'])

  def load(self, client_id: str) -> ExampleArrays:
    # A caller may add keys to its copy; the arrays are shared.
    return self._find(client_id).copy()


class PooledClients(ClientData):
  """One client, 'all', which has the examples of several clients, one after the other.

  The examples are loaded and joined when they are first used, and are then kept in memory.

  Args:
    clients: The clients.
    max_examples_per_client: The most examples of each of them, from the first on; 0 for all.
  """

  _ID = 'all'

  def __init__(self, clients: ClientData, max_examples_per_client: int = 0):
    self._clients = clients
    self._most = max_examples_per_client or None
    self._examples: ExampleArrays | None = None

  @property
  def client_ids(self) -> Sequence[str]:
    return (self._ID,)

  def num_examples(self, client_id: str) -> int:
    self._check(client_id)
    sizes = [self._clients.num_examples(one) for one in self._clients.client_ids]
    if self._most is not None:
      sizes = [min(size, self._most) for size in sizes]
    return sum(sizes)

  def load(self, client_id: str) -> ExampleArrays:
    self._check(client_id)
    if self._examples is None:
      parts = [self._clients.load(one) for one in self._clients.client_ids]
      x = np.concatenate([part['x'][: self._most] for part in parts])
      y = np.concatenate([part['y'][: self._most] for part in parts])
      self._examples = example_arrays(x, y)
    return self._examples.copy()

  def _check(self, client_id: str) -> None:
    if client_id != self._ID:
      raise errors.DataError(f'unknown client {client_id!r}; all examples are of {self._ID!r}')


@dataclasses.dataclass(frozen=True, repr=False)
class Task:
  """A learning problem whose data are divided over clients; `print` describes it in one line.

  Attributes:
    name: The task's name.
    build_model: A function from the seed of the initial weights to a `tff_adaptive.models.Model`.
    train: The training clients.
    validation: OrderedDict(x, y) of the examples for evaluation during training.
    source: The origin of the data, such as a file, a download or an embedded set.
    metric: The name of the task's metric, which is one of the model's.
    test: OrderedDict(x, y) of further held-out examples; None if the task has none.
    test_clients: The training clients with examples that they do not train on; None if the data
      have no such examples.
    unit_starts: A function x [n, ...] -> bool [n], True where a unit begins: examples that stay
      together in order; see `tff_adaptive.Batching`. None if every example is a unit.
    client_weight: A function from a client's training metrics to its weight, for client_weighting
      'tokens'. None if the task does not offer this weighting.
    preparation: The preparation of raw inputs, for users of the exported model. None if the model
      takes raw inputs.
    validated_by: Whose examples `validation` has, in words, for a task of a user's own data.

  Raises:
    DataError: If validation or test data are not x and y of equal length, or are not finite.
  """

  name: str
  build_model: 'Callable[[int], models.Model]'
  train: ClientData
  validation: ExampleArrays
  source: str
  metric: str = 'accuracy'
  test: ExampleArrays | None = None
  test_clients: ClientData | None = None
  unit_starts: Callable | None = None
  client_weight: Callable | None = None
  preparation: preparation_lib.Preparation | text_preparation_lib.TextPreparation | None = None
  validated_by: str = ''

  def __repr__(self) -> str:
    from tff_adaptive_tasks import summary  # It needs this module.

    return summary.in_one_line(self)

  def __post_init__(self) -> None:
    for part in ('validation', 'test'):
      examples = getattr(self, part)
      # A task needs validation data, and may have no test data.
      if examples is None and part == 'test':
        continue
      where = f'the {part} data of the task {self.name!r}'
      if not isinstance(examples, Mapping) or set(examples) != {'x', 'y'}:
        raise errors.DataError(f'{where} must be OrderedDict(x=array, y=array)')
      check_finite(example_arrays(examples['x'], examples['y'], where), where)
