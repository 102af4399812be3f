"""The notebooks of the documentation run from their first cell to the last."""

import copy
import json
from unittest import mock

import pytest

from docs.tools import notebook_pages, notebooks
from tests.helpers import fresh


@pytest.fixture(scope='module')
def kernel(tmp_path_factory):
  """One Python for all: it imports TensorFlow Federated once."""
  try:
    from IPython.core import interactiveshell  # noqa: F401
    from jupyter_client import manager
  except ImportError as error:
    pytest.skip(f'IPython cannot be imported ({error}): make env installs one that can')
  folder = tmp_path_factory.mktemp('notebooks') / 'start'
  folder.mkdir()

  def forked(*given, command=manager.KernelManager.format_kernel_cmd, **options):
    return [*fresh.python(), *command(*given, **options)[1:]]

  with mock.patch.object(manager.KernelManager, 'format_kernel_cmd', forked):
    kernel = notebooks.start_kernel(str(folder))
  yield kernel
  kernel.shutdown_kernel(now=True)


# One test, so that one process of a parallel run does it, with one kernel.
@pytest.mark.exhaustive
def test_each_runs_and_shows_what_it_is_about(kernel):
  outputs = {}
  for name in notebooks.names():
    notebook = notebooks.run(name, kernel)
    notebooks.tidy(notebook)
    outputs[name] = notebook_pages.markdown(json.loads(json.dumps(notebook)), f'{name}.ipynb')
  assert set(outputs) == {'asynchronous', 'digits', 'own_correction', 'sweep', 'tff_program'}
  assert 'accuracy of the Keras model: 0.9' in outputs['digits']
  assert 'buffered, 5 of 20: 90 % after' in outputs['asynchronous']
  assert '8 clients remember something' in outputs['tff_program']
  assert 'MeanGradient ends 2' in outputs['own_correction']
  assert '40 runs; validation_accuracy' in outputs['sweep']
  for name, pictures in {'asynchronous': 1, 'digits': 1, 'own_correction': 1, 'sweep': 2}.items():
    assert outputs[name].count('<img alt="figure" src="data:image/png') == pictures, name


def test_the_pages_of_the_documentation_are_what_was_shown():
  nbformat = pytest.importorskip('nbformat')
  for name in notebooks.names():
    notebook = nbformat.read(notebooks.FOLDER / f'{name}.ipynb', as_version=4)
    again = copy.deepcopy(notebook)
    notebooks.tidy(again)
    assert again == notebook, f'run docs/tools/notebooks.py {name}'
    outputs = [cell['outputs'] for cell in notebook.cells if cell.cell_type == 'code']
    assert any(outputs)
    assert '/tmp' not in json.dumps(outputs)


def test_a_page_has_texts_code_and_outputs():
  cells = [
    {'cell_type': 'markdown', 'source': ['# Title']},
    {
      'cell_type': 'code',
      'source': ['print(1 < 2)\n', 'figure'],
      'outputs': [
        {'output_type': 'stream', 'name': 'stdout', 'text': ['1 < 2\n']},
        {'output_type': 'execute_result', 'data': {'image/png': 'iVBO\nRw', 'text/plain': 'x'}},
        {'output_type': 'display_data', 'data': {'text/markdown': ['| a |']}},
      ],
    },
  ]
  assert notebook_pages.markdown({'cells': cells}, 'x.ipynb').split('\n\n') == [
    '# Title',
    '[The notebook](x.ipynb){ download="x.ipynb" }',
    '```python\nprint(1 < 2)\nfigure\n```',
    '<pre><code>1 &lt; 2</code></pre>',
    '<img alt="figure" src="data:image/png;base64,iVBORw">',
    '| a |\n',
  ]
