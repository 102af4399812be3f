"""research/benchmark.py: what failed is reported, and before any measuring where it can be."""

import json
import sys
from concurrent import futures

import pytest

from research import benchmark


@pytest.fixture
def run(tmp_path, monkeypatch):
  """Runs the script with flags, in an empty folder."""
  monkeypatch.chdir(tmp_path)

  def main(*flags):
    return benchmark.main(['benchmark.py', '--workloads=W4', '--rounds=1', *flags])

  return main


@pytest.fixture
def fake(monkeypatch):
  """Rounds of half a second, but for stock_graph's third."""

  def do_round(workload, variant, device, r):
    if (variant, r) == ('stock_graph', 2):
      raise RuntimeError('ended: a | b')
    return {'seconds': 0.5, 'peak_mb': 2.0}

  monkeypatch.setattr(benchmark.children, 'do_round', do_round)
  monkeypatch.setattr(benchmark, 'process', lambda: futures.ThreadPoolExecutor(1))


def test_figures_are_written_and_what_failed_is_reported(run, fake, capsys):
  assert run('--variants=hand', '--json=figures.json') == 0
  with open('figures.json') as file:
    figures = json.load(file)['workloads']['W4']
  assert figures['hand']['seconds_median'] == 0.5
  assert run('--variants=hand,stock_graph') == 1
  table = capsys.readouterr().out
  assert '| W4 | hand | 0.500 | 0.500 | 1.00 |  | 0.0 | 2 |' in table
  assert '| W4 | stock_graph | failed: RuntimeError: ended: a \\| b |  |  |  |  |  |' in table


@pytest.mark.parametrize(
  'flag, message',
  [
    ('--variants=ours_graph+xla+bfloat16,nonsense', "unknown variant 'nonsense'"),
    ('--variants=ours_graph+nonsense', 'unknown variant'),
    ('--variants=ours_graph+lstm', 'is for --workloads=W3 alone'),
    ('--variants=', '--variants= is empty'),
    ('--workloads=W9', "unknown workloads ['W9']; there are W1, "),
    ('--beside=/', '/ has no .venv/bin/python: run `make env` there first.'),
    ('--json=/proc/x/y.json', '--json=/proc/x/y.json'),
  ],
)
def test_bad_input_is_one_line_before_measuring(run, monkeypatch, capsys, flag, message):
  monkeypatch.setattr(benchmark, 'process', None)
  assert run(flag) == 2
  error = capsys.readouterr().err
  assert error.startswith('benchmark.py: ')
  assert message in error
  assert error.count('\n') == 1


@pytest.mark.exhaustive
def test_rounds_are_measured_in_a_process_of_their_own(run, capsys):
  assert run('--variants=hand', '--device=cpu', '--json=figures.json') == 0
  with open('figures.json') as file:
    figures = json.load(file)['workloads']['W4']['hand']
  assert all(figures[name] > 0 for name in ('seconds_median', 'peak_memory_mb'))


def test_rounds_of_another_checkout_are_its_own(run, fake, tmp_path, capsys):
  """A checkout whose rounds take a quarter of a second, and which ends in the round after four."""
  (tmp_path / '.venv' / 'bin').mkdir(parents=True)
  (tmp_path / '.venv' / 'bin' / 'python').symlink_to(sys.executable)
  rounds = tmp_path / 'research' / 'benchmarks' / 'children.py'
  rounds.parent.mkdir(parents=True)
  rounds.write_text(
    'def do_round(workload, variant, device, r):\n'
    '  print("not an answer")\n'
    '  if r == 4:\n'
    '    raise SystemExit(3)\n'
    '  return dict(seconds=0.25, peak_mb=1.0)\n'
  )
  assert run('--variants=hand', f'--beside={tmp_path}', '--rounds=2') == 0
  lines = capsys.readouterr().out.splitlines()
  assert '| W4 | hand | 0.500 | 0.500 | 1.00 | 2.00 | 0.0 | 2 |' in lines
  assert '| W4 | hand beside | 0.250 | 0.250 | 0.50 |  | 0.0 | 1 |' in lines
  assert run('--variants=hand', f'--beside={tmp_path}', '--rounds=3') == 1
  assert (
    'hand beside | failed: RuntimeError: it ended with exit status 3' in capsys.readouterr().out
  )
