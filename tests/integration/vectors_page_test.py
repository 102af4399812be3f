"""vectors/pytorch.md: what its program prints, in a Python that has PyTorch."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / 'vectors' / 'pytorch.md').read_text(encoding='utf-8')
BLOCKS = re.findall(r'```python\n(.*?)```', PAGE, re.DOTALL)
OF_PEERS = ROOT / '.peers' / 'torch' / 'bin' / 'python'


def test_the_function_to_copy_has_at_most_forty_lines():
  assert len(BLOCKS) == 2
  assert BLOCKS[0].count('\n') <= 40


def test_the_program_prints_what_the_page_says():
  python = sys.executable
  if importlib.util.find_spec('torch') is None:
    python = OF_PEERS
  if not pathlib.Path(python).exists():
    pytest.skip('needs PyTorch: sh scripts/env/setup_peers.sh fluke makes an environment with it')
  program = ''.join(BLOCKS)
  done = subprocess.run([python, '-c', program], capture_output=True, text=True, cwd=ROOT)
  assert done.returncode == 0, done.stderr
  printed = re.search(r'```\n\n```\n(.*?)```', PAGE, re.DOTALL)[1]
  assert done.stdout == printed
