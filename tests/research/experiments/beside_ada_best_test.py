"""research/experiments/beside_ada_best.py: our row stands over the paper's."""

import pytest

from research.experiments import beside_ada_best


def test_each_row_of_the_paper_is_under_ours(tmp_path):
  name = tmp_path / 'letters'
  (tmp_path / 'letters.csv').write_text(
    'participation,task option,FedAvg,AdaBest\n'
    '10 %,"num_clients=110, alpha=inf",91.0 ± 0.1,92.0\n'
    '1 %,"num_clients=1100, alpha=0.3",93.0,94.0\n'
  )
  (tmp_path / 'letters_not_clipped.csv').write_text(
    'participation,task option,SCAFFOLD\n10 %,"num_clients=110, alpha=inf",90.5\n'
  )
  assert beside_ada_best.main(['', f'--results={name}']) == 0
  lines = (tmp_path / 'letters.md').read_text().splitlines()
  cells = [[cell.strip() for cell in line.split('|')[1:-1]] for line in lines if '|' in line]
  assert cells[0] == [
    *('participation', 'clients', 'from', 'FedAvg', 'FedDyn', 'SCAFFOLD', 'AdaBest'),
    'SCAFFOLD, not clipped',
  ]
  assert cells[2:] == [
    ['1 %', 'alpha = 0.3', 'here', '93.0', '', '', '94.0', ''],
    ['1 %', 'alpha = 0.3', 'paper', '94.47', '92.64', '94.34', '94.72', ''],
    ['10 %', 'IID', 'here', '91.0 ± 0.1', '', '', '92.0', '90.5'],
    ['10 %', 'IID', 'paper', '94.32', '93.60', '94.62', '94.70', ''],
  ]


def test_the_tables_must_be_there(tmp_path, capsys):
  assert beside_ada_best.main(['', f'--results={tmp_path / "letters"}']) == 2
  assert 'run.sh DIR writes it' in capsys.readouterr().err


@pytest.mark.parametrize('published', beside_ada_best.PUBLISHED.values())
def test_every_row_of_the_paper_has_its_four_algorithms(published):
  assert list(published) == ['FedAvg', 'FedDyn', 'SCAFFOLD', 'AdaBest']
