"""docs/llms.txt is what the menu and the pages say."""

import re

from docs.tools import llms


def test_the_file_is_made_from_the_pages():
  text = llms.TARGET.read_text(encoding='utf-8')
  assert text == llms.text(), 'run docs/tools/llms.py'
  links = re.findall(r'\]\((.*)\.html\): \S', text)
  # Every page of the guide is in it, once.
  guide = {f'guide/{page.stem}' for page in (llms.DOCS / 'guide').glob('*.md')}
  assert guide <= set(links)
  assert len(links) == len(set(links))


def test_the_first_sentence_of_a_page():
  text = '# Title\n\nThis page\n[links](a.md#b) to 0.2.0 and more: yes. Not this.\n\nNor this.\n'
  assert llms.first_sentence(text) == 'This page links to 0.2.0 and more: yes.'
  assert llms.first_sentence('# Title\n\nWhat follows:\n\n- a\n') == 'What follows'
