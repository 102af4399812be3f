"""The documentation: it builds without a warning or a network, names what exists, and is short."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

from tests.helpers import fresh
from tff_adaptive.environment import install

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [
  *(ROOT / name for name in ('README.md', 'AGENTS.md', 'BUILD_NOTES.md', 'CONTRIBUTING.md')),
  *sorted((ROOT / 'docs').glob('*.md')),
  *sorted((ROOT / 'docs').glob('[!r]*/*.md')),
]
MOST_OF_A_DESIGN = 80  # Lines of a page of docs/.
MOST_OF_A_GUIDE = 170
MOST_IN_A_SECTION = 45  # Without tables.
LOCKS = (install.LOCK, install.DEVELOPMENT_LOCK, install.GPU_LOCK, 'requirements-ray.lock')


@pytest.fixture(scope='module')
def site(tmp_path_factory):
  """The built site."""
  if sys.version_info < (3, 11):
    pytest.skip('the last mkdocstrings for CPython 3.10 fails with the locked pymdown-extensions')
  folder = tmp_path_factory.mktemp('site')
  result = subprocess.run(
    [*fresh.python(), '-m', 'mkdocs', 'build', '--strict', '--site-dir', str(folder)],
    cwd=ROOT,
    env={**os.environ, 'NO_MKDOCS_2_WARNING': '1'},
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stderr[-3000:]
  return folder


@pytest.mark.exhaustive
def test_its_menu_has_each_page_once_and_the_api_is_from_the_docstrings(site):
  algorithms = (site / 'api' / 'algorithms.html').read_text(encoding='utf-8')
  for name in ('.build_fed_yogi"', '.build_ada_best"', 'client_learning_rate'):
    assert name in algorithms
  corrections = (site / 'api' / 'corrections.html').read_text(encoding='utf-8')
  assert 'FedProx(mu: float = 0.02)' in re.sub('<[^>]*>', '', corrections)
  menu = (site / 'index.html').read_text(encoding='utf-8').partition('<main')[2]
  links = re.findall(r'<a href="([^"#]+\.html)" class="md-nav__link', menu)
  assert len(links) > 30
  assert sorted(links) == sorted(set(links))


@pytest.mark.exhaustive
def test_its_pages_fetch_nothing_from_elsewhere(site):
  fetched = re.compile(
    r'(?:<script[^>]*\ssrc|<link[^>]*stylesheet[^>]*\shref|<img[^>]*\ssrc)="(https?:[^"]*)'
  )
  for page in site.rglob('*.html'):
    assert fetched.findall(page.read_text(encoding='utf-8')) == [], page


@pytest.mark.exhaustive
def test_long_commands_wrap_on_its_pages(site):
  page = (site / 'guide' / 'own_data.html').read_text(encoding='utf-8')
  assert '<link rel="stylesheet" href="../site.css"' in page
  style = (site / 'site.css').read_text(encoding='utf-8')
  assert re.search(r'pre > code \{[^}]*white-space: pre-wrap;', style)
  assert re.search(r'<pre>(?:<span></span>)?<code>', page)  # What the rule is about.


def test_the_targets_of_make_that_pages_name_exist():
  makefile = (ROOT / 'Makefile').read_text(encoding='utf-8')
  targets = set(re.findall(r'^([a-z-]+):', makefile, re.MULTILINE))
  wrong = []
  for page in PAGES:
    text = page.read_text(encoding='utf-8')
    # In backquotes, or in an indented block of commands.
    named = re.findall(r'(?:`|^    )(?:[A-Z_]+=\S+ )?make ([a-z-]+)', text, re.MULTILINE)
    wrong += [f'{page}: make {name}' for name in named if name not in targets]
  assert wrong == []


def test_the_files_that_pages_name_exist():
  # Paths from the root in text, such as tff_adaptive/costs.py and tests/helpers/; links of pages.
  rooms = 'tff_adaptive|tasks|tests|scripts|research|oracle|docs|results|deploy'
  named = re.compile(rf'(?<![\w/.-])((?:{rooms})/[\w./-]*\w/?)')
  missing = []
  for page in PAGES:
    text = page.read_text(encoding='utf-8')
    paths = [p for p in named.findall(text) if not (ROOT / p).exists()]
    missing += [f'{page}: {p}' for p in paths if not list(ROOT.glob(p + '.*'))]
    links = re.findall(r'\]\((?!https?:)([^)#]+)', text)
    missing += [f'{page}: {link}' for link in links if not (page.parent / link).exists()]
  assert missing == []


def test_the_installation_checks_the_hashes_of_the_locks():
  """`tests/tff_adaptive/environment/install_test.py` looks at the options that pip gets."""
  script = (ROOT / 'scripts' / 'env' / 'setup_env.sh').read_text(encoding='utf-8')
  for options in ('', ' "--add=$addition"'):
    assert f'.venv/bin/python tff_adaptive/environment/install.py{options} || exit 1' in script
  for lock in LOCKS:
    text = (ROOT / lock).read_text(encoding='utf-8')
    assert '--index-url' not in text
    assert '/tmp/' not in text  # Where the lock was made.
    assert all('--hash=sha256:' in block for block in install.requirement_blocks(text))


def longest_section(text: str) -> int:
  """The most lines between two headings of a page; code and tables do not count."""
  text = re.sub(r'^```.*?^```|^\|.*?\n', '', text, flags=re.DOTALL | re.MULTILINE)
  return max(len(part.splitlines()) for part in re.split(r'^#+ .*$', text, flags=re.MULTILINE))


@pytest.mark.parametrize('folder, most', [('design', MOST_OF_A_DESIGN), ('guide', MOST_OF_A_GUIDE)])
def test_pages_are_short_and_have_headings(folder, most):
  pages = {p.stem: p.read_text('utf-8') for p in (ROOT / 'docs' / folder).glob('*.md')}
  long = {name for name, text in pages.items() if text.count('\n') > most}
  assert long <= {'task_list'}  # Which is made from the catalogue.
  assert all('\n## ' in t and longest_section(t) <= MOST_IN_A_SECTION for t in pages.values())


# Beginnings of sentences that readers had to read three times.
UNCLEAR = (
  'Of a step: so much more than the deadline',
  'What a node waits for that would else belong',
  "None for all of the client's examples (one step an epoch), which",
  'So many times an even share a part may cost',
  'Bytes of states a second: who folds fewer',
  'Slots: so many clients are in work at once',
  'Whether outputs are predicted numbers themselves',
  'It does not look whether the tensors are what',
  "A round's Python takes half a millisecond less",
  'What a round lasts that has neither a client',
)


def test_no_unclear_sentence_comes_again():
  folders = ('tff_adaptive', 'tasks', 'scripts', 'research', 'docs')
  sentences = {}
  for folder in folders:
    for path in (ROOT / folder).rglob('*.*'):
      if path.suffix in ('.py', '.pyi', '.md'):
        words = ' '.join(path.read_text('utf-8').replace('#', ' ').split())
        sentences[str(path)] = [sentence for sentence in UNCLEAR if sentence in words]
  assert len(sentences) > 300
  assert not any(sentences.values()), {path: lines for path, lines in sentences.items() if lines}
