"""Engine, devices and workers: defaults, and when the compiled LSTM is recommended."""

import pytest

from scripts.cli import flags, resolve
from scripts.cli.groups import runtime
from tff_adaptive import engine

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
    (['--ray=auto', '--client_state_store=memory'], 'memory'),
    (['--ray=local', '--client_state_store=shards'], 'shards'),
  ],
)
def test_client_states_are_where_workers_of_several_machines_reach_them(arguments, store):
  assert _resolve('--algorithm=ada_best', *arguments).clients.client_state_store == store


def test_addresses():
  for address in ('local', 'auto', '10.0.0.1:6379', '[::1]:6379', 'head:1'):
    assert _resolve(f'--ray={address}').runtime.ray == address


@pytest.mark.parametrize(
  'flags, expected',
  [([], ['graph']), (['--engine=native'], ['native']), (['--subrounds=3'], ['graph', 'subround'])],
)
def test_what_runs_computations_is_set(flags, expected, monkeypatch):
  found = []
  for name in ('graph', 'native', 'subround', 'ray'):
    monkeypatch.setattr(engine, f'set_{name}_context', lambda *_, n=name, **__: found.append(n))
  _resolve(*flags).runtime.build(5)
  assert found == expected


def test_a_worker_is_asked_for_a_processor_and_no_more(monkeypatch):
  seen = {}
  monkeypatch.setattr(engine, 'set_graph_context', lambda **given: None)
  monkeypatch.setattr(engine, 'set_ray_context', lambda address, **given: seen.update(given))
  _resolve('--ray=local', '--ray_workers=2').runtime.build(5)
  assert {name: seen[name] for name in seen if name.endswith('per_worker')} == {
    'cpus_per_worker': 1,
    'gpus_per_worker': 0,
    'memory_per_worker': 0,
  }


def test_without_ray_the_hint_is_to_install_it(monkeypatch):
  monkeypatch.setattr(runtime.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError, match=r'pip install tff-adaptive\[ray\]'):
    _resolve('--ray=auto')
