"""research/benchmarks/peer_environments.py: peers run where they are, are skipped elsewhere."""

import json
import pathlib
import subprocess
import sys

import pytest

from research.benchmarks import peer_environments, workloads

PEERS = peer_environments.PEERS


@pytest.mark.parametrize('name', PEERS)
def test_its_script_exists_and_its_environment_is_one_that_the_set_up_makes(name, tmp_path):
  python, *arguments, workload = PEERS[name].command('W4', tmp_path)
  assert pathlib.Path(arguments[-1]).is_file()
  assert workload == 'W4'
  set_up = pathlib.Path(peer_environments.__file__).parents[2] / 'scripts/env/setup_peers.sh'
  assert f' {PEERS[name].environment}) make_one ' in set_up.read_text(encoding='utf-8')
  assert python == str(tmp_path / PEERS[name].environment / 'bin' / 'python')


def test_an_installed_one_has_a_version(tmp_path):
  python = PEERS['pfl'].python(tmp_path)
  python.parent.mkdir(parents=True)
  python.symlink_to(sys.executable)
  assert PEERS['pfl'].missing('W4', tmp_path) is None
  assert PEERS['pfl'].version(tmp_path) == 'unknown'


def test_requests_are_answered_without_this_projects_packages(tmp_path):
  """`serving` loads NumPy and the workloads only: any Python with NumPy can be a peer's."""
  serving = pathlib.Path(peer_environments.__file__).parents[1] / 'peers'
  program = (
    f'import sys; sys.path.insert(0, {str(serving)!r})\n'
    'import serving\n'
    'for request in serving.requests():\n'
    '  serving.answer(seconds=1.0)\n'
    "heavy = {'tensorflow', 'tff_adaptive', 'tff_adaptive_tasks'} & {*sys.modules}\n"
    'print(serving.workload().cohort, heavy)\n'
  )
  done = subprocess.run(
    [sys.executable, '-c', program, 'W1s'],
    input='round\nmemory\nround\n',
    capture_output=True,
    text=True,
    cwd=tmp_path,
    check=True,
  )
  first, memory, second, last = done.stdout.splitlines()
  assert {*json.loads(first)} == {*json.loads(second)} == {'seconds'}
  assert json.loads(memory)['peak_mb'] > 1
  assert last == f'{workloads.WORKLOADS["W1s"].cohort} set()'
