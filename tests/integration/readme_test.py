"""The Python examples of README.md and of the guide run; the README states facts."""

import pathlib
import re

import numpy as np
import pytest
import yaml

import tff_adaptive
from scripts.env import tables
from tff_adaptive import engine, registry

ROOT = pathlib.Path(__file__).parents[2]
README = ROOT / 'README.md'
GUIDE = ROOT / 'docs' / 'guide'


def run_blocks(page: pathlib.Path, expected: int) -> dict:
  """Runs a page's Python blocks one after another; returns their variables.

  Args:
    page: A Markdown file.
    expected: How many blocks it has, so that none is lost unseen.
  """
  blocks = re.findall(r'```python\n(.*?)```', page.read_text(encoding='utf-8'), re.DOTALL)
  assert len(blocks) == expected
  scope = {'__name__': f'examples_of_{page.stem}'}
  with engine.graph_context():
    # The examples set the engine as the default; here it stays inside this block.
    for block in blocks:
      exec(block.replace('tff_adaptive.set_graph_context()', ''), scope)
  return scope


def train_loss(metrics) -> float:
  return float(metrics['client_work']['train']['loss'])


@pytest.mark.parametrize(
  'page, blocks', [(README, 2), (GUIDE / 'tff_program.md', 3)], ids=['README', 'tff_program']
)
def test_a_tff_program(page, blocks, capsys):
  scope = run_blocks(page, blocks)
  if page == README:  # Its first block ends with what it has learned.
    shown = re.search(r'training accuracy (0\.\d\d)\n', capsys.readouterr().out)
    assert float(shown[1]) > 0.8
  assert np.isfinite(train_loss(scope['metrics']))
  assert len(scope['client_states']) == len(scope['clients'])


def test_a_task_of_ones_own(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)  # It writes a run's folder.
  scope = run_blocks(GUIDE / 'tasks.md', 2)
  task = scope['my_task'](scope['data']['x'], scope['data']['y'], {'a': [0, 1, 2], 'b': [3]})
  assert task.train.client_ids == ['a', 'b']
  assert task.train.num_examples('a') == 3
  assert scope['result'].is_complete
  assert (tmp_path / 'runs' / 'my_task' / 'summary.json').exists()


def test_an_algorithm_of_ones_own():
  scope = run_blocks(GUIDE / 'own_algorithms.md', 2)
  assert np.isfinite(train_loss(scope['metrics']))
  h = scope['client_states'][0]['h'][0]
  assert np.any(np.asarray(h) != 0)  # Half of the model it ended with.


def test_a_population():
  scope = run_blocks(GUIDE / 'population.md', 1)
  assert scope['config'].population.limits_steps
  assert scope['config'].population.availability.unit == 'hours'


def test_no_other_page_has_examples_that_nothing_runs():
  run = {'tff_program', 'tasks', 'own_algorithms', 'population'}
  run |= {'own_data', 'export'}  # By tests/scripts/export_test.py.
  pages = {page.stem for page in GUIDE.glob('*.md') if '```python' in page.read_text('utf-8')}
  assert pages == run


def test_the_table_of_algorithms_is_the_registrys():
  text = README.read_text(encoding='utf-8')
  assert tables.updated(text) == text, 'run scripts/env/tables.py'
  for name in registry.ALGORITHMS:
    assert f'| `{name}` |' in text


def test_every_public_name_is_there():
  for name in tff_adaptive.__all__:
    assert getattr(tff_adaptive, name) is not None


def test_the_version_stands_in_one_place():
  citation = yaml.safe_load((ROOT / 'CITATION.cff').read_text(encoding='utf-8'))
  assert citation['version'] == tff_adaptive.__version__
  assert citation['license'] == 'Apache-2.0'
  assert f'## {tff_adaptive.__version__}\n' in (ROOT / 'CHANGELOG.md').read_text(encoding='utf-8')
  assert tff_adaptive.__version__ not in (ROOT / 'setup.py').read_text(encoding='utf-8')
