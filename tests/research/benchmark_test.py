"""research/benchmark.py: what failed is reported, and before any measuring where it can be."""

import json
import subprocess
import sys

import pytest

from research import benchmark
from research.benchmarks import children, host, names


@pytest.fixture
def run(tmp_path, monkeypatch):
  """Runs the script with flags, in an empty folder, on a busy machine."""
  monkeypatch.chdir(tmp_path)
  busy = host.State(load=4.0, busy=0.5, stolen=0.0, total=10.0)
  monkeypatch.setattr(host, 'state_now', lambda: busy)

  def main(*flags):
    return benchmark.main(['benchmark.py', '--workloads=W4', '--rounds=1', *flags])

  return main


class _Child:
  """Does rounds itself, but for stock_graph's third."""

  def __init__(self, unused_work, variant, *_):
    self._left = 2 if variant == 'stock_graph' else 99

  def round(self):
    self._left -= 1
    if self._left < 0:
      raise RuntimeError('ended: a | b')
    return {'seconds': 0.5, 'peak_mb': 2.0}

  def end(self):
    """Ends nothing."""


def test_figures_are_written_and_what_failed_is_reported(run, monkeypatch, capsys):
  monkeypatch.setattr(children, 'Child', _Child)
  assert run('--variants=hand', '--json=figures.json') == 0
  with open('figures.json') as file:
    figures = json.load(file)['workloads']['W4']
  assert figures['hand']['seconds_median'] == 0.5
  assert run('--variants=hand,stock_graph') == 1
  table = capsys.readouterr().out
  assert '| W4 | hand | 0.500 | 0.500 | 1.00 | 0.0 | 2 |' in table
  assert '| W4 | stock_graph | failed: ended: a \\| b |  |  |  |  |' in table


def test_a_peer_that_is_not_here_is_skipped_and_a_busy_machine_is_reported(
  run, monkeypatch, capsys
):
  monkeypatch.setattr(children, 'Child', _Child)
  monkeypatch.setattr(names, 'peer_python', lambda name: names.ROOT / 'nowhere' / name)
  assert run('--variants=hand,pfl', '--json=figures.json') == 0
  shown = capsys.readouterr()
  assert f'| W4 | pfl | skipped: there is no {names.ROOT}/nowhere/pfl: sh ' in shown.out
  assert 'W4: not quiet: other processes used 50% of the processors before' in shown.err
  with open('figures.json') as file:
    written = json.load(file)
  assert written['host']['W4']['load_before'] == 4.0
  assert written['peers'] == {}


@pytest.mark.parametrize(
  'flag, message',
  [
    ('--variants=ours_graph+xla+bfloat16,nonsense', "unknown variant 'nonsense'"),
    ('--variants=ours_graph+nonsense', 'unknown variant'),
    ('--variants=ours_graph+lstm', 'is for models with LSTMs, found W4'),
    ('--variants=', '--variants= is empty'),
    ('--workloads=W9', "unknown workloads ['W9']; there are W1, "),
    ('--workloads=W4,digits_real', '--data_dir is needed for digits_real'),
    ('--json=/proc/x/y.json', '--json=/proc/x/y.json'),
  ],
)
def test_bad_input_is_one_line_before_measuring(run, monkeypatch, capsys, flag, message):
  monkeypatch.setattr(children, 'Child', None)
  assert run(flag) == 2
  error = capsys.readouterr().err
  assert error.startswith('benchmark.py: ')
  assert message in error
  assert error.count('\n') == 1


@pytest.mark.slow
def test_the_last_words_of_a_child_are_in_the_table_and_the_exit_code_is_1(tmp_path):
  flags = ['--workloads=digits_real', '--variants=ours_graph', f'--data_dir={tmp_path}']
  command = [sys.executable, '-m', benchmark.__name__, *flags]
  done = subprocess.run(command, capture_output=True, text=True)
  assert done.returncode == 1
  assert f'DataError: there is no emnist_all.sqlite in {tmp_path}' in done.stdout
