"""Two signals: the first asks for the end of a run, the second does not wait for it."""

import os
import signal
import time

from scripts.cli import signals


def test_the_first_signal_asks_for_the_end_and_the_second_ends_at_once(monkeypatch):
  said = []
  monkeypatch.setattr(os, '_exit', said.append)
  signal.signal(signal.SIGHUP, signal.SIG_DFL)  # These tests may run under nohup.
  before = [signal.getsignal(number) for number in signals.SIGNALS]
  with signals.StopGuard(lambda: said.append('aborted')) as stop:
    stop.announce = said.append
    assert {signal.getsignal(number) for number in signals.SIGNALS} == {signals._ignore}
    writer = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(writer)
    os.write(writer, bytes([signal.SIGCHLD, signal.SIGTERM, signal.SIGINT]))
  line = 'Ending and saving after this round. A second signal ends the run at once.'
  assert (stop.requested, said) == (True, [line, 'aborted', 128 + signal.SIGTERM])
  assert [signal.getsignal(number) for number in signals.SIGNALS] == before
  assert signal.set_wakeup_fd(-1) == -1


def test_a_child_that_a_user_forks_and_keeps_is_not_waited_for():
  with signals.StopGuard():
    child = os.fork() or (time.sleep(60), os._exit(0))
  assert os.waitpid(child, os.WNOHANG) == (0, 0)  # It still runs.
  os.kill(child, signal.SIGKILL)
  os.waitpid(child, 0)


def test_a_hangup_that_is_ignored_stays_ignored():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  try:
    with signals.StopGuard() as stop:
      os.kill(os.getpid(), signal.SIGHUP)
      assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    assert not stop.requested
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
  finally:
    signal.signal(signal.SIGHUP, before)
