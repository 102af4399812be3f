"""scripts/train_centralized.py, partition_report.py and all_tasks.py, as a user runs them."""

import csv
import json
import signal
import subprocess
import sys

import numpy as np
import pytest

from scripts import all_tasks, partition_report, train_centralized
from tasks import partition_report as numbers
from tff_adaptive.reports import runs


def _columns(folder):
  with open(folder / 'metrics.csv', newline='', encoding='utf-8') as file:
    return [
      {k: v for k, v in row.items() if not k.startswith('seconds_')} for row in csv.DictReader(file)
    ]


def _centralized(folder, *more):
  flags = ['--optimizer=adam,sgd', '--learning_rate=0.01', '--batch_size=50', *more]
  return train_centralized.main(['train_centralized.py', f'--output_dir={folder}', *flags])


def test_centralised_runs_learn_and_resume_to_the_same_numbers(tmp_path, capsys):
  whole, halves = tmp_path / 'whole', tmp_path / 'halves'
  assert _centralized(whole, '--epochs=4') == 0
  assert 'adam' in capsys.readouterr().out
  rows = _columns(whole / 'adam_0.01')
  assert float(rows[-1]['validation_accuracy']) > float(rows[0]['validation_accuracy']) + 0.3
  assert (whole / 'centralized.md').exists()
  assert _centralized(halves, '--epochs=2') == 0
  assert _centralized(halves, '--epochs=4') == 0
  for name in ('adam_0.01', 'sgd_0.01'):
    assert _columns(halves / name) == _columns(whole / name)
  with open(halves / 'sgd_0.01' / 'config.json') as file:
    assert json.load(file)['changes'][0]['rounds'] == [2, 4]
  before = (whole / 'sgd_0.01' / 'config.json').read_bytes()
  assert _centralized(whole, '--epochs=3') == 2
  assert 'has done 4 rounds already' in capsys.readouterr().err
  assert (whole / 'sgd_0.01' / 'config.json').read_bytes() == before
  # What is complete stands for the same settings only.
  capsys.readouterr()
  for flag, words in (
    ('--seed=1', '--seed was 0 and is now 1'),
    ('--task=least_squares', "--task was 'digits' and is now 'least_squares'"),
    ('--tau=0.5', '--tau was 0.001 and is now 0.5'),
  ):
    assert _centralized(whole, '--epochs=4', flag) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert 'another --output_dir' in captured.err
    assert captured.out == ''


def test_a_centralised_baseline_of_a_task_without_accuracy_says_no_more_than_its_table(tmp_path):
  command = [sys.executable, train_centralized.__file__, '--task=least_squares', '--epochs=2']
  command += ['--optimizer=sgd', '--learning_rate=0.001', f'--output_dir={tmp_path}/x']
  done = subprocess.run(command, capture_output=True, text=True, timeout=200)
  assert done.returncode == 0, done.stderr
  assert 'validation loss' in done.stdout
  assert 'Exception ignored' not in done.stderr  # TFF's own clean-up.
  assert 'Traceback' not in done.stderr


@pytest.mark.parametrize(
  ('flag', 'words'),
  [
    ('--task=digit', 'did you mean'),
    ('--optimizer=adamw', 'adam'),
    ('--learning_rate=x', 'numbers'),
    ('--learning_rate=0.1,0.10', 'share the folder'),
    ('--epochs=0', '1 or more'),
    ('--tau=0', 'tau'),
  ],
)
def test_centralised_refuses_bad_input(tmp_path, capsys, flag, words):
  arguments = ['train_centralized.py', f'--output_dir={tmp_path / "x"}', flag]
  assert train_centralized.main(arguments) == 2
  assert words in capsys.readouterr().err.lower()
  assert not (tmp_path / 'x').exists()


def test_partition_report_of_classes_and_of_numbers(tmp_path, capsys):
  output = tmp_path / 'sub' / 'digits'
  assert partition_report.main(['x', '--task=digits', f'--output={output}']) == 0
  assert 'total variation' in capsys.readouterr().out
  assert (tmp_path / 'sub' / 'digits.png').stat().st_size > 5000
  assert partition_report.main(['x', '--task=least_squares', f'--output={output}']) == 0
  assert 'total variation' not in capsys.readouterr().out
  assert partition_report.main(['x', '--task=digit']) == 2


def test_a_command_ends_quietly_on_ctrl_c():
  program = 'command.run(lambda arguments: (print("here", flush=True), time.sleep(60)))'
  process = subprocess.Popen(
    [sys.executable, '-c', f'import time; from scripts import command; {program}'],
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'here\n'
  process.send_signal(signal.SIGINT)
  assert process.communicate(timeout=20) == ('', '-c: interrupted.\n')
  assert process.returncode == 130


def test_all_tasks_has_a_row_for_a_run_of_one_round(tmp_path):
  (tmp_path / 'summary.json').write_text('{"peak_memory_mb": 5}')
  settings = {'task': 'digits', 'algorithm': 'fed_avg', 'rounds': 1, 'clients_per_round': 2}
  row = {'train_loss': 2, 'seconds_round': 3, 'seconds_data': 1, 'examples': 8, 'clients': 2}
  rows = [{'round': 0, 'validation_loss': 2}, {'round': 1, 'validation_loss': 1, **row}]
  run = runs.Run(str(tmp_path), {'settings': settings, 'num_parameters': 7}, rows)
  *_, seconds, share, peak = all_tasks._row(run)
  assert (seconds, share, peak) == ('3.00', '', '5')


def test_numbers_of_known_counts():
  counts = numbers.counts_by_client([np.array([0, 0, 1]), np.array([2])])
  np.testing.assert_array_equal(counts, [[2, 1, 0], [0, 0, 1]])
  found = numbers.report_of_counts(counts)
  assert found['clients'] == 2
  assert found['classes_per_client'] == 1.5
  assert found['largest_class_share'] == pytest.approx((2 / 3 + 1) / 2)
  # |2/3-1/2| + |1/3-1/4| + 1/4 = 1/2; 1/2 + 1/4 + 3/4 = 3/2; halved and averaged.
  assert found['total_variation'] == pytest.approx((0.25 + 0.75) / 2)


def test_all_tasks_makes_a_table_and_skips_what_is_complete(tmp_path, capsys):
  arguments = ['x', '--tasks=digits', '--algorithms=fed_avg', '--rounds=3']
  arguments += [f'--output_dir={tmp_path / "runs"}', f'--results={tmp_path / "tasks"}']
  assert all_tasks.main(arguments) == 0
  table = (tmp_path / 'tasks.md').read_text()
  assert '| digits, fed_avg | ' in table
  command = 'python scripts/all_tasks.py --tasks=digits --algorithms=fed_avg --rounds=3'
  assert f'Rates are the defaults of each task. Made by `{command}`;' in table
  capsys.readouterr()
  assert all_tasks.main(arguments) == 0
  assert 'complete already' in capsys.readouterr().err
  assert (tmp_path / 'tasks.md').read_text() == table
  summary = next((tmp_path / 'runs').rglob('summary.json'))
  assert json.loads(summary.read_text())['peak_memory_mb'] > 100
  assert all_tasks.main(['x', '--tasks=digit']) == 2
  capsys.readouterr()
  assert all_tasks.main([*arguments, '--tasks=digits,least_squares', '--seed=-1']) == 2
  assert capsys.readouterr().err.count('--seed') == 1  # Told once, not for each task.
