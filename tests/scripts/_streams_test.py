"""Printing decides nothing: streams that are closed, full, without a reader or a letter."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import os, sys
from scripts import _streams
_streams.make_lenient()
print('out é ±')
sys.stdout.flush()
sys.stderr.write('err é\\n')
os.system('echo native >&2')
with open(sys.argv[1], 'w', encoding='utf-8') as file:
  file.write(f'{file.fileno()} {_streams.output_error() is not None}')
sys.exit(7)
"""


@pytest.fixture
def run(tmp_path):
  """Runs the program in a shell with redirections; returns what it wrote to a file, and `out`."""

  def begin(redirections, **variables):
    command = f'"$@" {redirections}'
    path = tmp_path / 'file'
    ended = subprocess.run(
      ['bash', '-c', command, 'bash', sys.executable, '-c', PROGRAM, str(path)],
      env={**os.environ, **variables},
      capture_output=True,
    )
    descriptor, is_lost = path.read_text().split()
    assert int(descriptor) > 2  # What native code writes to a stream must not get into a file.
    return ended.returncode, is_lost == 'True', ended.stdout, ended.stderr

  return begin


@pytest.mark.parametrize(
  ('redirections', 'is_lost'),
  [
    ('2>&-', False),
    ('2>/dev/full', False),
    ('>&-', False),
    ('>/dev/full', True),
    ('>&- 2>&- <&-', False),
    ('>/dev/full 2>/dev/full', True),
    ('> >(exec true) 2>&1; code=$?; sleep 0; exit $code', False),
  ],
)
def test_streams_that_cannot_be_used_end_nothing(run, redirections, is_lost):
  assert run(redirections)[:2] == (7, is_lost)


def test_letters_that_an_encoding_lacks_are_escaped(run):
  code, _, out, err = run('', PYTHONIOENCODING='ascii')
  assert (code, out) == (7, b'out \\xe9 \\xb1\n')
  assert err == b'err \\xe9\nnative\n'
  assert run('', PYTHONIOENCODING='utf-8')[2] == 'out é ±\n'.encode()
