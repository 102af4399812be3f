"""Grids: each combination once, hyperparameters where the algorithm has them."""

import os

import pytest

from scripts.cli import grid


def _labels(varied, given=()):
  return [grid.label(point) for point in grid.points(varied, dict(given))]


def test_the_last_flag_varies_fastest():
  assert _labels({'seed': ['0', '1'], 'tau': ['1', '2']}) == [
    *('seed=0,tau=1', 'seed=0,tau=2', 'seed=1,tau=1', 'seed=1,tau=2')
  ]


def test_a_hyperparameter_counts_where_the_registry_has_it():
  varied = {'algorithm': ['fed_avg', 'fed_adam', 'ada_best'], 'tau': ['1', '2'], 'mu': ['3', '4']}
  assert _labels(varied) == [
    'algorithm=fed_avg',
    *('algorithm=fed_adam,tau=1', 'algorithm=fed_adam,tau=2'),
    *('algorithm=ada_best,mu=3', 'algorithm=ada_best,mu=4'),
  ]
  # AdaBest with Yogi has both.
  varied = {'tau': ['1', '2'], 'mu': ['3', '4']}
  assert len(_labels(varied, {'algorithm': 'ada_best', 'server_optimizer': 'yogi'}.items())) == 4


@pytest.mark.parametrize('order', [['yogi', 'sgd'], ['sgd', 'yogi']])
def test_a_server_optimizer_counts_where_it_is_free(order):
  varied = {'algorithm': ['fed_avg', 'scaffold'], 'server_optimizer': order}
  assert sorted(_labels(varied)) == [
    'algorithm=fed_avg,server_optimizer=sgd',
    'algorithm=scaffold,server_optimizer=sgd',
    'algorithm=scaffold,server_optimizer=yogi',
  ]
  assert _labels({**varied, 'server_optimizer': ['yogi']})[0] == 'algorithm=fed_avg'


def test_what_all_runs_share_is_left_out_where_it_has_no_meaning():
  found = grid.jobs('x', {'algorithm': ['fed_avg', 'fed_adam']}, {'tau': 0.5, 'rounds': 3})
  assert [run.server.get('tau') for run in found] == [None, 0.5]
  assert {run.training.rounds for run in found} == {3}


@pytest.mark.parametrize(
  'varied, given', [({'algorithm': ['fed_avg'], 'tau': ['1']}, {}), ({'seed': ['0']}, {'mu': 1.0})]
)
def test_what_no_run_has_is_refused(varied, given):
  with pytest.raises(ValueError, match='has no meaning'):
    grid.jobs('x', varied, {'algorithm': 'fed_avg', **given} if given else {})


def test_runs_that_would_share_a_folder_are_refused(tmp_path, monkeypatch):
  (tmp_path / 'd').mkdir()
  for name in ('d/o.py', 'd_o.py'):
    (tmp_path / name).write_text('load = 3')
  monkeypatch.chdir(tmp_path)
  with pytest.raises(
    ValueError, match=r'share the folder x/task=d_o\.py:load, in whose name / is _'
  ):
    grid.jobs('x', {'task': ['d/o.py:load', 'd_o.py:load']}, {})


def test_a_name_without_room_for_its_log_is_refused():
  short = f'a={"é" * 100}{"a" * (251 - len("task_option=a=") - 200)}'
  (run,) = grid.jobs('x', {'task_option': [short]}, {})
  assert len(os.fsencode(os.path.basename(run.output.output_dir))) == 251
  with pytest.raises(ValueError, match='of 252 bytes, at most 251 are allowed: vary fewer'):
    grid.jobs('x', {'task_option': [f'{short}a']}, {})


def test_client_states_are_kept_where_there_are_any():
  varied = {'algorithm': ['fed_avg', 'scaffold']}
  found = grid.jobs('x', varied, {'client_state_store': 'disk'})
  assert [run.clients.client_state_store for run in found] == [None, 'disk']
