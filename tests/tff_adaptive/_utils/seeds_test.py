"""Seeds of 62 bits, and seeds made from them."""

import pytest

from tff_adaptive._utils import seeds


@pytest.mark.parametrize('bit', [0, 30, 31, 45, 61])
def test_every_bit_of_a_seed_counts(bit):
  assert len({tuple(seeds.base(s).numpy()) for s in (0, 7, 1 << bit, 7 ^ (1 << bit))}) == 4


def test_folding_is_by_one_number_after_another_and_scrambled_neighbours_are_far_apart():
  base = seeds.base(3)
  once = seeds.fold(base, 5, -1)
  one_by_one = seeds.fold(seeds.fold(base, 5), -1)
  assert once.numpy().tolist() == one_by_one.numpy().tolist()
  assert seeds.fold(base, -1, 5).numpy().tolist() != once.numpy().tolist()
  first = seeds.scramble(seeds.fold(base, 7)).numpy()
  second = seeds.scramble(seeds.fold(base, 8)).numpy()
  assert abs(int(first[1]) - int(second[1])) > 10**4
