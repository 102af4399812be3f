"""An algorithm, a task and a server optimizer from a user's files, as scripts/train.py has them."""

import csv
import json
import os
import textwrap

import pytest

from scripts import train
from tff_adaptive.reports import runs

ALGORITHM = """
  import dataclasses

  import tensorflow as tf

  from tff_adaptive import registry
  from tff_adaptive.corrections import base


  @dataclasses.dataclass(frozen=True)
  class Damped(base.Correction):
    '''Pulls a client towards the mean of its own past rounds.'''

    strength: float = dataclasses.field(default=0.5, metadata={'help': 'Weight of the pull'})
    num_clients: int = 1
    name = 'damped'
    is_stateful = True
    counts = registry.Counts(down=3, up=2, step=(1, 1))

    def client_state(self, weights):
      return {'h': base.zeros(weights)}

    def gradient(self, client, theta, g):
      assert self.num_clients == 60, self.num_clients
      return base.combine(lambda g, h: g - self.strength * h, g, client.client_state['h'])

    def client_update(self, client, g_i, steps):
      return {'h': base.combine(lambda h, d: 0.5 * (h + d), client.client_state['h'], g_i)}, ()
"""

TASK = """
  import numpy as np

  import tasks


  def load(data_dir, seed, clients: int = 3, noise: float = 0.0):
    rng = np.random.default_rng(seed)
    base = tasks.load('digits', num_clients=clients, seed=seed)
    train = tasks.InMemoryClientData(
      {c: tuple(base.train.load(c).values()) for c in base.train.client_ids})
    return tasks.Task(
      name='mine', build_model=base.build_model, train=train, validation=base.validation,
      source=f'noise {noise + 0 * rng.random()}')
"""

SERVER = """
  import tensorflow_federated as tff


  def build_heavy(learning_rate, drag: float = 0.25):
    return tff.learning.optimizers.build_sgdm(learning_rate, momentum=1 - drag)
"""

_FLAGS = ('--task=digits', '--rounds_per_evaluation=2', '--rounds_per_checkpoint=2', '--seed=4')


@pytest.fixture
def write(tmp_path):
  """Writes a file: name, text -> path."""

  def write(name, text):
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return str(path)

  return write


def _train(folder, *flags):
  return train.main(['train.py', *_FLAGS, f'--output_dir={folder}', *flags])


def _rows(folder):
  with open(os.path.join(folder, 'metrics.csv'), newline='', encoding='utf-8') as file:
    return [
      {k: v for k, v in row.items() if not k.startswith('seconds_')} for row in csv.DictReader(file)
    ]


def _config(folder):
  with open(os.path.join(folder, 'config.json'), encoding='utf-8') as file:
    return json.load(file)


def test_an_algorithm_of_a_users_file_trains_resumes_costs_and_is_reported(write, tmp_path, capsys):
  path = write('mine.py', ALGORITHM)
  flags = [f'--algorithm={path}:Damped', '--algorithm_option=strength=0.1']
  whole, halves = str(tmp_path / 'whole'), str(tmp_path / 'halves')
  assert _train(whole, *flags, '--rounds=4') == 0
  assert _train(halves, *flags, '--rounds=2') == 0
  assert 'Client states: 40 clients may take part' in capsys.readouterr().err
  assert _train(halves, *flags, '--rounds=4') == 0
  rows = _rows(whole)
  assert rows == _rows(halves)
  # counts: three sets of 79,510 parameters down and two up for each of 10 clients.
  assert float(rows[1]['megabytes_down']) == pytest.approx(3 * 10 * 79_510 * 4e-6)
  assert float(rows[1]['megabytes_up']) == pytest.approx(2 * 10 * 79_510 * 4e-6)
  config = _config(whole)
  assert config['settings']['algorithm_option'] == ['strength=0.1']
  assert config['files']['algorithm']['path'] == path
  assert len(config['files']['algorithm']['sha256']) == 64
  # The strength matters, and it is the report's label.
  other = str(tmp_path / 'other')
  assert _train(other, flags[0], '--rounds=4') == 0
  assert _rows(other)[-1] != rows[-1]
  groups = runs.group(runs.find_runs([whole, other]))
  assert list(groups) == ['strength=0.1', 'strength=0.5']
  assert list(runs.group(runs.find_runs([whole]))) == ['mine.py:Damped']


def test_a_file_that_was_changed_is_refused_at_resume(write, tmp_path, capsys):
  path, folder = write('mine.py', ALGORITHM), str(tmp_path / 'run')
  flags = [f'--algorithm={path}:Damped', '--rounds=2']
  assert _train(folder, *flags) == 0
  before = _config(folder)
  write('mine.py', ALGORITHM + '\n  # Another remark.\n')
  capsys.readouterr()
  assert _train(folder, *flags, '--rounds=3') == 2
  error = capsys.readouterr().err
  assert error.count('\n') == 1
  assert f"the file of --algorithm, '{path}', was changed since" in error
  assert 'another --output_dir' in error
  assert _config(folder) == before
  # The same file elsewhere is the same algorithm.
  os.makedirs(tmp_path / 'moved')
  moved = write(os.path.join('moved', 'mine.py'), ALGORITHM)
  assert _train(folder, f'--algorithm={moved}:Damped', '--rounds=3') == 0


def test_a_server_optimizer_of_a_users_file_takes_its_options(write, tmp_path):
  spec = f'{write("server.py", SERVER)}:build_heavy'
  flags = [f'--server_optimizer={spec}', '--algorithm=fed_avg', '--rounds=2']
  own, ours = str(tmp_path / 'own'), str(tmp_path / 'ours')
  assert _train(own, *flags, '--server_optimizer_option=drag=0.5') == 0
  assert _config(own)['settings']['server_optimizer_option'] == ['drag=0.5']
  same = ['--algorithm=fed_avgm', '--momentum=0.5', '--rounds=2']
  assert _train(ours, *same, '--server_learning_rate=1', '--client_learning_rate=0.1') == 0
  for mine, ours_ in zip(_rows(own), _rows(ours)):
    assert mine['validation_loss'] == ours_['validation_loss']


def test_a_task_of_a_users_file_takes_its_options(write, tmp_path, capsys):
  spec = f'{write("data.py", TASK)}:load'
  folder = str(tmp_path / 'run')
  flags = [f'--task={spec}', '--algorithm=fed_avg', '--rounds=2']
  assert _train(folder, *flags, '--task_option=clients=4', '--task_option=noise=1') == 2
  assert '--clients_per_round must be from 1 to 4' in capsys.readouterr().err
  flags.append('--clients_per_round=3')
  assert _train(folder, *flags, '--task_option=clients=4', '--task_option=noise=1') == 0
  config = _config(folder)
  assert config['data']['source'] == 'noise 1.0'
  assert config['data']['clients'] == 4
  assert config['files']['task']['path'].endswith('data.py')
  capsys.readouterr()
  other = str(tmp_path / 'other')
  assert _train(other, *flags, '--task_option=colour=1') == 2
  assert 'it has: clients, noise' in capsys.readouterr().err


_OWN = """
import dataclasses, tensorflow as tf
from tff_adaptive import corrections, registry
@dataclasses.dataclass(frozen=True)
class A(corrections.Correction):
"""


@pytest.mark.parametrize(
  ('name', 'text', 'flag', 'words'),
  [
    ('a.py', ALGORITHM, '--algorithm={}:Dampd', 'defines no Dampd'),
    ('a.py', ALGORITHM, '--algorithm={}x:Damped', 'cannot be read'),
    ('a.py', 'x = 1 +', '--algorithm={}:x', 'line 1: SyntaxError'),
    ('a.py', 'x = 1', '--algorithm={}:x', 'is no algorithm'),
    ('a.py', 'x = 1', '--task={}:x', 'is no function (data_dir, seed, **options)'),
    ('a.py', 'x = 1', '--task={}x:x', 'of a file that there is'),
    ('a.py', 'def f(data_dir, seed):\n  return 1 / 0', '--task={}:f', 'line 2: ZeroDivision'),
    ('a.py', 'def f(data_dir, seed):\n  return 1', '--task={}:f', 'must return a tasks.Task'),
    ('a.py', 'x = 1', '--server_optimizer={}:x --algorithm=fed_avg', 'is no function'),
    ('a.py', f'{_OWN}  client_weighting = 3', '--algorithm={}:A', 'has client_weighting 3'),
    ('a.py', f'{_OWN}  s: str = "x"', '--algorithm={}:A', 'hyperparameters are float, int or bool'),
    ('s.py', 'def f(rate, drag): pass', '--server_optimizer={}:f --algorithm=fed_avg', 'a default'),
  ],
)
def test_a_bad_file_is_refused_in_one_line(write, tmp_path, capsys, name, text, flag, words):
  flags = flag.replace('{}', write(name, text)).split()
  if '{}x' in flag:
    flags = [flags[0].replace('.pyx:', '_x.py:')]
  assert _train(tmp_path / 'run', '--rounds=1', *flags) == 2
  error = capsys.readouterr().err
  assert error.startswith('train.py: ')
  assert words in error
  assert error.count('\n') == 1
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('text', 'words'),
  [
    (
      '  def gradient(self, client, theta, g): return missing',
      'failed in line 6: NameError: name ',
    ),
    ('  def gradient(self, theta, g): return g', 'cannot be used: TypeError: A.gradient() takes 3'),
    ('  def gradient(self, client, theta, g): return None', 'A.gradient must return a tuple of 4'),
    (
      '  is_stateful = True\n  def client_update(self, c, g_i, k): return {}',
      'return the pair',
    ),
    ('  def __post_init__(self): raise KeyError("no")', "failed in line 6: KeyError: 'no'"),
    ('  def counts(self, values): return registry.Counts()', 'TypeError: A.counts() missing 1'),
    (
      "A = registry.Algorithm('m', 'M', 'd', correction='no.such:A')",
      'ModuleNotFoundError: No',
    ),
    ("A = registry.Algorithm('m', 'M', 'd', correction=None)", 'cannot be used: AttributeError'),
  ],
)
def test_an_algorithm_that_fails_while_it_is_built_is_named(write, tmp_path, capsys, text, words):
  spec = f'--algorithm={write("a.py", _OWN)}:A'
  text = _OWN + ('  pass\n' if text.startswith('A = ') else '') + text
  (tmp_path / 'a.py').write_text(text)
  assert _train(tmp_path / 'run', '--rounds=1', spec) == 2
  data, error = capsys.readouterr().err.splitlines()
  assert data.startswith('digits: ')
  assert error.startswith(f'train.py: {spec} ')
  assert words in error
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('body', 'words'),
  [
    ('return None', 'must be a tff.learning.optimizers.Optimizer, found None'),
    ('raise RuntimeError("boo")', 'failed in line 4: RuntimeError: boo'),
    ('return Wrong()', 'cannot be used: ValueError: in user code'),
  ],
)
def test_so_is_a_server_optimizer(write, tmp_path, capsys, body, words):
  text = f"""
  import tensorflow_federated as tff
  def f(learning_rate):
    {body}

  class Wrong(tff.learning.optimizers.Optimizer):
    def initialize(self, specs):
      return {{}}
    def next(self, state, weights, gradients):
      return state
  """
  spec = f'--server_optimizer={write("s.py", text)}:f'
  assert _train(tmp_path / 'run', '--rounds=1', '--algorithm=fed_avg', spec) == 2
  error = capsys.readouterr().err.splitlines()[-1]
  assert error.startswith(f'train.py: {spec} ')
  assert words in error
  assert not (tmp_path / 'run').exists()


def test_clients_that_fail_in_a_later_round_end_the_run_in_one_line(write, tmp_path, capsys):
  text = (
    TASK
    + """

  class Late(tasks.InMemoryClientData):
    loads = 0

    def load(self, client_id):
      Late.loads += 1
      if Late.loads > 1 + 2 * 3:  # The first one to see that it fits, then two rounds.
        raise RuntimeError('gone')
      return super().load(client_id)


  def late(data_dir, seed):
    import dataclasses

    task = load(data_dir, seed)
    arrays = {c: tuple(task.train.load(c).values()) for c in task.train.client_ids}
    return dataclasses.replace(task, train=Late(arrays))
  """
  )
  spec, folder = f'--task={write("data.py", text)}:late', str(tmp_path / 'run')
  assert _train(folder, '--rounds=9', '--algorithm=fed_avg', '--clients_per_round=3', spec) == 1
  error = capsys.readouterr().err.splitlines()[-1]
  assert error.startswith(f'train.py: {spec} failed in line ')
  assert error.endswith('RuntimeError: gone')
  assert len(_rows(folder)) == 3  # Rounds 0 to 2 are kept.
