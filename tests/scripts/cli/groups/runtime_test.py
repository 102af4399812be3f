"""Engine, devices and workers: defaults, refusals, and when the compiled LSTM is recommended."""

import shutil

import pytest

from scripts.cli import flags, resolve, settings
from scripts.cli.groups import runtime

pytest.importorskip('ray')


def _resolve(*arguments):
  return resolve.resolve(flags.parse(['train.py', '--task=digits', *arguments]))


def test_defaults():
  plain = _resolve().runtime
  assert (plain.ray, plain.subrounds, plain.cpus_per_worker) == (None, None, None)
  local = _resolve('--ray=local').runtime
  assert (local.subrounds, local.cpus_per_worker, local.gpus_per_worker) == (4, 1, 0)
  assert local.ray_workers is None
  assert _resolve('--ray=local', '--ray_workers=7').runtime.subrounds == 7
  assert _resolve('--ray=local', '--ray_workers=7', '--subrounds=9').runtime.subrounds == 9
  assert _resolve('--subrounds=3').runtime.subrounds == 3


@pytest.mark.parametrize(
  'arguments, store',
  [
    ([], 'memory'),
    (['--ray=local'], 'memory'),
    (['--ray=auto'], 'shards'),
    (['--ray=auto', '--client_state_store=disk'], 'disk'),
    (['--ray=local', '--client_state_store=shards'], 'shards'),
  ],
)
def test_client_states_are_where_workers_of_several_machines_reach_them(arguments, store):
  assert _resolve('--algorithm=ada_best', *arguments).clients.client_state_store == store


@pytest.mark.parametrize('address', ['local', 'auto', '10.0.0.1:6379', '[::1]:6379', 'head:1'])
def test_addresses(address):
  assert _resolve(f'--ray={address}').runtime.ray == address


@pytest.mark.parametrize(
  'arguments, message',
  [
    (['--ray=head'], "--ray must be local, auto or host:port, found 'head'"),
    (['--ray=ray://head:1'], "--ray must be local, auto or host:port, found 'ray://head:1'"),
    (['--ray_workers=2'], '--ray_workers is for --ray: give it too'),
    (['--cpus_per_worker=2'], '--cpus_per_worker is for --ray'),
    (['--gpus_per_worker=1'], '--gpus_per_worker is for --ray'),
    (['--subrounds=4', '--engine=native'], '--subrounds is for --engine=graph'),
    (['--ray=local', '--engine=native'], '--engine=native does not go with --ray'),
    (['--ray=local', '--parallel_clients=2'], '--parallel_clients does not go with --ray: --cpus'),
    (['--ray=local', '--clients_per_step=2'], '--clients_per_step does not go with --ray'),
    (['--ray=local', '--gpus_per_worker=inf'], '--gpus_per_worker must be from 0 to 1, or a whole'),
    (['--ray=local', '--gpus_per_worker=nan'], '--gpus_per_worker must be from 0 to 1, or a whole'),
    (['--ray=local', '--gpus_per_worker=1.5'], '--gpus_per_worker must be from 0 to 1, or a whole'),
    (['--ray=local', '--ray_workers=5', '--subrounds=4'], '--subrounds must be at least 5'),
    (['--ray=local', '--ray_workers=0'], '--ray_workers'),
  ],
)
def test_refusals(arguments, message):
  with pytest.raises(ValueError) as caught:
    _resolve(*arguments)
  assert message in str(caught.value)


def test_without_ray_the_hint_is_to_install_it(monkeypatch):
  monkeypatch.setattr(runtime.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError, match=r'pip install tff-adaptive\[ray\]'):
    _resolve('--ray=auto')


def test_a_resumed_run_may_change_where_it_is_trained_but_not_the_subrounds():
  assert {'ray', 'ray_workers', 'cpus_per_worker'} <= set(settings.CHANGE_NO_NUMBER)
  assert not {'subrounds', 'gpus_per_worker'} & set(settings.CHANGE_NO_NUMBER)


def hint(task='shakespeare', **given):
  settings = resolve.resolve(task=task, algorithm='fed_avg', **given)
  return settings.runtime.lstm_hint(task, settings.what.task_options)


def test_who_trains_lstms_on_a_cpu_is_shown_the_faster_way(monkeypatch):
  monkeypatch.setattr(shutil, 'which', lambda name: '/usr/bin/' + name)
  for task in ('shakespeare', 'stackoverflow_nwp'):
    assert 'lstm=compiled' in hint(task)


@pytest.mark.parametrize(
  'given',
  [
    {'task': 'digits'},
    {'task_option': ('lstm=tensorflow',)},
    {'task_option': ('lstm=compiled',)},
    {'engine': 'native'},
    {'xla': True},
    {'mixed_precision': 'bfloat16'},
  ],
)
def test_who_has_chosen_or_cannot_is_not(given, monkeypatch):
  monkeypatch.setattr(shutil, 'which', lambda name: '/usr/bin/' + name)
  assert hint(**given) is None


def test_without_a_compiler_nothing_is_said(monkeypatch):
  monkeypatch.setattr(shutil, 'which', lambda name: None)
  assert hint() is None
