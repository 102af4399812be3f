"""The mistakes are there to be made, one at a time, and each is one."""

import ast
import pathlib
import re

from research import mutations
from research.faults import mutants

SOURCE = '''
"""Words 1 < 2."""
def f(a: int = 3) -> float:
  if a <= 4 and not a:
    raise ValueError(f'{a + 1}')
  g(a, b, c=-a)
  del b, c[0]
  del b
  return max(a, 2)
def h(x: float, y: float):
  if x < 0.5:
    return math.floor(x), ', '.join(a)
  return x * y / 3
if TYPE_CHECKING:
  import i
'''
# The names of its mutants.
EXPECTED = """
3:15 3 -> 4; 4:2 condition negated; 4:5 and -> or; 4:5 <= -> <; 4:5 <= -> >; 4:10 4 -> 5;
4:16 not dropped; 5:4 Raise dropped; 6:2 statement dropped; 6:2 c= dropped;
6:2 arguments exchanged; 6:12 - dropped; 7:2 Delete dropped; 7:11 0 -> 1; 9:16 2 -> 3;
11:2 condition negated; 11:5 < -> <=; 11:5 < -> >=; 11:5 0.5 shifted; 11:9 0.5 -> 1.5;
12:11 boundary shifted; 12:11 x -> y; 12:26 separator dropped; 13:9 / -> *;
13:9 second factor dropped; 13:9 * -> /; 13:9 second factor dropped';
13:9 first factor dropped; 13:17 3 -> 4
"""


def test_each_mutant_makes_one_mistake_and_words_and_types_stay():
  found = mutants.mutants(SOURCE)
  assert [m.name for m in found] == re.split(r';\s', EXPECTED.strip())
  right = ast.unparse(ast.parse(SOURCE)).splitlines()
  texts = {m.source for m in found}
  assert len(texts) == len(found)
  for text in texts:
    differing = [i for i, (a, b) in enumerate(zip(right, text.splitlines())) if a != b]
    assert len(differing) == 1


def test_a_test_that_fails_without_a_mistake_kills_nothing(monkeypatch, tmp_path):
  file = 'tests/tff_adaptive/schedules_test.py'  # It cannot be collected.
  ends, texts = [('killed', 'a::b[1]'), ('survived', ''), ('killed', file), ('killed', file)], []

  class Child:
    def __init__(self, target, text, *unused):
      texts.append((text, target.tests))

    def poll(self):
      return (ends[len(texts) - 1][0], 1.0, ends[len(texts) - 1][1])

  monkeypatch.setattr(mutations, 'Child', Child)
  path, record = pathlib.Path('tff_adaptive/schedules.py'), mutations.Record(tmp_path / 'm.json')
  source = path.read_text(encoding='utf-8')
  one, two, *_ = mutants.mutants(source)
  tests = mutations.tests_of(path)
  assert tests[0] == file
  assert not mutations.attack(path, [one, two], record)
  assert texts == [
    *((one.source, tests), (source, ('a::b',))),
    *((two.source, tests), (source, (file,))),
  ]
  assert [entry['result'] for entry in record.results.values()] == ['killed']
