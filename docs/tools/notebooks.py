"""Runs the notebooks of the documentation and stores their outputs.

.venv/bin/python docs/tools/notebooks.py [NOTEBOOK ...]

Each notebook runs from its first cell in a temporary folder. It is written again with its outputs:
texts, tables and pictures, but no messages to standard error.
"""

import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
FOLDER = ROOT / 'docs' / 'notebooks'
# Seconds after which a cell is given up: a machine may be slow.
_LONGEST = 240


def names() -> list[str]:
  """Returns the names of the notebooks without extension."""
  return sorted(path.stem for path in FOLDER.glob('*.ipynb'))


def start_kernel(folder: str) -> Any:
  """Starts a Python process in a folder, in which notebooks run one after another."""
  from jupyter_client import manager

  path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get('PYTHONPATH')]))
  environment = {**os.environ, 'PYTHONPATH': path, 'TF_CPP_MIN_LOG_LEVEL': '3'}
  # By sockets in the folder: a TCP port that is chosen may be taken before the kernel has it.
  kernel = manager.KernelManager(
    kernel_name='python3', transport='ipc', ip=os.path.join(folder, 'kernel')
  )
  kernel.start_kernel(cwd=folder, env=environment)
  return kernel


def run(name: str, kernel: Any) -> Any:
  """Runs a notebook, given by name, in its own namespace and folder, and returns it."""
  import nbclient
  import nbformat

  notebook = nbformat.read(FOLDER / f'{name}.ipynb', as_version=4)
  setup = nbformat.v4.new_code_cell(
    '%reset -f\n'
    'import os, shutil, tempfile\n'
    'os.chdir(tempfile.mkdtemp(dir=os.path.dirname(os.getcwd())))\n'
    f'for file in {[str(path) for path in FOLDER.glob("*.zip")]!r}:\n'
    '  shutil.copy(file, ".")\n'
    'del os, shutil, tempfile\n'
    '%matplotlib inline'
  )
  notebook.cells.insert(0, setup)
  nbclient.NotebookClient(notebook, km=kernel, timeout=_LONGEST, startup_timeout=600).execute()
  del notebook.cells[0]
  return notebook


def tidy(notebook: Any) -> None:
  """Removes outputs that readers do not need or that differ from run to run."""
  for number, cell in enumerate((c for c in notebook.cells if c.cell_type == 'code'), 1):
    cell.execution_count = number
    cell.metadata = {}
    cell.outputs = [out for out in cell.outputs if out.get('name') != 'stderr']
    for out in cell.outputs:
      if 'execution_count' in out:
        out['execution_count'] = number
  notebook.metadata['language_info'] = {'name': 'python'}


def main(arguments: Sequence[str]) -> int:
  """Runs the named notebooks, or all, and writes them with their outputs."""
  import nbformat

  with tempfile.TemporaryDirectory() as folder:
    inner = os.path.join(folder, 'start')
    os.mkdir(inner)
    kernel = start_kernel(inner)
    try:
      for name in list(arguments) or names():
        notebook = run(name, kernel)
        tidy(notebook)
        nbformat.write(notebook, FOLDER / f'{name}.ipynb')
        sys.stdout.write(f'{name}\n')
    finally:
      kernel.shutdown_kernel(now=True)
  return 0


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
