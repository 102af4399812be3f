"""A user's own file that fails: one line that names it, exit code 2 or 1, nothing lost."""

import pytest

from tests.helpers import user_files

_OWN = """
import dataclasses, tensorflow as tf
from tff_adaptive import corrections, registry
@dataclasses.dataclass(frozen=True)
class A(corrections.Correction):
"""


@pytest.mark.parametrize(
  ('text', 'flag', 'words'),
  [
    ('def f(data_dir, seed):\n  return 1 / 0', '--task={}:f', 'line 2: ZeroDivision'),
    (
      "f = type('M', (type,), {'__getattr__': lambda self, name: exit(name)})('A', (), {})",
      '--algorithm={}:f',
      'cannot be used: SystemExit: keeps_client_state',
    ),
  ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path, capsys, text, flag, words):
  flag = flag.format(user_files.write(tmp_path, 'a.py', text))
  assert user_files.train(tmp_path / 'run', '--rounds=1', flag) == 2
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
    ('  def gradient(self, client, theta, g): return None', 'A.gradient must return a gradient of'),
    ('  def client_update(self, c, g_i, k): return {}', 'return the pair'),
    ('  def __post_init__(self): raise BaseException(3)', 'failed in line 6: BaseException: 3'),
    (
      "A = registry.Algorithm('m', 'M', 'd', correction='no.such:A')",
      'ModuleNotFoundError: No',
    ),
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
    ('return None', 'must be of the class Optimizer, found None'),
    ('raise RuntimeError("boo")', 'failed in line 4: RuntimeError: boo'),
    ('return Texts()', 'cannot be used: TypeError: Texts has texts in its state'),
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

  class Texts(Wrong):
    def initialize(self, specs):
      return {{'a': ['text']}}
  """
  spec = f'--server_optimizer={user_files.write(tmp_path, "s.py", text)}:f'
  assert user_files.train(tmp_path / 'run', '--rounds=1', '--algorithm=fed_avg', spec) == 2
  error = capsys.readouterr().err.splitlines()[-1]
  assert error.startswith(f'train.py: {spec} ')
  assert words in error
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('error', 'said'),
  [
    ("RuntimeError('gone')", '{} failed in line 25: RuntimeError: gone'),
    ("errors.DataError('a row is gone')", 'a row is gone'),  # It says itself where.
  ],
)
def test_clients_that_fail_in_a_later_round_end_the_run_in_one_line(tmp_path, capsys, error, said):
  text = f"""{user_files.TASK}

  from tff_adaptive_tasks import errors

  class Late(tasks.InMemoryClientData):
    loads = 0

    def load(self, client_id):
      Late.loads += 1
      if Late.loads > 1 + 2 * 3:  # The first one to see that it fits, then two rounds.
        raise {error}
      return super().load(client_id)


  def late(data_dir, seed):
    import dataclasses

    task = load(data_dir, seed)
    arrays = {{c: tuple(task.train.load(c).values()) for c in task.train.client_ids}}
    return dataclasses.replace(task, train=Late(arrays))
  """
  spec, folder = f'--task={user_files.write(tmp_path, "data.py", text)}:late', tmp_path / 'run'
  flags = ['--rounds=9', '--algorithm=fed_avg', '--clients_per_round=3', spec]
  assert user_files.train(folder, *flags) == 1
  assert capsys.readouterr().err.splitlines()[-1] == f'train.py: {said.format(spec)}'
  assert len(user_files.rows(folder)) == 3  # Rounds 0 to 2 are kept.
