"""`tasks.load`: names, options, and a user's own file; what is wrong is said in one line."""

import textwrap
import typing

import numpy as np
import pytest

import tff_adaptive_tasks as tasks
from tff_adaptive_tasks import loading

HEAD = """
  import collections, dataclasses
  import numpy as np
  import tensorflow as tf
  import tff_adaptive_tasks as tasks

  def make(**changes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(24, 3)).astype('f')
    made = tasks.from_arrays(x, np.arange(24) % 2, np.repeat(np.arange(4), 6), seed=0)
    return dataclasses.replace(made, **changes)

  class Clients:
    client_ids = ['a', 'b']
    def __init__(self, x=np.zeros([3, 3], 'f'), ids=None):
      self.x, self.client_ids = x, ids or self.client_ids
    def num_examples(self, client_id):
      return 3
    def load(self, client_id):
      return collections.OrderedDict(x=self.x, y=np.zeros(3, 'i'))

  class Fails(Clients):
    def load(self, client_id):
      raise RuntimeError('no such table')
"""
LINE = textwrap.dedent(HEAD).count('\n') + 1


def _write(folder, text):
  path = folder / 'mine.py'
  path.write_text(textwrap.dedent(HEAD) + text)
  return str(path)


@pytest.mark.parametrize(
  'text, words',
  [
    ('f = 3', 'f of {} failed: TypeError: 3 is not a callable object'),
    ('def f(seed): return make()', 'TypeError: f() got an unexpected keyword argument'),
    ('def f(data_dir, seed, path): return make()', "required positional argument: 'path'"),
    ('def f(data_dir, seed, a: "No" = 1): return make()', "name 'No' is not defined"),
    ('def f(data_dir, seed): raise SystemExit(3)', f'f of {{}} failed in line {LINE}: SystemExit'),
    ('def f(data_dir, seed): return 1 / 0', f'failed in line {LINE}: ZeroDivisionError: division'),
    ('def f(data_dir, seed): return None', 'gave None; it must return a tasks.Task'),
    # What `make` is given.
    ('train=3', "'int' object has no attribute 'client_ids'"),
    ('train=Clients(ids=[1])', 'must be strings, at least one'),
    ('train=Clients(ids=["b", "b"])', 'there more than once'),
    ('build_model=lambda seed: 1 / 0', f'f of {{}} failed in line {LINE}: ZeroDivisionError'),
    ('build_model=lambda: 1', 'takes 0 positional arguments but 1 was given'),
    ('build_model=lambda seed: tf.keras.Sequential()', 'build_model gave Sequential; it must ret'),
    ("metric='auc'", "the metric of the task is 'auc', but the model has loss, accuracy"),
    ("train=type('Some', (Clients,), {'num_examples': 3})()", "'int' object is not callable"),
    ('train=Fails()', 'failed in line 24: RuntimeError: no such table'),
    (
      "train=Clients(np.zeros([3, 5], 'f'))",
      "client 'a': x is float32 of shape (3, 5); the model's x_spec needs float32 of shape (n, 3)",
    ),
    ('train=Clients(np.zeros([3, 3]))', "x is float64 of shape (3, 3); the model's x_spec needs f"),
    ("train=Clients(np.zeros([2, 3], 'f'))", "client 'a': x has shape (2, 3) and y (3,)"),
    ("train=Clients(np.full([3, 3], np.nan, 'f'))", "client 'a': x, row 0, has nan"),
    (
      "validation=dict(x=np.zeros([2, 4], 'f'), y=np.zeros(2, 'i'))",
      'validation data: x is float32',
    ),
  ],
)
def test_a_file_without_a_task_or_whose_model_does_not_fit_is_refused(tmp_path, text, words):
  is_made = text.startswith(('build_model=', 'metric=', 'train=', 'validation='))
  path = _write(tmp_path, f'def f(data_dir, seed): return make({text})' if is_made else text)
  with pytest.raises(tasks.DataError) as error:
    tasks.load(f'{path}:f').build_model(0)
  assert words.replace('{}', repr(path)) in str(error.value)


def test_a_good_task_passes_with_its_options(tmp_path):
  text = 'def f(data_dir, seed, n: int = 2, **o): return make(source=f"{data_dir} {n} {o}")'
  path = _write(tmp_path, text)
  task = tasks.load(f'{path}:f', n=3.0, other='x')
  assert task.source == "None 3 {'other': 'x'}"
  settings = {'task': f'{path}:f', 'task_option': ['n=4'], 'data_dir': 'there', 'seed': 0}
  config = {'settings': settings, 'data': {}}
  assert loading.task_of(config, str(tmp_path)).source == 'there 4 {}'
  assert task.build_model(0).num_parameters == 3 * 2 + 2
  np.testing.assert_array_equal(task.build_model(1).initial_weights[0][0].shape, [3, 2])


@pytest.mark.parametrize('name', ['where', 'function', 'arguments', 'reference', 'options', 'task'])
def test_an_option_may_have_any_name(tmp_path, name):
  text = f'def f(data_dir, seed, {name}: str): return make(source={name})'
  assert tasks.load(f'{_write(tmp_path, text)}:f', **{name: 'here'}).source == 'here'


def test_unknown_task_and_option_are_errors():
  with pytest.raises(tasks.DataError, match="unknown task 'digit'"):
    tasks.load('digit')
  with pytest.raises(tasks.DataError, match='no option clients; it has: alpha, num_clients'):
    tasks.load('digits', clients=3)
  assert len(tasks.load('digits', num_clients=1e1, alpha=1).train) == 10


class BadOption(typing.NamedTuple):
  task: str
  name: str
  value: object
  message: str


@pytest.mark.parametrize(
  'option',
  [
    BadOption(
      task='shakespeare', name='padding', value=3, message="3; it must be 'published' or 'tff'"
    ),
    BadOption(
      task='digits', name='num_clients', value=10**12, message='num_clients is 1000000000000'
    ),
    BadOption(
      task='least_squares',
      name='num_clients',
      value=10**12,
      message='num_clients is 1000000000000; it must be from 1',
    ),
    BadOption(
      task='least_squares',
      name='rows',
      value=1_000_000,
      message='times columns is .* from 1 to 20,000,000',
    ),
    BadOption(
      task='least_squares', name='unlikeness', value=1e200, message='unlikeness is 1e[+]200'
    ),
    BadOption(task='synthetic', name='alpha', value=-1, message='alpha is -1'),
    BadOption(task='synthetic', name='beta', value=1e4, message='beta is 10000'),
    BadOption(
      task='synthetic', name='num_clients', value=0, message='num_clients is 0; it must be from'
    ),
    BadOption(
      task='stackoverflow_nwp', name='num_words', value=10**12, message='num_words is 1000000000000'
    ),
    BadOption(
      task='stackoverflow_lr', name='num_tags', value=10**12, message='num_tags is 1000000000000'
    ),
    BadOption(
      task='stackoverflow_lr', name='padding', value='tff', message='has no option padding'
    ),
  ],
)
def test_an_option_of_another_kind_or_out_of_range_is_an_error(option):
  with pytest.raises(tasks.DataError, match=option.message):
    tasks.load(option.task, 'nowhere', **{option.name: option.value})
