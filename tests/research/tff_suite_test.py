"""research/tff_suite.py, on a made-up tree that is a little like TFF's."""

import json
import subprocess

import pytest

from tests.helpers import fresh

PROGRAM = """
import os
import unittest

import tensorflow as tf
import tensorflow_federated as tff
from absl.testing import absltest

def run(value):
  tff.tensorflow.computation(lambda: tf.constant(value))()

class Some(unittest.TestCase):
  def test_same(self):
    run(3)

  def test_random(self):
    run(int.from_bytes(os.urandom(3)))

  def test_fails_natively(self):
    assert is_engine()

  def test_fails_in_the_engine(self):
    assert not is_engine()

  def test_gives_another_number(self):
    run(int(is_engine()))

def is_engine():
  return 'Graph' in type(tff.framework.get_context_stack().current).__name__

if __name__ == '__main__':
  tff.backends.native.set_sync_local_cpp_execution_context()
  absltest.main()
"""
CELLS = [
  'import tensorflow_federated as tff\n!pip install x\n%load_ext y',
  '@tff.federated_computation\ndef comp():\n  return tff.federated_value(1, tff.SERVER)\ncomp()',
  'raise ValueError',
  'not_run',
]


@pytest.mark.exhaustive
def test_programs_and_notebooks_run_in_both_contexts_and_results_are_kept(tmp_path):
  source = tmp_path / 'source'
  source.mkdir()
  (source / 'some_test.py').write_text(PROGRAM)
  (source / 'plain_test.py').write_text('no_computations')
  cells = [dict(cell_type='code', source=cell.splitlines(True)) for cell in CELLS]
  (source / 'note.ipynb').write_text(json.dumps(dict(cells=cells)))
  command = ['-m', 'research.tff_suite', f'--source={source}', f'--work={tmp_path}/work']
  said = [
    subprocess.run([*fresh.python(), *command], capture_output=True, text=True, check=False)
    for _ in range(2)
  ]
  assert [process.returncode for process in said] == [1, 1], said[0].stderr
  first, again = (process.stdout for process in said)
  differing = [line.split('::')[1] for line in first.splitlines() if line.startswith('UNEXPECTED')]
  assert differing == [
    'Some.test_fails_in_the_engine: AssertionError',
    'Some.test_gives_another_number: its computations gave other results',
  ]
  assert '1/2 note.ipynb native: 1 failed, 2 passed, 0 skipped; exit code 0' in first
  assert 'note.ipynb engine: 1 failed, 2 passed' in first
  assert '1 UNEXPECTED, failed in the engine alone\n1 UNEXPECTED, results differ\n' in first
  assert [line.partition(';')[0] for line in again.splitlines()] == [
    line.partition(';')[0] for line in first.splitlines()
  ]
  assert again.count('; kept') == 5
