"""An algorithm, a task and a server optimizer from a user's files, as scripts/train.py has them."""

import json
import os

import pytest

from scripts import report
from tests.helpers import user_files
from tff_adaptive.runs import groups as groups_lib, run as run_lib

ALGORITHM = """
  import dataclasses

  import tensorflow as tf

  from tff_adaptive.corrections import base


  @dataclasses.dataclass(frozen=True)
  class Damped(base.Correction):
    '''Pulls a client towards the mean of its own past rounds.'''

    strength: float = dataclasses.field(default=0.5, metadata={'help': 'Weight of the pull'})
    num_clients: int = 1
    name = 'damped'

    def client_state(self, weights):
      return {'h': base.zeros(weights)}

    def gradient(self, client, theta, g):
      assert self.num_clients == 60, self.num_clients
      return base.combine(lambda g, h: g - self.strength * h, g, client.client_state['h'])

    def client_update(self, client, g_i, steps):
      return {'h': base.combine(lambda h, d: 0.5 * (h + d), client.client_state['h'], g_i)}, g_i
"""

SERVER = """
  import tensorflow_federated as tff


  def build_heavy(learning_rate, drag: float = 0.25):
    return tff.learning.optimizers.build_sgdm(learning_rate, momentum=1 - drag)
"""


def _config(folder):
  with open(os.path.join(folder, 'config.json'), encoding='utf-8') as file:
    return json.load(file)


def test_an_algorithm_of_a_users_file_trains_costs_resumes_as_it_was_and_is_reported(
  tmp_path, capsys
):
  path = user_files.write(tmp_path, 'mine.py', ALGORITHM)
  flags = [f'--algorithm={path}:Damped', '--algorithm_option=strength=0.1']
  whole, halves = str(tmp_path / 'whole'), str(tmp_path / 'halves')
  assert user_files.train(whole, *flags, '--rounds=4') == 0
  assert user_files.train(halves, *flags, '--rounds=2') == 0
  assert 'Client states: 40 clients may take part' in capsys.readouterr().err
  assert user_files.train(halves, *flags, '--rounds=4') == 0
  rows = user_files.rows(whole)
  assert rows == user_files.rows(halves)
  # 79,510 parameters down, and twice as many up with the upload, for each of 10 clients.
  assert float(rows[1]['megabytes_down']) == pytest.approx(10 * 79_510 * 4e-6)
  assert float(rows[1]['megabytes_up']) == pytest.approx(2 * 10 * 79_510 * 4e-6)
  config = _config(whole)
  assert config['settings']['algorithm_option'] == ['strength=0.1']
  assert config['files']['algorithm']['path'] == path
  assert len(config['files']['algorithm']['sha256']) == 64
  # A run does not go on with another file; the same one elsewhere is the same algorithm.
  with open(path, 'a', encoding='utf-8') as file:
    file.write('# Another remark.\n')
  assert user_files.train(halves, *flags, '--rounds=5') == 2
  error = capsys.readouterr().err.splitlines()[-1]
  assert f"the file of --algorithm, '{path}', was changed since" in error
  assert 'another --output_dir' in error
  assert _config(halves)['settings']['rounds'] == 4
  (tmp_path / 'moved').mkdir()
  moved = user_files.write(tmp_path, 'moved/mine.py', ALGORITHM)
  assert user_files.train(halves, f'--algorithm={moved}:Damped', flags[1], '--rounds=5') == 0
  # The strength matters, and it is the report's label.
  user_files.write(tmp_path, 'mine.py', ALGORITHM)
  other = str(tmp_path / 'other')
  assert user_files.train(other, flags[0], '--rounds=4') == 0
  assert user_files.rows(other)[-1] != rows[-1]
  groups = groups_lib.group(run_lib.find_runs([whole, other]))
  assert list(groups) == ['strength=0.1', 'strength=0.5']
  assert list(groups_lib.group(run_lib.find_runs([whole]))) == ['damped']


def test_a_server_optimizer_of_a_users_file_takes_its_options(tmp_path):
  spec = f'{user_files.write(tmp_path, "server.py", SERVER)}:build_heavy'
  flags = [f'--server_optimizer={spec}', '--algorithm=fed_avg', '--rounds=2']
  own, ours = str(tmp_path / 'own'), str(tmp_path / 'ours')
  assert user_files.train(own, *flags, '--server_optimizer_option=drag=0.5') == 0
  assert _config(own)['settings']['server_optimizer_option'] == ['drag=0.5']
  same = ['--algorithm=fed_avgm', '--momentum=0.5', '--rounds=2']
  assert (
    user_files.train(ours, *same, '--server_learning_rate=1', '--client_learning_rate=0.1') == 0
  )
  for mine, ours_ in zip(user_files.rows(own), user_files.rows(ours)):
    assert mine['validation_loss'] == ours_['validation_loss']


def test_a_task_of_a_users_file_takes_its_options_and_is_reported_by_its_metric(tmp_path, capsys):
  judged = user_files.TASK.replace("name='mine'", "metric='loss', name='mine'")
  spec = f'{user_files.write(tmp_path, "data.py", judged)}:load'
  folder = str(tmp_path / 'run')
  flags = [f'--task={spec}', '--algorithm=fed_avg', '--rounds=2']
  assert user_files.train(folder, *flags, '--task_option=clients=4', '--task_option=noise=1') == 2
  assert '--clients_per_round must be from 1 to 4' in capsys.readouterr().err
  flags.append('--clients_per_round=3')
  assert user_files.train(folder, *flags, '--task_option=clients=4', '--task_option=noise=1') == 0
  config = _config(folder)
  assert config['data']['source'] == 'noise 1.0'
  assert config['data']['clients'] == 4
  assert config['files']['task']['path'].endswith('data.py')
  assert config['metric'] == 'loss'
  capsys.readouterr()
  other = str(tmp_path / 'other')
  assert user_files.train(other, *flags, '--task_option=colour=1') == 2
  assert 'it has: clients, noise' in capsys.readouterr().err
  assert report.main(['report.py', folder]) == 0
  assert '| validation loss, last |' in capsys.readouterr().out
