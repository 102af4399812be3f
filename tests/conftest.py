"""What holds for all tests."""

import psutil


def pytest_sessionfinish(session, exitstatus):
  """Ends the TFF workers of the tests, which outlive their parent and keep its output open.

  They are not waited for: the `subprocess.Popen` that TFF holds does that.
  """
  del session, exitstatus
  for child in psutil.Process().children():
    if child.name() == 'worker_binary':
      child.kill()
