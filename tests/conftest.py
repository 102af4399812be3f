"""What holds for all tests."""

import signal

import psutil


def pytest_configure(config):
  """Makes SIGINT act as usual, also in the programs that tests start.

  A shell starts background jobs with SIGINT ignored, and its children inherit that: a test run as
  such a job would see programs that cannot be interrupted, and TFF waits for a worker that it has
  interrupted.
  """
  del config
  if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionfinish(session, exitstatus):
  """Ends the TFF workers of the tests, which outlive their parent and keep its output open.

  They are not waited for: the `subprocess.Popen` that TFF holds does that.
  """
  del session, exitstatus
  for child in psutil.Process().children():
    if child.name() == 'worker_binary':
      child.kill()
