"""A damaged sweep is refused, with exit code 2 and the file's name, or ends with the same table.

The file of drawn trials has no checksums: after a damage to it the table may differ.
"""

import random
import shutil

import pytest

pytest.importorskip('optuna')
from scripts import sweep
from scripts.cli import study
from tests.faults import small_run
from tests.helpers import sweep_pool

COMMANDS = {
  'grid': '--grid=client_learning_rate=0.1,0.2,0.3 --grid=seed=0,1 -- --rounds=4',
  'asha': (
    '--search=random --trials=5 --prune=asha --first_rung=1 --reduction_factor=2'
    ' --range=client_learning_rate=0.01,1,log -- --rounds=4 --rounds_per_evaluation=1'
  ),
}


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
  """What runs a command by its name; its exit code, its runs, its last line and its table."""

  def run(of):
    pool = sweep_pool.Runs(lambda s: 0.5 + 0.1 * s.flat()['client_learning_rate'])
    sweep_pool.install(monkeypatch, pool)
    capsys.readouterr()
    code = sweep.main(['sweep.py', f'--output_dir={tmp_path}/sweep', *COMMANDS[of].split()])
    lines = capsys.readouterr().err.splitlines()
    table = (tmp_path / 'sweep' / 'sweep.md').read_text()
    return code, len(pool.settings), (lines or [''])[-1], table

  return run


@pytest.mark.parametrize('of', [*COMMANDS])
@pytest.mark.exhaustive
def test_a_damaged_study_is_refused_or_the_table_is_the_same(of, tmp_path, command):
  code, runs, _, table = command(of)
  assert (code, runs >= 5) == (0, True)
  copy = shutil.copytree(tmp_path / 'sweep', tmp_path / 'kept')
  rng = random.Random(of)
  for kind in 2 * small_run.KINDS:
    shutil.rmtree(tmp_path / 'sweep')
    shutil.copytree(copy, tmp_path / 'sweep')
    small_run.damage(tmp_path / 'sweep' / study.FILE, kind, rng)
    code, runs, line, printed = command(of)
    if code == 2:
      assert runs == 0, f'{kind}: {runs} runs, and then: {line}'
      assert str(tmp_path / 'sweep') in line, f'{kind}: {line}'
    else:
      assert code == 0, f'{kind}: {line}'
      assert printed == table or of != 'grid', f'{kind}: another table, without a word'


@pytest.mark.parametrize(
  'harm', [lambda lines: [], lambda lines: lines[:-1], lambda lines: lines[:2] + lines[3:]]
)
@pytest.mark.sample(1)
def test_a_complete_run_with_damaged_rows_is_no_part_of_a_mean(harm, tmp_path, command):
  command('grid')
  path = tmp_path / 'sweep' / 'client_learning_rate=0.2,seed=1' / 'metrics.csv'
  path.write_text(''.join(harm(path.read_text().splitlines(keepends=True))))
  code, runs, line, _ = command('grid')
  assert (code, runs) == (2, 0)
  assert str(path.parent) in line
