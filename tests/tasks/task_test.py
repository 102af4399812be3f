"""Tasks and clients in memory."""

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import catalog, preparation, task as task_lib


def test_clients_in_memory_load_what_they_were_given():
  data = tasks.InMemoryClientData(
    {"o'b": (np.ones([3, 2]), np.zeros(3)), 'a': (np.zeros([1, 2]), np.ones(1))}
  )
  assert list(data.client_ids) == ['a', "o'b"]
  assert [data.num_examples(c) for c in data.client_ids] == [1, 3]
  assert len(data) == 2
  assert list(data.load("o'b")) == ['x', 'y']
  np.testing.assert_array_equal(data.load_all()['y'], [1, 0, 0, 0])
  for call in (data.load, data.num_examples):
    with pytest.raises(tasks.DataError, match="unknown client 'b'"):
      call('b')


@pytest.mark.parametrize(
  'arrays, named',
  [
    ({'bob': (np.zeros([0, 2]), np.zeros(0))}, "'bob' has no examples"),
    ({'bob': (np.zeros([2, 2]), np.zeros(3))}, "'bob'.*must be the same"),
    ({}, 'no clients'),
    ({1: ([1.0], [0]), '1': ([2.0], [0])}, "'1' is there more than once"),
    ({'\udce4': ([1.0], [0])}, r"the client '\\udce4' is not UTF-8"),
    ({'a': ([0], [0]), 'bob': ([[1], [np.nan]], [0, 0])}, "'bob': x, row 1, has nan; it must be f"),
    ({'bob': ([0, 0], [1, np.inf])}, "client 'bob': y, row 1, has inf"),
    ({'bob': (np.ma.masked_equal([0, 9], 9), [0, 1])}, "x of client 'bob' has masked values"),
  ],
)
def test_a_client_that_cannot_be_used_is_named(arrays, named):
  with pytest.raises(tasks.DataError, match=named):
    tasks.InMemoryClientData(arrays)


def test_tasks_and_their_parts_do_not_change():
  kinds = (tasks.Task, tasks.ClientSplit, preparation.Preparation, preparation.Column)
  assert all(kind.__dataclass_params__.frozen for kind in (*kinds, catalog.Entry))


def test_clients_from_a_partition_are_numbered_so_that_they_sort():
  for count, ids in ((10, '0123456789'), (11, [f'{i:02d}' for i in range(11)])):
    x = np.arange(count)
    data = task_lib.InMemoryClientData.from_partition(x, -x, x.reshape(count, 1))
    assert list(data.client_ids) == [*ids]
    assert data.load(ids[7])['y'] == -7


@pytest.mark.parametrize('part', ['validation', 'test'])
@pytest.mark.parametrize(
  'examples, named',
  [
    ({'x': np.ones([3, 2]), 'y': np.ones(2)}, 'must be the same'),
    ({'x': np.ones(3), 'y': np.array([1, np.nan, np.nan])}, 'y, row 1, has nan; it must be finite'),
    ({'x': np.ones(3)}, 'must be OrderedDict'),
    (3, 'must be OrderedDict'),
  ],
)
def test_data_to_evaluate_on_are_checked(part, examples, named):
  pair = tasks.example_arrays(np.ones([3, 2]), np.ones(3))
  train = tasks.InMemoryClientData({'a': tuple(pair.values())})
  parts = {'validation': pair, part: examples}  # Only the test data may be missing.
  with pytest.raises(tasks.DataError, match=rf"the {part} data of the task 'mine'.*{named}"):
    tasks.Task('mine', None, train, source='arrays', **parts)
