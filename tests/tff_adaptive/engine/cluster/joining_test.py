"""What a program prints, and does at signals, is its own while Ray begins."""

import importlib.util
import os
import signal
import socket
import subprocess
import threading

import pytest

from tff_adaptive.engine.cluster import errors, joining


def test_only_rays_line_on_its_level_is_left_out_and_the_level_is_back_afterwards(
  capfd, monkeypatch
):
  monkeypatch.delenv('RAY_BACKEND_LOG_LEVEL', raising=False)
  with joining.quiet():
    assert os.environ['RAY_BACKEND_LOG_LEVEL'] == 'fatal'
    os.write(2, b'[I] logging.cc:303: Set ray log level from environment variable to 3\n')
    os.write(2, b'still waiting\n')
  os.write(2, b'afterwards\n')
  said = capfd.readouterr().err  # Whatever else this process says to its descriptor 2.
  assert said.index('still waiting\n') < said.index('afterwards\n')
  assert 'Set ray log level' not in said
  assert 'RAY_BACKEND_LOG_LEVEL' not in os.environ


def test_a_level_that_was_chosen_stays(monkeypatch):
  monkeypatch.setenv('RAY_BACKEND_LOG_LEVEL', 'debug')
  with joining.quiet():
    assert os.environ['RAY_BACKEND_LOG_LEVEL'] == 'debug'


def test_a_process_that_keeps_the_pipe_does_not_hold_up_the_program(monkeypatch):
  monkeypatch.setattr(joining, '_FLUSH_SECONDS', 0.01)
  with joining.quiet():
    held = subprocess.Popen(['cat'], stdin=subprocess.PIPE)
  held.communicate()


def test_what_a_program_does_at_sigterm_stays():
  before = signal.getsignal(signal.SIGTERM)
  with joining.signals_kept():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
  assert signal.getsignal(signal.SIGTERM) is before


def test_a_hint_comes_while_a_cluster_elsewhere_does_not_answer():
  hinted = threading.Event()
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(joining.warnings, 'warn', lambda *unused, **options: hinted.set())
    with joining.hint_after(0.0, 'head:1'):
      assert hinted.wait(600)
    hinted.clear()
    with joining.hint_after(600.0, 'head:1'):
      pass
  assert not hinted.is_set()


def test_an_address_where_nothing_listens_is_refused_before_ray_waits_for_it(monkeypatch):
  monkeypatch.setattr(joining, '_ANSWER_SECONDS', 0.1)
  with socket.socket() as bound:  # It does not listen, and nobody else can at its port.
    bound.bind(('127.0.0.1', 0))
    address = f'127.0.0.1:{bound.getsockname()[1]}'
    with pytest.raises(OSError):
      joining.await_listener(address)
    if importlib.util.find_spec('ray') is not None:
      monkeypatch.setattr('ray.is_initialized', lambda: False)
      monkeypatch.setenv('RAY_ADDRESS', address)
      for given, named in ((address, address), ('auto', rf'RAY_ADDRESS={address}')):
        expected = rf'no Ray cluster can be joined at .*{named}.*refused'
        with pytest.raises(errors.WorkerError, match=expected):
          joining.join(given, 1)
    bound.listen()
    joining.await_listener(address)


def test_an_address_that_ray_looks_up_is_left_to_it():
  for address in ('', 'ray://head:10001', 'auto'):
    joining.await_listener(address)
