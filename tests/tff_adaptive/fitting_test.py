"""`fit` trains what train.py trains, to the last bit, and leaves the program as it was."""

import functools
import os
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow_federated as tff

import tff_adaptive
import tff_adaptive_tasks as tasks
from scripts import train
from scripts.cli import fit as cli_fit
from tests.helpers import fakes

_FLAGS = (
  *('--rounds=3', '--seed=4', '--clients_per_round=5', '--task_option=num_clients=12'),
  *('--client_epochs=1', '--rounds_per_evaluation=1'),
)
_KEYWORDS = dict(
  rounds=3,
  seed=np.int64(4),
  clients_per_round=5,
  task_option={'num_clients': 12},
  client_epochs=1,
  rounds_per_evaluation=1,
  quiet=True,
)


def _without_times(rows):
  """The rows as text, as metrics.csv has them, without wall-clock columns."""
  return [
    {name: str(value) for name, value in row.items() if not name.startswith('seconds_')}
    for row in rows
  ]


@pytest.fixture(scope='module')
def of_command(tmp_path_factory):
  """The folder of a run of train.py."""
  folder = str(tmp_path_factory.mktemp('run') / 'run')
  command = ['train.py', '--task=synthetic', '--algorithm=scaffold', *_FLAGS]
  with fakes.no_figures():
    assert train.main([*command, f'--output_dir={folder}']) == 0
  return folder


@pytest.mark.exhaustive
def test_numbers_are_those_of_the_command_and_nothing_is_written(of_command, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  before = tff.framework.get_context_stack().current
  result = tff_adaptive.fit('synthetic', 'scaffold', **_KEYWORDS)
  assert tff.framework.get_context_stack().current is before
  run = tff_adaptive.load_run(of_command)
  assert _without_times(result.rows) == _without_times(run.rows)
  assert len(result.weights) == len(run.weights) == 2
  for array, expected in zip(result.weights, run.weights):
    np.testing.assert_array_equal(array, expected)
  assert list(result.metrics.index) == [0, 1, 2, 3]
  columns = [name for name in result.metrics if not name.startswith('seconds_')]
  pd.testing.assert_frame_equal(result.metrics[columns], run.metrics[columns])
  assert result.summary['last']['validation_accuracy'] == run.rows[-1]['validation_accuracy']
  assert result.is_complete
  assert result.output_dir is None
  assert os.listdir(tmp_path) == []


@pytest.mark.exhaustive
def test_a_folder_is_that_of_the_command_and_is_resumed(of_command, tmp_path):
  """The task itself has the rates tuned for its name."""
  task = tasks.load('synthetic', seed=4, num_clients=12)
  options = {name: value for name, value in _KEYWORDS.items() if name != 'task_option'}
  with fakes.no_figures():
    for rounds in (1, 3):
      given = {**options, 'rounds': rounds}
      result = tff_adaptive.fit(task, 'scaffold', output_dir=tmp_path / 'run', **given)
  assert fakes.rows(tmp_path / 'run') == fakes.rows(of_command)
  assert _without_times(result.rows) == _without_times(tff_adaptive.load_run(of_command).rows)
  assert sorted(os.listdir(tmp_path / 'run')) == sorted(os.listdir(of_command))
  with pytest.raises(ValueError, match='the run was made by a program'):
    tasks.load_run(tmp_path / 'run').task()


def test_own_data_are_arrays_by_client_or_a_function_that_makes_a_task(tmp_path):
  rng = np.random.default_rng(0)
  arrays = {}
  for client in range(5):
    x = rng.normal(size=(8, 2)).astype(np.float32)
    arrays[client] = (x, (x[:, 0] > 0).astype(int))
  arrays['without examples'] = ([], [])  # NumPy takes empty lists for floating-point numbers.
  x, y = (np.concatenate([arrays[client][i] for client in range(5)]) for i in (0, 1))
  owners = np.repeat(np.arange(5), 8)

  def load(name, data_dir, seed, scale: float = 1.0):
    assert name == 'bound'
    assert data_dir is None
    return tasks.from_arrays(x * np.float32(scale), y, owners, seed=seed)

  options = dict(rounds=1, clients_per_round=2, client_learning_rate=0.5, seed=3, quiet=True)
  of_arrays = tff_adaptive.fit(arrays, 'fed_avg', **options)
  bound = functools.partial(load, 'bound')
  of_function = tff_adaptive.fit(bound, 'fed_avg', task_option=['scale=1.0'], **options)
  assert _without_times(of_arrays.rows) == _without_times(of_function.rows)
  assert of_arrays.task.preparation.classes == (0, 1)
  assert len(of_arrays.task.train.client_ids) == 4  # One of five is held out.
  # A folder's model would otherwise be returned for other data with as many examples.
  options['output_dir'] = str(tmp_path / 'run')
  with fakes.no_figures():
    of_folder = tff_adaptive.fit(arrays, 'fed_avg', **options)
    again = tff_adaptive.fit(arrays, 'fed_avg', **options)
    assert _without_times(again.rows) == _without_times(of_folder.rows)
    others = {client: (x, 1 - np.asarray(y)) for client, (x, y) in arrays.items()}
    with pytest.raises(ValueError, match=r'was on other data: sha256 was .* or another folder'):
      tff_adaptive.fit(others, 'fed_avg', **options)


@pytest.mark.parametrize(
  'keywords, message',
  [
    ({'lr': 0.1}, "fit() has no keyword 'lr': did you mean client_learning_rate or"),
    ({'client_learning_rat': 0.1}, 'did you mean client_learning_rate'),
    ({'rounds': 0}, 'rounds must be at least 1'),
    ({'rounds': 2.5}, 'rounds must be a whole number, found 2.5.'),
    ({'quiet': 'yes'}, "quiet must be True or False, found 'yes'."),
    ({'task_option': 3}, 'task_option must be a list of texts, or a mapping, found 3.'),
    ({'task_option': {'features': ['a']}}, 'task_option: features must be a truth value, a number'),
    ({'task': 'digit'}, 'Did you mean digits'),
    ({'algorithm': 'fed_yog'}, 'algorithm: unknown algorithm'),
    ({'mu': 0.1}, 'mu has no meaning for algorithm fed_yogi'),
    ({'ledger': True}, 'ledger is about files: give output_dir'),
    ({'trace_client': 'client_0'}, 'trace_client is about files: give output_dir'),
    ({'task': 3}, 'a int is no task: give the name of a task'),
    ({'task': pd.DataFrame({'a': [1]})}, 'give tff_adaptive_tasks.from_frame(table, client='),
    ({'task': {'a': ([1.0, 2.0], [1])}}, "the client 'a' has x of shape (2,) and y of shape (1,)"),
    ({'task': {1: ([[1.0]], [1]), '1': ([[2.0]], [0])}}, "the clients 1 and '1' would have one"),
    (
      {'task': {1: ([[1.0]], [1]), 2: ([[2.0]], [0.0])}},
      'the client 1 have dtype int64',
    ),
    (
      {'task': {1: ([[1.0]], [1]), 2: ([[2.0]], ['a'])}},
      'the client 1 have dtype int64',
    ),
    ({'task': {1: ([], [])}}, 'there are no clients with examples'),
    ({'task': {}, 'data_dir': '.'}, 'data_dir is for a task that is given by its name'),
  ],
)
def test_what_is_wrong_is_named_as_a_keyword(keywords, message):
  with pytest.raises((TypeError, ValueError)) as error:
    tff_adaptive.fit(**keywords)
  assert message in str(error.value)
  assert '--' not in str(error.value)


def test_a_run_without_a_usable_model_warns_even_if_quiet(monkeypatch):
  summary = {'ends_without_update': True, 'rounds_without_update': 2}
  result = types.SimpleNamespace(is_complete=True, summary=summary)
  outcome = types.SimpleNamespace(result=result, task='the task', model='the model')
  monkeypatch.setattr(cli_fit.run, 'run', lambda *_, **__: outcome)
  message = r'all clients diverged in 2 rounds.*: lower client_learning_rate, or give clip_norm'
  with pytest.warns(RuntimeWarning, match=message):
    assert cli_fit.fit('digits', 'fed_avg', None, {'quiet': True}).task == 'the task'


def test_the_names_of_the_package_show_it():
  assert {'fit', 'FitResult'} <= set(dir(tff_adaptive))
