"""The mistakes are there to be made, one at a time, and each is one."""

import ast
import os

import pytest

from research.faults import by_hand, mutants, mutation_targets

SOURCE = '''
"""Words 1 < 2."""
def f(a: int = 3) -> float:
  if a <= 4 and not a:
    raise ValueError(f'{a + 1}')
  g(a, b, c=-a)
  del b, c[0]
  del b
  return max(a, 2)
'''


def test_each_mutant_makes_one_mistake_and_words_and_types_stay():
  found = mutants.mutants(SOURCE)
  assert [m.name for m in found] == [
    '3:15 3 -> 4',
    '4:2 condition negated',
    '4:5 and -> or',
    '4:5 <= -> <',
    '4:5 <= -> >',
    '4:10 4 -> 5',
    '4:16 not dropped',
    '5:4 Raise dropped',
    '6:2 statement dropped',
    '6:2 c= dropped',
    '6:2 arguments exchanged',
    '6:12 - dropped',
    '7:2 Delete dropped',
    '7:11 0 -> 1',
    '9:16 2 -> 3',
  ]
  right = ast.unparse(ast.parse(SOURCE)).splitlines()
  texts = {m.source for m in found}
  assert len(texts) == len(found)
  for text in texts:
    differing = [i for i, (a, b) in enumerate(zip(right, text.splitlines())) if a != b]
    assert len(differing) == 1


@pytest.mark.parametrize('name', by_hand.MISTAKES)
def test_the_passages_are_in_the_files(name):
  mistake = by_hand.MISTAKES[name]
  with open(mistake.path, encoding='utf-8') as file:
    text = file.read()
  assert text.count(mistake.right) == 1
  ast.parse(text.replace(mistake.right, mistake.wrong))


def test_every_target_has_its_tests():
  paths = [path for t in mutation_targets.TARGETS.values() for path in (t.path, *t.tests)]
  paths += [path for m in by_hand.MISTAKES.values() for path in m.tests]
  assert [path for path in paths if not os.path.exists(path.split('::')[0])] == []
