"""The documents: pages are short and have headings and drawings."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DESIGNS = (
  'engine',
  'cluster',
  'checkpoints',
  'corrections',
  'local_training',
  'costs',
  'population',
)
MOST_OF_A_DESIGN, MOST_OF_A_GUIDE = 80, 150  # Lines of a page of docs/.
MOST_IN_A_SECTION = 45  # Without tables.


def lines(page: pathlib.Path) -> list[str]:
  """A page's lines without those of tables."""
  return [x for x in page.read_text(encoding='utf-8').splitlines() if not x.startswith('|')]


def longest_section(page: pathlib.Path) -> int:
  """The most lines between two headings of a page; code does not count."""
  text = re.sub(r'^```.*?^```', '', '\n'.join(lines(page)), flags=re.DOTALL | re.MULTILINE)
  sections = re.split(r'^#+ .*$', text, flags=re.MULTILINE)
  assert len(sections) > 1, f'{page} has no heading'
  return max(len(section.splitlines()) for section in sections)


@pytest.mark.parametrize('name', DESIGNS)
def test_a_page_of_the_design_has_a_drawing(name):
  found = lines(ROOT / 'docs' / 'design' / f'{name}.md')
  assert any(re.match(r'    .*(--+>|[|\\])', line) for line in found)


@pytest.mark.parametrize('folder, most', [('design', MOST_OF_A_DESIGN), ('guide', MOST_OF_A_GUIDE)])
def test_pages_are_short(folder, most):
  pages = {p.stem: p.read_text('utf-8').count('\n') for p in (ROOT / 'docs' / folder).glob('*.md')}
  long = {name: n for name, n in pages.items() if n > most}
  assert long.keys() <= {'task_list'}  # Which is made from the catalogue.


def test_pages_have_headings():
  pages = [p for f in ('design', 'guide') for p in (ROOT / 'docs' / f).glob('*.md')]
  assert len(pages) > 30
  long = {str(page): longest_section(page) for page in pages}
  assert {page: n for page, n in long.items() if n > MOST_IN_A_SECTION} == {}
