"""What a program does at signals is its own while Ray begins; no address is waited for in vain."""

import io
import os
import signal
import socket
import sys
import threading
import types
from unittest import mock

import pytest

from tff_adaptive.engine.cluster import errors, joining

pytest.importorskip('ray')


def test_what_a_program_does_at_sigterm_stays():
  before = signal.getsignal(signal.SIGTERM)
  with joining._signals_kept():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
  assert signal.getsignal(signal.SIGTERM) is before


def test_a_local_cluster_is_on_loopback_and_its_watchdog_holds_nothing_open(monkeypatch, tmp_path):
  from ray._private import ray_constants, services, worker

  popen = mock.Mock()
  begin = mock.Mock()
  addresses = []
  begin.side_effect = lambda **given: addresses.append(
    services.resolve_ip_for_localhost(given['_node_ip_address'])
  )
  monkeypatch.setattr(worker, '_global_node', None)  # That of another test would be the answer.
  monkeypatch.setattr(joining.subprocess, 'Popen', popen)
  monkeypatch.setattr('ray.init', begin)
  monkeypatch.setattr('ray.shutdown', begin.shutdown)
  monkeypatch.setattr(joining, 'import_ray', lambda: None)
  monkeypatch.setattr(joining.tempfile, 'mkdtemp', lambda **unused: str(tmp_path))
  joining._start(3, False)()
  popen.return_value.communicate.assert_called_once_with()
  assert addresses == ['127.0.0.1']
  assert ray_constants.ENABLE_RAY_CLUSTER  # As before.
  quiet = dict(num_gpus=0, include_dashboard=False, log_to_driver=False, logging_level='ERROR')
  of_cluster = dict(address='local', _node_ip_address='127.0.0.1', _temp_dir=f'{tmp_path}/ray')
  assert begin.mock_calls == [mock.call(num_cpus=3, **of_cluster, **quiet), mock.call.shutdown()]
  pipe = joining.subprocess.PIPE
  null = joining.subprocess.DEVNULL
  given = dict(stdin=pipe, stdout=null, stderr=null, start_new_session=True, cwd='/')
  assert popen.call_args.kwargs == given


def test_the_processes_of_a_cluster_are_killed_until_none_is_found(monkeypatch, tmp_path):
  folder = str(tmp_path / 'made')
  killed = []
  os.mkdir(folder)

  def process(mark):
    return types.SimpleNamespace(
      environ=lambda: {joining._MARK: mark}, kill=lambda: killed.append(mark)
    )

  mine = process(folder)
  other = process('/tmp/another')
  looks = iter([[mine, other, mine], [other], [other], [mine], [other], *5 * [[]]])
  monkeypatch.setattr(joining.psutil, 'process_iter', lambda: next(looks))
  monkeypatch.setattr(sys, 'stdin', io.StringIO('open'))
  monkeypatch.setattr(joining.time, 'sleep', lambda seconds: None)
  assert [joining.watch(folder) for _ in range(2)] == [None, None]  # The second finds nothing.
  assert (killed, sys.stdin.read(), os.listdir(tmp_path)) == ([folder] * 3, '', [])
  assert not list(looks)


def test_a_hint_comes_while_a_cluster_elsewhere_does_not_answer(monkeypatch):
  hinted = threading.Event()
  monkeypatch.setattr(joining, '_HINT_SECONDS', 0.0)
  monkeypatch.setattr(joining.warnings, 'warn', lambda hint: hinted.set())
  monkeypatch.setattr('ray.is_initialized', lambda: False)
  given = {}
  monkeypatch.setattr('ray.init', lambda **options: given.update(options) or hinted.wait(600))
  joining.join('ray://head:10001', 1)
  assert hinted.is_set()
  assert given == dict(address='ray://head:10001', log_to_driver=False, logging_level='ERROR')
  monkeypatch.setattr(joining, '_HINT_SECONDS', 599.0)
  joining.join('ray://head:10001', 1)
  timers = [t for t in threading.enumerate() if getattr(t, 'interval', None) == 599.0]
  assert all(t.finished.is_set() for t in timers)  # Nothing is hinted later.


def test_a_ray_that_the_program_has_begun_repeats_no_task_for_ever(monkeypatch):
  settings = mock.Mock()
  name = 'RAY_task_oom_retries'
  read = []
  monkeypatch.setattr('ray._raylet.Config', settings)
  monkeypatch.setattr('ray.is_initialized', lambda: True)
  monkeypatch.setattr('ray._private.state.state.get_system_config', lambda: {'of_the_cluster': 1})
  monkeypatch.delenv(name, raising=False)
  settings.initialize.side_effect = lambda text: read.append(os.environ[name])
  for _ in range(2):
    joining.join('auto', 1)
  settings.initialize.assert_called_once_with('{"of_the_cluster": 1}')
  assert read == ['3']


@pytest.mark.parametrize('address', ['local', 'head:6379'])
def test_whatever_ray_raises_becomes_one_line(monkeypatch, address):
  def fail(*unused, **options):
    raise Exception('The current node\ntimed out during startup.')

  monkeypatch.setattr('ray.is_initialized', lambda: False)
  monkeypatch.setattr('ray.init', fail)
  monkeypatch.setattr(joining, '_start', fail)
  monkeypatch.setattr(joining, 'check_listener', lambda address, seconds: None)
  with pytest.raises(errors.WorkerError, match='The current node timed out during startup'):
    joining.join(address, 1)


def test_an_address_where_nothing_listens_is_refused_before_ray_waits_for_it(monkeypatch):
  monkeypatch.setattr(joining, '_LISTEN_SECONDS', 0.0)
  monkeypatch.setattr('ray.is_initialized', lambda: False)
  monkeypatch.setattr('ray.init', lambda **unused: pytest.fail('Ray would wait for minutes'))
  with socket.socket() as bound:  # It does not listen, and nobody else can at its port.
    bound.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{bound.getsockname()[1]}'
    monkeypatch.setenv('RAY_ADDRESS', address)
    for given, named in ((address, address), ('auto', rf'RAY_ADDRESS={address}')):
      expected = rf'no Ray cluster can be joined at .*{named}.*refused'
      with pytest.raises(errors.WorkerError, match=expected):
        joining.join(given, 1)
    bound.listen()
    joining.check_listener(address, 0.0)
  joining.check_listener('ray://head:10001', 0.0)  # Ray looks it up.


def test_a_head_that_begins_to_listen_a_little_later_is_waited_for(monkeypatch):
  with socket.socket() as bound:
    bound.bind(('127.0.0.1', 0))
    monkeypatch.setattr(joining.time, 'sleep', lambda seconds: bound.listen())
    joining.check_listener(f'127.0.0.1:{bound.getsockname()[1]}', 20.0)


def test_a_ray_that_was_imported_without_a_token_is_refused(monkeypatch):
  monkeypatch.delenv('RAY_AUTH_MODE', raising=False)
  monkeypatch.setitem(sys.modules, 'ray', None)
  with pytest.raises(RuntimeError, match=r'set RAY_AUTH_MODE=token \(or disabled\) before'):
    joining.import_ray()
