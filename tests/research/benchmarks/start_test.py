"""research/benchmarks/start.py: starts are compared without the first, and none that failed."""

import pytest

from research.benchmarks import start


def test_the_ratio_is_of_the_measured_starts_to_those_of_the_other_checkout(
  tmp_path, monkeypatch, capsys
):
  other = tmp_path / 'other'
  monkeypatch.setattr(start.other_checkout, 'python', lambda folder: folder)
  seconds = iter([90.0, 80.0, 3.0, 2.0, 5.0, 2.0])  # In turn; the first pair does not count.

  def measure(folder):
    first_row = next(seconds)
    return start.Start(first_row, 2 * first_row)

  monkeypatch.setattr(start, 'measure', measure)
  assert start.main(['start.py', f'--beside={other}', '--starts=2']) == 0
  here = capsys.readouterr().out.splitlines()[1].split()
  assert here == ['here', 'first', 'row', '4.0', '3.0', '2.0', '1.5']


def test_a_start_that_fails_is_no_measurement(tmp_path, monkeypatch):
  program = tmp_path / 'scripts' / 'train.py'
  program.parent.mkdir()
  program.write_text('raise SystemExit(3)')
  monkeypatch.setattr(start.other_checkout, 'python', lambda _: start.sys.executable)
  with pytest.raises(start.command.FailureError, match='exit status 3'):
    start.measure(str(tmp_path))


def test_another_checkout_without_an_environment_is_refused(tmp_path, capsys):
  assert start.main(['start.py', f'--beside={tmp_path}']) == 2
  assert 'make env' in capsys.readouterr().err
