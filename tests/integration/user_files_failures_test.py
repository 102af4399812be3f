"""A user's own file that fails: one line that names it, exit code 2 or 1, nothing lost."""

import pytest

from tests.helpers import task_data, user_files
from tff_adaptive.training import cohorts

_OWN = """
import dataclasses, tensorflow as tf
from tff_adaptive import corrections, registry
@dataclasses.dataclass(frozen=True)
class A(corrections.Correction):
"""


@pytest.mark.parametrize(
  ('name', 'text', 'flag', 'words'),
  [
    ('a.py', 'x = 1 +', '--algorithm={}:x', 'line 1: SyntaxError'),
    ('a.py', 'x = 1', '--task={}x:x', 'of a file that there is'),
    ('a.py', 'def f(data_dir, seed):\n  return 1 / 0', '--task={}:f', 'line 2: ZeroDivision'),
    ('s.py', 'def f(rate, drag): pass', '--server_optimizer={}:f --algorithm=fed_avg', 'a default'),
  ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, capsys, name, text, flag, words):
  flags = flag.replace('{}', user_files.write(tmp_path, name, text)).split()
  if '{}x' in flag:
    flags = [flags[0].replace('.pyx:', '_x.py:')]
  assert user_files.train(tmp_path / 'run', '--rounds=1', *flags) == 2
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
def test_an_algorithm_that_fails_while_it_is_built_is_named(tmp_path, capsys, text, words):
  spec = f'--algorithm={user_files.write(tmp_path, "a.py", _OWN)}:A'
  text = _OWN + ('  pass\n' if text.startswith('A = ') else '') + text
  (tmp_path / 'a.py').write_text(text)
  assert user_files.train(tmp_path / 'run', '--rounds=1', spec) == 2
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
    ('return Wrong()', 'cannot be used: TypeError: Wrong.next must return the new state and the'),
  ],
)
def test_so_is_a_server_optimizer(tmp_path, capsys, body, words):
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
  spec = f'--server_optimizer={user_files.write(tmp_path, "s.py", text)}:f'
  assert user_files.train(tmp_path / 'run', '--rounds=1', '--algorithm=fed_avg', spec) == 2
  error = capsys.readouterr().err.splitlines()[-1]
  assert error.startswith(f'train.py: {spec} ')
  assert words in error
  assert not (tmp_path / 'run').exists()


def test_clients_that_fail_in_a_later_round_end_the_run_in_one_line(tmp_path, capsys):
  text = (
    user_files.TASK
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
  spec, folder = f'--task={user_files.write(tmp_path, "data.py", text)}:late', tmp_path / 'run'
  assert (
    user_files.train(folder, '--rounds=9', '--algorithm=fed_avg', '--clients_per_round=3', spec)
    == 1
  )
  error = capsys.readouterr().err.splitlines()[-1]
  assert error.startswith(f'train.py: {spec} failed in line ')
  assert error.endswith('RuntimeError: gone')
  assert len(user_files.rows(folder)) == 3  # Rounds 0 to 2 are kept.


SQLITE_TASK = """
  import collections, os
  import numpy as np, tensorflow as tf
  import tff_adaptive_tasks as tasks
  from tff_adaptive_tasks.data import tff_sqlite
  from tff_adaptive import models

  FEATURES = {'v': tf.io.FixedLenFeature([2], tf.float32), 'k': tf.io.FixedLenFeature([], tf.int64)}

  def build_model(seed):
    return models.Model(
      initial_weights=[np.zeros([2, 3], np.float32)],
      forward=lambda weights, x, training, seed: x @ weights[0],
      example_loss=models.sparse_cross_entropy,
      x_spec=tf.TensorSpec([None, 2]),
      y_spec=tf.TensorSpec([None], tf.int32),
      metrics={'accuracy': models.accuracy},
    )

  def load(data_dir, seed):
    train = tff_sqlite.SqlClientData(
      os.path.join(data_dir, 'd.sqlite'), 'train', FEATURES, lambda f: (f['v'], np.int32(f['k'])))
    validation = collections.OrderedDict(x=np.ones([2, 2], 'f'), y=np.ones(2, 'i'))
    return tasks.Task('mine', build_model, train, validation, 'd.sqlite')
"""


def test_a_feature_that_is_not_finite_ends_the_run_where_its_client_is_drawn(tmp_path, capsys):
  drawn = [int(cohorts.sample(4, t, 20, 1)[0]) for t in (1, 2, 3)]
  assert drawn[2] not in (0, *drawn[:2])
  clients = {f'{i:02d}': [[1.0, 0.5], [0.5, 1.0]] for i in range(20)}
  clients[f'{drawn[2]:02d}'][1] = [1.0, float('nan')]
  protos = {c: [task_data.example(v=v, k=i) for i, v in enumerate(r)] for c, r in clients.items()}
  task_data.write(tmp_path / 'd.sqlite', {'train': protos})
  spec, folder = (
    f'--task={user_files.write(tmp_path, "data.py", SQLITE_TASK)}:load',
    str(tmp_path / 'run'),
  )
  flags = ['--algorithm=fed_avg', f'--data_dir={tmp_path}', '--clients_per_round=1', spec]
  assert user_files.train(folder, *flags, '--rounds=5') == 1
  error = capsys.readouterr().err.splitlines()[-1]
  where = f"v of client '{drawn[2]:02d}' in 'train', row 1, is nan; it must be finite"
  assert error == f'train.py: {tmp_path}/d.sqlite: {where}'
  assert [row['round'] for row in user_files.rows(folder)] == ['0', '1', '2']
