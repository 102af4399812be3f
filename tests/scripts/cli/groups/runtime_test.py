"""Engine, devices and workers: defaults, and when the compiled LSTM is recommended."""

import pytest

from tests.helpers import settings
from tff_adaptive import engine
from tff_adaptive.devices import placement
from tff_adaptive.kernels import library

pytest.importorskip('ray')


def test_defaults_and_addresses():
  plain = settings.of().runtime
  assert (plain.ray, plain.subrounds, plain.cpus_per_worker) == (None, None, None)
  local = settings.of('--ray=local').runtime
  assert (local.subrounds, local.cpus_per_worker, local.gpus_per_worker) == (4, 1, 0)
  assert local.ray_workers is None
  assert settings.of('--ray=local', '--ray_workers=7').runtime.subrounds == 7
  assert settings.of('--ray=local', '--ray_workers=7', '--subrounds=9').runtime.subrounds == 9
  assert settings.of('--subrounds=3').runtime.subrounds == 3
  for address in ('local', 'auto', '10.0.0.1:6379', '[::1]:6379', 'head:1'):
    assert settings.of(f'--ray={address}').runtime.ray == address


@pytest.mark.parametrize(
  'flags, expected',
  [([], ['graph']), (['--engine=native'], ['native']), (['--subrounds=3'], ['graph', 'subround'])],
)
def test_what_runs_computations_is_set(flags, expected, monkeypatch):
  calls = []
  seen = {}
  for name in ('graph', 'native', 'subround', 'ray'):
    monkeypatch.setattr(
      engine, f'set_{name}_context', lambda *_, n=name, **more: calls.append(n) or seen.update(more)
    )
  settings.of(*flags).runtime.build(5)
  assert calls == expected
  assert (seen.get('server') is None) == ('subround' not in expected)  # It has the other flags.


def test_a_worker_is_asked_for_a_processor_and_no_more_and_has_the_gpus(monkeypatch):
  seen = {}
  monkeypatch.setattr(placement, 'hide_gpus', lambda: seen.update(hidden=True))
  monkeypatch.setattr(engine, 'set_graph_context', lambda **given: None)
  monkeypatch.setattr(engine, 'set_ray_context', lambda at, **given: seen.update(given, at=at))
  names = ('cpus_per_worker', 'gpus_per_worker', 'memory_per_worker')
  for values, hidden in (((1, 0, 0), {}), ((3, 0.5, 2), {'hidden': True})):
    flags = [f'--{name}={value}' for name, value in zip(names, values) if hidden]
    settings.of('--ray=local', '--ray_workers=2', *flags).runtime.build(5)
    each = {**dict(zip(names, values)), **hidden}
    server = seen['server'] or 'missing'
    assert seen == {'at': 'local', 'workers': 2, 'subrounds': 4, 'server': server, **each}


def test_the_engine_of_one_process_takes_its_flags(monkeypatch):
  def expected(*values):
    names = ('clients_per_step', 'parallel_clients', 'device', 'results')
    return dict(zip(names, (*values, 'tensors'), strict=True))

  seen = []
  monkeypatch.setattr(engine, 'set_graph_context', lambda **given: seen.append(given))
  monkeypatch.setattr(placement, 'hide_gpus', lambda: seen.append('hidden'))
  monkeypatch.setattr(library, 'load', lambda: seen.append('compiled'))
  settings.of('--clients_per_step=10', '--parallel_clients=7').runtime.build(8)
  settings.of('--device=cpu').runtime.build(1)
  assert seen == [expected(10, 7, 'auto'), 'hidden', expected(None, 1, 'cpu')]
  settings.of().runtime.build(1, is_compiled=True)
  assert seen[3:] == ['hidden', expected(None, 1, 'auto'), 'compiled']
