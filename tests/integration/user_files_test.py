"""An algorithm, a task and a server optimizer from a user's files, as scripts/train.py has them."""

import json
import os
import textwrap

import pytest

from scripts import report, train as train_script
from tests.helpers import fakes
from tff_adaptive.runs import groups as groups_lib, run as run_lib

_FLAGS = (
  '--task=least_squares',
  '--rounds_per_evaluation=2',
  '--rounds_per_checkpoint=2',
  '--seed=4',
)

TASK = """
  import numpy as np

  import tff_adaptive_tasks as tasks


  def load(data_dir, seed, clients: int = 3, noise: float = 0.0):
    rng = np.random.default_rng(seed)
    base = tasks.load('synthetic', num_clients=clients, seed=seed)
    train = tasks.InMemoryClientData(
      {c: tuple(base.train.load(c).values()) for c in base.train.client_ids})
    return tasks.Task(
      name='mine', build_model=base.build_model, train=train, validation=base.validation,
      source=f'noise {noise + 0 * rng.random()}')
"""

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


def _write(folder, name, text):
  """Writes a file and returns its path."""
  path = folder / name
  path.write_text(textwrap.dedent(text))
  return str(path)


def _train(folder, *flags):
  """Runs scripts/train.py in this process, without figures; returns its exit code."""
  with fakes.no_figures():
    return train_script.main(['train.py', *_FLAGS, f'--output_dir={folder}', *flags])


def _config(folder):
  with open(os.path.join(folder, 'config.json'), encoding='utf-8') as file:
    return json.load(file)


def test_an_algorithm_of_a_users_file_trains_costs_resumes_as_it_was_and_is_reported(
  tmp_path, capsys
):
  path = _write(tmp_path, 'mine.py', ALGORITHM)
  many = ['--task_option=num_clients=60', '--clients_per_round=10']
  flags = [f'--algorithm={path}:Damped', '--algorithm_option=strength=0.1', *many]
  whole = str(tmp_path / 'whole')
  halves = str(tmp_path / 'halves')
  assert _train(whole, *flags, '--rounds=4') == 0
  assert 'Client states: 40 clients may take part' in capsys.readouterr().err
  assert _train(halves, *flags, '--rounds=2') == 0
  config = _config(whole)
  assert config['settings']['algorithm_option'] == ['strength=0.1']
  assert config['files']['algorithm']['path'] == path
  assert len(config['files']['algorithm']['sha256']) == 64
  # A run does not go on with another file; the same one elsewhere is the same algorithm.
  with open(path, 'a', encoding='utf-8') as file:
    file.write('# Another remark.\n')
  assert _train(halves, *flags, '--rounds=4') == 2
  error = capsys.readouterr().err.splitlines()[-1]
  assert f"the file of --algorithm, '{path}', has changed since" in error
  assert 'another folder' in error
  assert _config(halves)['settings']['rounds'] == 2
  (tmp_path / 'moved').mkdir()
  moved = _write(tmp_path, 'moved/mine.py', ALGORITHM)
  assert _train(halves, f'--algorithm={moved}:Damped', *flags[1:], '--rounds=4') == 0
  rows = fakes.rows(whole)
  assert rows == fakes.rows(halves)
  # 5 parameters down, and twice as many up with the upload, for each of 10 clients.
  assert float(rows[1]['megabytes_down']) == pytest.approx(10 * 5 * 4e-6)
  assert float(rows[1]['megabytes_up']) == pytest.approx(2 * 10 * 5 * 4e-6)
  # The strength matters, and it is the report's label.
  _write(tmp_path, 'mine.py', ALGORITHM)
  other = str(tmp_path / 'other')
  assert _train(other, flags[0], *many, '--rounds=4') == 0
  assert fakes.rows(other)[-1] != rows[-1]
  groups = groups_lib.group(run_lib.find_runs([whole, other]))
  assert list(groups) == ['strength=0.1', 'strength=0.5']
  assert list(groups_lib.group(run_lib.find_runs([whole]))) == ['damped']


@pytest.mark.exhaustive
def test_a_server_optimizer_of_a_users_file_takes_its_options(tmp_path):
  spec = f'{_write(tmp_path, "server.py", SERVER)}:build_heavy'
  flags = [f'--server_optimizer={spec}', '--algorithm=fed_avg', '--rounds=2']
  run_of_user = str(tmp_path / 'own')
  ours = str(tmp_path / 'ours')
  assert _train(run_of_user, *flags, '--server_optimizer_option=drag=0.5') == 0
  assert _config(run_of_user)['settings']['server_optimizer_option'] == ['drag=0.5']
  same = ['--algorithm=fed_avgm', '--momentum=0.5', '--rounds=2']
  assert _train(ours, *same, '--server_learning_rate=1', '--client_learning_rate=0.1') == 0
  for mine, ours_ in zip(fakes.rows(run_of_user), fakes.rows(ours)):
    assert mine['validation_loss'] == ours_['validation_loss']


def test_a_task_of_a_users_file_takes_its_options_and_is_reported_by_its_metric(tmp_path, capsys):
  judged = TASK.replace("name='mine'", "metric='loss', name='mine'")
  spec = f'{_write(tmp_path, "data.py", judged)}:load'
  folder = str(tmp_path / 'run')
  flags = [f'--task={spec}', '--algorithm=fed_avg', '--rounds=2']
  assert _train(folder, *flags, '--task_option=clients=4', '--task_option=noise=1') == 2
  assert 'clients in a round must be from 1 to 4' in capsys.readouterr().err
  flags.append('--clients_per_round=3')
  assert _train(folder, *flags, '--task_option=clients=4', '--task_option=noise=1') == 0
  config = _config(folder)
  assert config['data']['source'] == 'noise 1.0'
  assert config['data']['clients'] == 4
  assert config['files']['task']['path'].endswith('data.py')
  assert config['metric'] == 'loss'
  capsys.readouterr()
  other = str(tmp_path / 'other')
  assert _train(other, *flags, '--task_option=colour=1') == 2
  assert 'it has: clients, noise' in capsys.readouterr().err
  assert report.main(['report.py', folder]) == 0
  assert '| validation loss, last |' in capsys.readouterr().out


_OWN = """
import dataclasses, tensorflow as tf
from tff_adaptive import corrections, registry
@dataclasses.dataclass(frozen=True)
class A(corrections.Correction):
"""
_GRADIENT = f'{_OWN}  def gradient(self, client, theta, g): '
_SERVER = """
import tensorflow_federated as tff
def A(learning_rate):
  {}

class Wrong(tff.learning.optimizers.Optimizer):
  def initialize(self, specs):
    return {{}}
  def next(self, state, weights, gradients):
    return state

class Texts(Wrong):
  def initialize(self, specs):
    return {{'a': ['text']}}
"""
_OF_TASKS = [('def A(data_dir, seed):\n  return 1 / 0', 'line 2: ZeroDivision')]
_OF_ALGORITHMS = [
  (
    "A = type('M', (type,), {'__getattr__': lambda self, name: exit(name)})('A', (), {})",
    'is no algorithm: give a frozen dataclass',
  ),
  (f'{_GRADIENT}return missing', 'failed in line 6: NameError: name '),
  (f'{_GRADIENT}return None', 'A.gradient must return a gradient of'),
  (f'{_OWN}  def client_update(self, c, g_i, k): return {{}}', 'return the pair'),
  (
    f'{_OWN}  def __post_init__(self): raise BaseException(3)',
    'failed in line 6: BaseException: 3',
  ),
  (
    f"{_OWN}  pass\nA = registry.Algorithm('m', 'M', 'd', correction='no.such:A')",
    'ModuleNotFoundError: No',
  ),
]
_OF_SERVERS = [
  ('return None', 'must be of the class Optimizer, found None'),
  ('raise RuntimeError("boo")', 'failed in line 4: RuntimeError: boo'),
  ('return Texts()', 'cannot be used: TypeError: Texts has strings in its state'),
  ('return Wrong()', 'cannot be used: TypeError: Wrong.next must return the new state and the'),
]


@pytest.mark.parametrize(
  'kind, text, words',
  [
    *(('task', *case) for case in _OF_TASKS),
    *(('algorithm', *case) for case in _OF_ALGORITHMS),
    *(('server_optimizer', _SERVER.format(body), words) for body, words in _OF_SERVERS),
  ],
)
def test_a_file_that_fails_is_named_in_one_line_and_nothing_is_written(
  tmp_path, capsys, kind, text, words
):
  path = _write(tmp_path, 'a.py', text)
  if kind == 'algorithm':
    algorithm = []
  else:
    algorithm = ['--algorithm=fed_avg']
  assert _train(tmp_path / 'run', '--rounds=1', *algorithm, f'--{kind}={path}:A') == 2
  *others, error = capsys.readouterr().err.splitlines()
  # The first test of a process loads TensorFlow.
  expected = ('least_squares: ', 'Loading TensorFlow ')
  assert [line for line in others if not line.startswith(expected)] == []
  assert error.startswith('train.py: ')
  assert path in error
  assert words in error
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('error', 'said'),
  [
    ("RuntimeError('gone')", '{} failed in line 25: RuntimeError: gone'),
    ("errors.DataError('a row is gone')", 'a row is gone'),  # It says itself where.
  ],
)
@pytest.mark.sample(1)
def test_clients_that_fail_in_a_later_round_end_the_run_in_one_line(tmp_path, capsys, error, said):
  text = f"""{TASK}

  from tff_adaptive_tasks import errors

  class Late(tasks.InMemoryClientData):
    loads = 0

    def load(self, client_id):
      Late.loads += 1
      if Late.loads > 3 + 1 + 2 * 3:  # All for the baseline, one to see that it fits, two rounds.
        raise {error}
      return super().load(client_id)


  def late(data_dir, seed):
    import dataclasses

    task = load(data_dir, seed)
    arrays = {{c: tuple(task.train.load(c).values()) for c in task.train.client_ids}}
    return dataclasses.replace(task, train=Late(arrays))
  """
  spec = f'--task={_write(tmp_path, "data.py", text)}:late'
  folder = tmp_path / 'run'
  flags = ['--rounds=9', '--algorithm=fed_avg', '--clients_per_round=3', spec]
  assert _train(folder, *flags) == 1
  assert capsys.readouterr().err.splitlines()[-1] == f'train.py: {said.format(spec)}'
  assert len(fakes.rows(folder)) == 3  # Rounds 0 to 2 are kept.


TOKENS = """
  import collections

  import numpy as np
  import tensorflow as tf

  import tff_adaptive_tasks as tasks
  from tff_adaptive import models


  def build_model(seed):
    def forward(weights, x, training, seed):
      return tf.reduce_mean(tf.gather(weights[0], x), axis=1)

    return models.Model(
      initial_weights=[np.zeros([50, 2], np.float32)], forward=forward,
      example_loss=models.sparse_cross_entropy, x_spec=tf.TensorSpec([None, 4], tf.int32),
      y_spec=tf.TensorSpec([None], tf.int32), metrics={'accuracy': models.accuracy})


  def load(data_dir, seed):
    x = np.arange(8, dtype=np.int32).reshape(2, 4)
    y = np.array([0, 1], np.int32)
    unknown = x.copy()
    unknown[0, 3] = 50
    return tasks.Task(
      name='tokens', build_model=build_model, source='made here',
      train=tasks.InMemoryClientData({'a': (x, y), 'b': (x, y)}),
      validation=collections.OrderedDict(x=unknown, y=y))
"""


def test_a_token_out_of_range_in_validation_data_is_named_in_the_last_line(tmp_path, capsys):
  """TensorFlow puts a list of files before these words, and the graph's node after them."""
  spec = f'--task={_write(tmp_path, "data.py", TOKENS)}:load'
  flags = ['--rounds=1', '--algorithm=fed_avg', '--clients_per_round=2', spec]
  assert _train(tmp_path / 'run', *flags) == 1
  last = capsys.readouterr().err.splitlines()[-1]
  cause = 'InvalidArgumentError: indices[0,3] = 50 is not in [0, 50)'
  assert last == f'train.py: {spec} cannot be used: {cause}'
