"""scripts/partition_report.py, as a user runs it."""

from scripts import partition_report


def test_partition_report_of_classes_and_of_numbers(tmp_path, capsys):
  output = tmp_path / 'sub' / 'digits'
  assert partition_report.main(['x', '--task=digits', f'--output={output}']) == 0
  assert 'total variation' in capsys.readouterr().out
  assert (tmp_path / 'sub' / 'digits.png').stat().st_size > 5000
  assert partition_report.main(['x', '--task=least_squares', f'--output={output}']) == 0
  assert 'total variation' not in capsys.readouterr().out
  assert partition_report.main(['x', '--task=digit']) == 2
