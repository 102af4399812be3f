"""States as bytes: arrays lie one after the other, and leaves are found by their names."""

import collections
import itertools

import numpy as np
import pytest

from tff_adaptive.runs import serialization
from tff_adaptive.runs.errors import StateError

Pair = collections.namedtuple('Pair', 'second first')
STATE = Pair({'b': np.arange(3.0), 'a': 7}, [np.float32(2.5), ()])


@pytest.mark.parametrize('sizes', [(1, 1), (3, 8), (9, 100), (1000, 1, 7)])
def test_packed_arrays_of_any_size_lie_one_after_the_other(sizes):
  rng = np.random.default_rng(0)
  dtypes = (np.float32, np.float64)
  state = tuple(rng.normal(size=n).astype(t) for n, t in itertools.product(sizes, dtypes))
  packer = serialization.Packer(state)
  packed = packer.pack(state)
  assert len(packed) == packer.size == sum(-(-a.nbytes // 8) * 8 for a in state)
  for unpacked, array in zip(packer.unpack(packed), state):
    np.testing.assert_array_equal(unpacked, array)


def test_a_layout_has_names_which_are_paths_and_no_two_equal():
  layouts = [{'a': 1}, {'b': 1}, {'a': 1.0}, {'a': [1]}, (1,), {'a': np.ones(1, int)}]
  assert len({serialization.Packer(layout).signature for layout in layouts}) == len(layouts)
  assert list(serialization.named_leaves(STATE)) == ['second/a', 'second/b', 'first/0']
  awkward = {'a': {'b': 1}, 'a/b': 2, 'a~1b': 3, 'a~b': 4}
  leaves = serialization.named_leaves(awkward)
  numbers = {name: int(leaf) for name, leaf in leaves.items()}
  assert numbers == {'a/b': 1, 'a~1b': 2, 'a~01b': 3, 'a~0b': 4}


def test_leaves_are_put_back_by_name_in_any_order_and_as_their_kind():
  leaves = dict(reversed(serialization.named_leaves(STATE).items()))
  state = serialization.restored(STATE, leaves)
  assert type(state) is Pair
  np.testing.assert_array_equal(state.second['b'], [0, 1, 2])
  assert type(state.second['a']) is int
  assert type(state.first[0]) is np.float32
  assert (state.second['a'], state.first) == (7, [2.5, ()])


@pytest.mark.parametrize(
  'changes, message',
  [
    ({'second/a': None}, r'leaf second/a is absent, not int64\[\]'),
    ({'third': np.ones(2)}, r'leaf third is float64\[2\], not absent'),
    ({'second/b': np.zeros(4)}, r'leaf second/b is float64\[4\], not float64\[3\]'),
    ({'second/b': np.zeros([3, 1])}, r'leaf second/b is float64\[3,1\], not float64\[3\]'),
    ({'first/0': np.float64(1)}, r'leaf first/0 is float64\[\], not float32\[\]'),
  ],
)
def test_another_structure_is_refused_with_the_first_leaf_that_differs(changes, message):
  leaves = {**serialization.named_leaves(STATE), **changes}
  leaves = {name: leaf for name, leaf in leaves.items() if leaf is not None}
  with pytest.raises(StateError, match=message):
    serialization.restored(STATE, leaves)
