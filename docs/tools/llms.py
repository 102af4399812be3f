"""Writes docs/llms.txt, the list of the guide's pages for language models, from the pages.

.venv/bin/python docs/tools/llms.py

Groups and titles are those of the menu in mkdocs.yml; a page's description is its first sentence.
The form is that of https://llmstxt.org.
"""

import pathlib
import re
from collections.abc import Iterator
from typing import Any

DOCS = pathlib.Path(__file__).resolve().parents[1]
TARGET = DOCS / 'llms.txt'
_INDEX = 'index.md'
# Groups of the menu that are no pages of text, and pages that a hook makes.
_LEFT_OUT = ('Notebooks', 'API')


def menu() -> list[dict[str, Any]]:
  """Returns the menu of mkdocs.yml."""
  import yaml

  class Loader(yaml.SafeLoader):
    """Reads MkDocs' tag for environment variables as nothing."""

  Loader.add_constructor('!ENV', lambda loader, node: None)
  text = (DOCS.parent / 'mkdocs.yml').read_text(encoding='utf-8')
  return yaml.load(text, Loader)['nav']  # A SafeLoader.


def first_sentence(text: str) -> str:
  """Returns the first sentence below a page's title, without links and marks."""
  below = re.sub(r'^# .*\n', '', text).strip()
  paragraph = ' '.join(re.split(r'\n\s*\n', below)[0].split())
  plain = re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', paragraph)
  return re.split(r'(?<=[.!?])\s', plain)[0].rstrip(':')


def lines() -> Iterator[str]:
  """Yields the lines of llms.txt."""
  index = (DOCS / _INDEX).read_text(encoding='utf-8')
  yield '# tff-adaptive'
  yield ''
  yield f'> {first_sentence(index)}'
  yield ''
  yield 'The links are those of the site: guide/NAME.html is docs/guide/NAME.md in the repository.'
  yield 'AGENTS.md in the root of the repository says how to run commands and tests.'
  for group in menu():
    ((title, pages),) = group.items()
    if isinstance(pages, str) or title in _LEFT_OUT:
      continue
    yield ''
    yield f'## {title}'
    yield ''
    for page in pages:
      ((name, path),) = page.items()
      text = (DOCS / path).read_text(encoding='utf-8')
      yield f'- [{name}]({path.removesuffix(".md")}.html): {first_sentence(text)}'


def text() -> str:
  """Returns the contents of llms.txt."""
  return '\n'.join(lines()) + '\n'


if __name__ == '__main__':
  TARGET.write_text(text(), encoding='utf-8')
