"""--check_ray says what a cluster lacks for a run, before the run."""

import importlib.util
import os
import subprocess
import sys

import pytest

from scripts import train
from scripts.cli import cluster_check

_HERE = cluster_check.Answer('this process', 'ab')
_OTHER_BITS = 'b: other last bits than'


@pytest.mark.parametrize(
  'answers, has_gpus, words, code',
  [
    ([('a', 'ab')], False, '1 node is ready', 0),
    ([('a', 'ab'), ('b', 'ab')], False, '2 nodes are ready', 0),
    ([('a', 'ab'), ('b', 'cd')], False, f'{_OTHER_BITS} this process', 1),
    ([('a', 'ef'), ('b', 'ef')], True, '2 nodes are ready', 0),
    ([('a', 'ef'), ('b', 'ab')], True, f'{_OTHER_BITS} a', 1),
    ([('a', None, 0.0, 'no file'), ('b', 'ab')], False, 'a: no file', 1),
    ([], False, 'No node of the cluster has room', 1),
  ],
)
def test_the_verdict_names_nodes_and_what_they_lack(answers, has_gpus, words, code):
  answers = [cluster_check.Answer(*answer) for answer in answers]
  text, exit_code = cluster_check.verdict(answers, _HERE, has_gpus=has_gpus)
  assert words in text
  assert exit_code == code


def test_a_problem_here_counts_too():
  here = cluster_check.Answer('this process', None, problem='no memory')
  text, code = cluster_check.verdict([cluster_check.Answer('a', 'ab')], here, has_gpus=False)
  assert text == 'The cluster is not ready.\nthis process: no memory'
  assert code == 1


_SCRIPT = os.path.join(os.path.dirname(train.__file__), 'train.py')
# Clients that cannot be opened in a worker, as without the files there.
_TASK = """
import os, sys
import tff_adaptive_tasks as tasks

class Clients(tasks.InMemoryClientData):
  def __setstate__(self, state):
    if not sys.argv[0].endswith('train.py'):
      raise FileNotFoundError('/data/clients is not here')
    self.__dict__.update(state)

def load(data_dir, seed):
  task = tasks.load('synthetic', num_clients=12, seed=seed)
  task.train.__class__ = Clients
  return task
"""


def _check(folder, task):
  """Runs the command in a process of its own: Ray must not be imported before the token is set."""
  flags = ['--ray=local', '--ray_workers=1', '--check_ray', '--algorithm=scaffold', '--subrounds=2']
  command = [sys.executable, _SCRIPT, f'--task={task}', *flags]
  return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.mark.exhaustive
@pytest.mark.xdist_group('ray')  # One cluster at a time.
@pytest.mark.skipif(importlib.util.find_spec('ray') is None, reason='Ray is not installed')
def test_a_local_cluster_is_ready_or_lacks_the_data(tmp_path):
  done = _check(tmp_path, 'digits')
  assert done.returncode == 0, done.stderr + done.stdout
  assert done.stdout == '1 node is ready: the same versions, the data, and the same bits.\n'
  assert ': a round in ' in done.stderr
  (tmp_path / 'task.py').write_text(_TASK)
  done = _check(tmp_path, 'task.py:load')
  assert done.returncode == 1, done.stderr
  assert done.stdout.startswith('The cluster is not ready.\n')
  assert 'cannot open client data: /data/clients is not here' in done.stdout
  assert os.listdir(tmp_path) == ['task.py']
