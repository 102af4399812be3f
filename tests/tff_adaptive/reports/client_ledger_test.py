"""The report on ledgers: participation, drift and who diverged, of a ledger written by hand."""

import numpy as np
import pytest

from scripts import report as command
from tests.helpers import run_folders
from tff_adaptive.reports import client_ledger
from tff_adaptive.runs import groups, ledger, run as run_lib

# (round, client, outcome, norm, cosine, loss before, loss after).
ROWS = [
  (1, 'a', 'counted', 1.0, 0.9, 2.0, 1.0),
  (1, 'b', 'counted', 1.0, 0.7, 2.0, 1.5),
  (1, 'c', 'diverged', 0.0, np.nan, 2.0, np.nan),
  (2, 'a', 'counted', 1.0, 0.5, 1.0, 0.5),
  (2, 'b', 'late', np.nan, np.nan, np.nan, np.nan),
  (3, 'a', 'counted', 1.0, 0.3, 0.8, 0.4),
  (3, 'b', 'counted', 2.0, 0.1, 0.8, 0.2),
  (3, 'd', 'counted', 8.0, -0.5, 0.8, 0.0),
]
NAMES = ('round', 'client', 'outcome', 'update_norm', 'cosine_mean', 'loss_before', 'loss_after')


@pytest.fixture
def run(tmp_path):
  run_folders.make(tmp_path / 'run', [0.1, 0.5, 0.6, 0.7])
  written = ledger.Ledger(str(tmp_path / 'run'), 0)
  written.add([{**dict(zip(NAMES, row)), 'is_attacker': row[1] == 'd'} for row in ROWS])
  written.save()
  return run_lib.load_run(str(tmp_path / 'run'))


def test_its_tables_are_those_of_the_rows(run):
  participation, drift, standing_out = client_ledger.build(groups.group([run]), top=2).tables
  heading = ['', 'clients seen', 'updates that counted', 'diverged', 'late']
  assert list(participation.heading) == [*heading, 'fewest', 'median', 'most']
  # a counted three times, b twice, c never and d once.
  assert list(participation.rows[0][1:]) == ['4.0', '6.0', '1.0', '1.0', '0.0', '1.5', '3.0']
  columns = dict(zip(drift.heading, zip(*drift.rows)))
  assert columns['norm of update'] == ('1.0000', f'{11 / 3:.4f}')
  assert columns['cosine to mean'] == ('0.8000', '-0.0333')
  assert columns['loss before'] == ('2.0000', '0.8000')
  assert columns['loss after'] == ('1.2500', '0.2000')
  assert 'staleness' not in columns
  # c diverged; of round 3, whose median norm is 2, d has four times that.
  names = [row[0].rpartition(': ')[2] for row in standing_out.rows]
  assert names == ['c', 'd']
  assert list(standing_out.rows[0][1:]) == ['1', '1', '', '', '']
  assert list(standing_out.rows[1][1:]) == ['1', '0', '4.00', '-0.50', 'yes']


def test_the_curve_has_the_median_norm_of_each_round(run):
  built = client_ledger.build(groups.group([run]), top=1)
  lines = built.data.splitlines()
  assert [line.rpartition(',')[0].rpartition(',')[2] for line in lines[1:]] == ['1', '1', '2']


def test_the_command_writes_it_and_a_run_without_a_ledger_is_one_line(run, tmp_path, capsys):
  assert command.main(['report.py', run.folder, '--form=ledger', '--top=1']) == 0
  assert 'Clients that stand out' in capsys.readouterr().out
  run_folders.make(tmp_path / 'other', [0.1, 0.5])
  assert command.main(['report.py', str(tmp_path / 'other'), '--form=ledger']) == 2
  error = capsys.readouterr().err
  assert 'has no ledger: train with ledger' in error
  assert error.count('\n') == 1
