"""bench.py as a user runs it, with runs that are computed in place of trained."""

import csv
import json

import pytest

from scripts import bench
from scripts.comparison import methods, rows, runs
from tests.helpers import bench_rows

MINE = """
import dataclasses

from tff_adaptive.corrections import base


@dataclasses.dataclass(frozen=True)
class Mine(base.Correction):
  name = 'mine'
  strength: float = 1.0
"""


@pytest.fixture
def trained(monkeypatch):
  """The keys of the runs that were trained."""
  keys = []

  def train(key, method, point, data_dir):
    keys.append(key)
    if key.problem == 'sonnets':
      return rows.Row(*key, point=rows.in_words(point), status=rows.REFUSED, reason='no classes')
    return bench_rows.row_of(key, point, 0.8, code=method.digest())

  monkeypatch.setattr(runs, 'train', train)
  return keys


@pytest.fixture
def stored(tmp_path):
  """The path of stored rows of FedAvg."""
  whole = {}
  for problem in ('digits', 'tumours'):
    whole.update(bench_rows.cell(problem, bench_rows.fed_avg(), 0.7))
  path = str(tmp_path / 'stored.csv')
  rows.write(path, whole.values())
  return path


@pytest.fixture
def mine(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / 'mine.py').write_text(MINE)
  of_each = '  def personal(self, client_state, theta):\n    return theta\n'
  (tmp_path / 'personal.py').write_text(MINE.replace('class Mine', 'class Personal') + of_each)
  return 'mine.py:Mine'


def test_a_method_gets_a_page_and_the_same_command_goes_on(trained, stored, mine, capsys, tmp_path):
  command = ['bench.py', mine, '--problems=digits,tumours', f'--rows={stored}']
  assert bench.main(command) == 0
  assert len(trained) == 2 * (4 + 3)
  printed, progress = capsys.readouterr()
  assert '| digits, few labels, % | 80.0 ± 2.0 | 70.0 ± 2.0 |' in printed
  assert 'In runs/bench/Mine: bench.md, bench.html, bench.csv, bench.png, rows.csv' in printed
  assert '14/14 tumours mine.py:Mine final 3: done' in progress
  folder = tmp_path / 'runs' / 'bench' / 'Mine'
  with open(folder / 'rows.csv', encoding='utf-8') as file:
    assert len(list(csv.DictReader(file))) == 14
  assert bench.main([*command, '--json']) == 0
  assert len(trained) == 14  # Nothing was done again.
  record = json.loads(capsys.readouterr().out)
  assert record['subjects'] == ['mine.py:Mine']
  values = record['methods']['mine.py:Mine']['problems']['digits']['values']
  assert values == pytest.approx({'1': 0.8, '2': 0.82, '3': 0.78})


def test_a_run_that_is_missing_is_done_and_a_changed_file_makes_all_again(
  trained, stored, mine, capsys, tmp_path
):
  command = ['bench.py', mine, '--problems=digits', f'--rows={stored}']
  assert bench.main(command) == 0
  path = str(tmp_path / 'runs' / 'bench' / 'Mine' / 'rows.csv')
  whole = rows.read(path)
  last = [*whole][-1]
  del whole[last]
  rows.write(path, whole.values())
  trained.clear()
  assert bench.main(command) == 0
  assert trained == [last]
  (tmp_path / 'mine.py').write_text(MINE + '# Changed.\n')
  trained.clear()
  assert bench.main(command) == 0
  assert len(trained) == 7
  assert '7 runs are made again: the method has changed since.' in capsys.readouterr().err


def test_a_method_without_meaning_on_a_problem_has_no_values_there(trained, stored, mine, capsys):
  command = ['bench.py', mine, f'--rows={stored}']
  assert bench.main([*command, '--problems=digits,sonnets']) == 0
  assert 'Not possible on sonnets: no classes.' in capsys.readouterr().out
  assert sum(key.problem == 'sonnets' for key in trained) == 1  # Not tried again and again.
  assert bench.main([*command, '--problems=sonnets']) == 2
  assert 'mine.py:Mine has no meaning on these problems: no classes' in capsys.readouterr().err


@pytest.mark.parametrize(
  'arguments, words',
  [
    ([], 'name a method: FILE.py:NAME, or --algorithm=fed_adam'),
    (['fed_avg'], 'give FILE.py:NAME, or --algorithm=fed_avg'),
    (['--algorithm=fed_avgg'], 'fed_avg'),
    (['--algorithm=ditto'], '--algorithm=ditto: its result is a model for each client'),
    (['mine.py:Other'], 'defines no Other'),
    (['personal.py:Personal'], 'personal.py:Personal: its result is a model for each client'),
    (['mine.py:Mine', '--problems=digit'], '--problems'),
    (['mine.py:Mine', '--problems=mnist'], '--problems=mnist needs a folder with mnist.npz or'),
    (['mine.py:Mine', '--data_dir=nowhere'], '--data_dir=nowhere is no folder'),
    (['mine.py:Mine', '--budget=large'], '--budget'),
    (['mine.py:Mine', '--search=strength=1,2'], '--search needs --budget=full'),
    (['mine.py:Mine', '--budget=full', '--search=strength=1'], 'write it as NAME=LOW,HIGH'),
    (['mine.py:Mine', '--budget=full', '--search=strenght=1,2'], 'strength'),
    (['mine.py:Mine', '--set=rounds=3'], 'the protocol sets rounds'),
    (['mine.py:Mine', '--set=rounds'], 'write it as NAME=VALUE'),
    (['mine.py:Mine', '--set=clip=3'], 'unknown flag --clip'),
    (['--algorithm=all', '--set=clip_norm=1'], 'give no options'),
    (['--algorithm=scaffold,moon,scaffold'], 'both are called scaffold: name it once'),
    (['--rerun=digits/fed_avg/small/final/9'], 'has no such row; an example is'),
    (['--verify=0'], '--verify must be'),
  ],
)
def test_what_is_refused_leaves_nothing_behind(
  trained, stored, mine, capsys, tmp_path, arguments, words
):
  before = sorted(path.name for path in tmp_path.iterdir())
  assert bench.main(['bench.py', f'--rows={stored}', *arguments]) == 2
  printed, error = capsys.readouterr()
  assert (words in error, printed) == (True, ''), error
  assert error.count('\n') == 1
  assert not trained
  assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_the_rows_of_all_built_in_methods(trained, capsys, tmp_path):
  folder = tmp_path / 'all'
  stored = f'--rows={folder}/rows.csv'
  command = ['bench.py', '--algorithm=all', '--problems=tumours', f'--output_dir={folder}', stored]
  assert bench.main(command) == 0
  assert {key.method for key in trained} == {method.key for method in methods.built_in()}
  text = (folder / 'bench.md').read_text()
  assert text.startswith('# All built-in methods on the bench\n')
  assert 'Without values' not in text


def test_a_page_has_the_digits_of_the_file_as_a_later_page_does(monkeypatch, tmp_path):
  count = 0

  def train(key, method, point, data_dir):
    nonlocal count
    count += 1
    return bench_rows.row_of(key, point, 0.8 + 1e-9 * count)

  monkeypatch.setattr(runs, 'train', train)
  command = ['bench.py', '--algorithm=all', '--problems=tumours', f'--output_dir={tmp_path}']
  command.append('--rows=none.csv')
  assert bench.main(command) == 0
  page = (tmp_path / 'bench.md').read_text()
  assert bench.main([*command, '--report_only']) == 0
  assert (tmp_path / 'bench.md').read_text() == page


def test_a_page_of_the_runs_that_are_done(trained, capsys, tmp_path):
  whole = bench_rows.cell('digits', bench_rows.fed_avg(), 0.7)
  rows.write(str(tmp_path / 'rows.csv'), whole.values())
  command = ['bench.py', '--algorithm=all', '--report_only', '--problems=digits,tumours']
  assert bench.main([*command, f'--output_dir={tmp_path}', '--rows=none.csv']) == 0
  assert not trained
  text = (tmp_path / 'bench.md').read_text()
  assert '| FedAvg |  | 70.0 ± 2.0 |  |' in text
  assert 'Without values on all of these problems: fed_avg, fed_avgm,' in text


def test_stored_rows_are_made_again_and_compared(trained, stored, capsys, monkeypatch):
  command = ['bench.py', f'--rows={stored}']
  assert bench.main([*command, '--verify=3']) == 1  # Stored with 0.7, now 0.8.
  assert capsys.readouterr().out.count('DIFFERS') == 3
  first = trained[:]
  monkeypatch.setattr(
    runs, 'train', lambda key, method, point, data_dir: bench_rows.row_of(key, point, 0.7)
  )
  assert bench.main([*command, '--verify=3']) == 0
  printed = capsys.readouterr().out
  assert '3 of 3 rows are the same.' in printed
  assert all(str(key) in printed for key in first)  # The same seed draws the same rows.
  assert bench.main([*command, '--rerun=tumours/fed_avg/small/final/2']) == 0
  assert 'stored 0.72, now 0.72: same' in capsys.readouterr().out


def test_the_list_has_problems_methods_and_rows(stored, capsys):
  assert bench.main(['bench.py', '--list', f'--rows={stored}']) == 0
  printed = capsys.readouterr().out
  assert '  fed_avg: FedAvg, 14 rows\n' in printed
  assert '  least_squares: random linear regression' in printed
  assert '  scaffnew: it needs all clients' in printed


def test_a_page_without_stored_rows_of_its_budget_says_so(trained, stored, mine, capsys, tmp_path):
  command = ['bench.py', mine, '--problems=tumours', f'--rows={stored}', f'--output_dir={tmp_path}']
  assert bench.main(command) == 0
  assert 'no row is of these problems' not in capsys.readouterr().err
  assert bench.main([*command, '--budget=full']) == 0
  assert 'no row is of these problems and --budget=full' in capsys.readouterr().err


def test_a_page_of_some_runs_says_which_are_missing(trained, stored, mine, capsys, tmp_path):
  command = ['bench.py', mine, '--problems=digits,tumours', f'--rows={stored}']
  command.append(f'--output_dir={tmp_path}')
  assert bench.main(command) == 0
  known = rows.read(str(tmp_path / 'rows.csv'))
  lost = [key for key in known if key.problem == 'digits' and key.stage == rows.FINAL]
  rows.write(str(tmp_path / 'rows.csv'), [known[key] for key in known if key != lost[0]])
  capsys.readouterr()
  assert bench.main([*command, '--report_only']) == 0
  assert 'is not on the page for digits: 1 of its runs are missing' in capsys.readouterr().err


def test_verify_draws_from_the_problems_that_are_named(trained, stored, capsys):
  command = ['bench.py', '--verify=20', f'--rows={stored}', '--problems=tumours']
  bench.main(command)
  assert {key.problem for key in trained} == {'tumours'}
