"""One table in all formats: the same cells, with what each format needs escaped."""

import csv
import io
import xml.etree.ElementTree as ET

import pytest

from tff_adaptive.reports import table as table_lib

TABLE = table_lib.Table(
  ['', 'a_b', 'c & d'],
  [['x|y', '1.00 ± 0.50', '50 %'], ['<z>', '', 'diverged']],
  frozenset({(0, 1), (1, 1)}),
  title='Means, %',
  note='Best of #2.',
)


def test_markdown():
  assert TABLE.markdown().splitlines() == [
    '**Means, %**',
    '',
    '|  | a_b | c & d |',
    '| --- | ---: | ---: |',
    r'| x\|y | **1.00 ± 0.50** | 50 % |',
    '| &lt;z> |  | diverged |',
    '',
    'Best of #2.',
  ]


def test_latex_escapes_what_latex_reads():
  lines = TABLE.latex().splitlines()
  assert r'\caption{Means, \%. Best of \#2.}' in lines
  assert r'\begin{tabular}{lrr}' in lines
  assert r'   & a\_b & c \& d \\' in lines
  assert r'  x|y & \textbf{1.00 $\pm$ 0.50} & 50 \% \\' in lines
  assert [line.strip() for line in lines if 'rule' in line] == [
    r'\toprule',
    r'\midrule',
    r'\bottomrule',
  ]
  # Every row has as many cells as there are columns.
  assert all(line.replace(r'\&', '').count('&') == 2 for line in lines if line.endswith(r'\\'))


def test_html_holds_the_cells():
  root = ET.fromstring(f'<div>{TABLE.html()}</div>')
  cells = [[''.join(cell.itertext()) for cell in row] for row in root.iter('tr')]
  assert cells == [list(TABLE.heading), *map(list, TABLE.rows)]
  assert [b.text for b in root.iter('b')] == ['1.00 ± 0.50']  # An empty cell is not bold.


@pytest.mark.parametrize(
  'value, cell',
  [
    ('=1+1', "'=1+1"),
    ('@SUM(A1)', "'@SUM(A1)"),
    ('-1+1', "'-1+1"),
    ('+cmd', "'+cmd"),
    ('-1.2e-06 ± 3e-07', '-1.2e-06 ± 3e-07'),
    ('-inf', '-inf'),
    ('-0.50 (1 of 2 diverged)', '-0.50 (1 of 2 diverged)'),
    (-1 / 3, '-0.333333'),
    (-3, '-3'),
    ('a,b', 'a,b'),
  ],
)
def test_no_text_is_a_formula_in_csv(value, cell):
  assert list(csv.reader(io.StringIO(table_lib.csv_text([['', value]])))) == [['', cell]]
