"""The tables of the documentation are what the registry and the catalogue say."""

import re

from docs.tools import tables
from tff_adaptive import registry
from tff_adaptive_tasks import catalog


def test_the_table_of_algorithms_is_the_registrys():
  text = tables.ALGORITHMS.read_text(encoding='utf-8')
  assert tables.updated(text) == text, 'run docs/tools/tables.py'
  for name in registry.ALGORITHMS:
    assert f'| `{name}` |' in text


def test_the_list_of_tasks_is_the_catalogues():
  text = tables.TASKS.read_text(encoding='utf-8')
  assert tables.updated(text) == text, 'run docs/tools/tables.py'
  assert re.findall(r'^### (.*)$', text, re.M) == catalog.names()
  arguments, described = tables._loader('stackoverflow', 'load_tags')
  assert arguments['num_tags'] == 500
  assert 'vocabulary' in described['num_words']  # By reference to another loader.
