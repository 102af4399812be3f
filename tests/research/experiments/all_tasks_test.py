"""research/experiments/all_tasks.py, as a user runs it."""

import json

from research.experiments import all_tasks
from tff_adaptive.runs import run as run_lib


def test_all_tasks_has_a_row_for_a_run_of_one_round(tmp_path):
  (tmp_path / 'summary.json').write_text('{"peak_memory_mb": 5}')
  settings = {'task': 'digits', 'algorithm': 'fed_avg', 'rounds': 1, 'clients_per_round': 2}
  row = {'train_loss': 2, 'seconds_round': 3, 'seconds_data': 1, 'examples': 8, 'clients': 2}
  rows = [{'round': 0, 'validation_loss': 2}, {'round': 1, 'validation_loss': 1, **row}]
  run = run_lib.Run(str(tmp_path), {'settings': settings, 'num_parameters': 7}, rows)
  *_, seconds, share, peak = all_tasks._row(run)
  assert (seconds, share, peak) == ('3.00', '', '5')


def test_all_tasks_makes_a_table_and_skips_what_is_complete(tmp_path, capsys):
  arguments = ['x', '--tasks=digits', '--algorithms=fed_avg', '--rounds=3']
  arguments += [f'--output_dir={tmp_path / "runs"}', f'--results={tmp_path / "tasks"}']
  assert all_tasks.main(arguments) == 0
  table = (tmp_path / 'tasks.md').read_text()
  assert '| digits, fed_avg | ' in table
  command = 'all_tasks --tasks=digits --algorithms=fed_avg --rounds=3'
  assert f'Made by `python -m research.experiments.{command} --data_dir=DIR`.' in table
  capsys.readouterr()
  assert all_tasks.main(arguments) == 0
  assert 'complete already' in capsys.readouterr().err
  assert (tmp_path / 'tasks.md').read_text() == table
  summary = next((tmp_path / 'runs').rglob('summary.json'))
  assert json.loads(summary.read_text())['peak_memory_mb'] > 100
  assert all_tasks.main(['x', '--tasks=digit']) == 2
  capsys.readouterr()
  assert all_tasks.main([*arguments, '--tasks=digits,least_squares', '--seed=-1']) == 2
  assert capsys.readouterr().err.count('--seed') == 1  # Reported once, not for each task.
