"""The Python examples of README.md run as they stand."""

import pathlib
import re

import numpy as np

import tff_adaptive
from tff_adaptive import execution

README = pathlib.Path(__file__).parents[1] / 'README.md'


def test_the_examples_run(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)  # They write a run's folder.
  scope = {}
  with execution.graph_context():
    # The examples set the engine as the default; here it stays inside this block.
    blocks = re.findall(r'```python\n(.*?)```', README.read_text(), re.DOTALL)
    assert len(blocks) == 4
    for block in blocks:
      exec(block.replace('tff_adaptive.set_graph_context()', ''), scope)
  assert np.isfinite(float(scope['metrics']['client_work']['train']['loss']))
  task = scope['my_task'](scope['data']['x'], scope['data']['y'], {'a': [0, 1, 2], 'b': [3]})
  assert task.train.client_ids == ['a', 'b']
  assert task.train.num_examples('a') == 3
  assert scope['result'].is_complete
  assert (tmp_path / 'runs' / 'my_task' / 'summary.json').exists()


def test_every_public_name_is_there():
  for name in tff_adaptive.__all__:
    assert getattr(tff_adaptive, name) is not None
