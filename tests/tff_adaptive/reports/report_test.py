"""One table in all formats, with what each needs escaped; numbers in tables."""

import csv
import io
import math
import xml.etree.ElementTree as ET

import pytest

from tff_adaptive.reports import figures, report, scores

TABLE = report.Table(
  ['', 'a_b', 'c & d'],
  [['x|y', '1.00 ± 0.50', '50 %'], ['<z>[a](x)', '', 'diverged']],
  frozenset({(0, 1), (1, 1)}),
  title='Means, %',
  note='Best of #2.',
)


def test_markdown_has_a_cell_in_one_line():
  assert TABLE.markdown().splitlines() == [
    '**Means, %**',
    '',
    '|  | a_b | c & d |',
    '| --- | ---: | ---: |',
    r'| x\|y | **1.00 ± 0.50** | 50 % |',
    r'| &lt;z>[a\](x) |  | diverged |',
    '',
    'Best of #2.',
  ]
  assert report.Table(['a\rb', 'c\n', 'd  e'], []).markdown().startswith('| a b | c | d  e |\n')


def test_what_a_report_is_made_of_stays_as_it_was_made():
  for kind in (report.Report, report.Table, figures.Curve, scores.Score):
    assert kind.__dataclass_params__.frozen


def test_latex_escapes_what_latex_reads():
  lines = TABLE.latex().splitlines()
  assert r'\caption{Means, \%. Best of \#2.}' in lines
  assert r'\begin{tabular}{lrr}' in lines
  assert r'   & a\_b & c \& d \\' in lines
  assert r'  x|y & \textbf{1.00 $\pm$ 0.50} & 50 \% \\' in lines
  rules = [line.strip() for line in lines if 'rule' in line]
  assert rules == [r'\toprule', r'\midrule', r'\bottomrule']
  # Every row has as many cells as there are columns.
  assert all(line.replace(r'\&', '').count('&') == 2 for line in lines if line.endswith(r'\\'))


def test_html_holds_the_cells():
  root = ET.fromstring(f'<div>{TABLE.html()}</div>')
  cells = [[''.join(cell.itertext()) for cell in row] for row in root.iter('tr')]
  assert cells == [list(TABLE.heading), *map(list, TABLE.rows)]
  assert [b.text for b in root.iter('b')] == ['1.00 ± 0.50']  # An empty cell is not bold.
  assert (root.findtext('table/caption'), root.findtext('p')) == (TABLE.title, TABLE.note)


@pytest.mark.parametrize(
  'value, cell',
  [
    ('=1+1', "'=1+1"),
    ('@SUM(A1)', "'@SUM(A1)"),
    ('-1+1', "'-1+1"),
    ('+cmd', "'+cmd"),
    ('\t=1+1', "'\t=1+1"),
    ('-1.2e-06 ± 3e-07', '-1.2e-06 ± 3e-07'),
    ('-inf', '-inf'),
    ('-0.50 (1 of 2 diverged)', '-0.50 (1 of 2 diverged)'),
    (-1 / 3, '-0.333333'),
    (-3, '-3'),
    ('a,b', 'a,b'),
  ],
)
def test_no_text_is_a_formula_in_csv(value, cell):
  assert list(csv.reader(io.StringIO(report.csv_text([['', value]])))) == [['', cell]]


@pytest.mark.parametrize(
  'values, digits, expected',
  [
    ([], 4, ''),
    ([0.5], 4, '0.5000'),
    ([50.0, 52.0], 2, '51.00 ± 1.41'),
    ([0.0, 0.0], 4, '0.0000 ± 0.0000'),
    ([1.2e-6], 4, '1.2e-06'),
    ([1e-6, 2e-6], 4, '1.5e-06 ± 7.07e-07'),
    ([-0.000124], 4, '-0.000124'),
    ([0.04], 1, '0.04'),
    ([3, 4], 0, '4 ± 1'),
    ([math.nan, 1.0], 4, 'nan ± nan'),
    ([-math.inf], 4, '-inf'),
  ],
)
def test_small_means_have_significant_digits(values, digits, expected):
  assert report.spread(values, digits) == expected


def test_numbers_have_as_many_digits_as_tell_them_apart():
  texts = {0.1: '0.1', 1.0: '1', 0.0316227: '0.0316'}
  assert report.distinct([*texts], 3) == texts
  assert list(report.distinct([0.12341, 0.12344], 3).values()) == ['0.12341', '0.12344']
  close = (0.1, 0.1 + 2e-17, 0.30000000000000004, 0.3)
  assert len({*report.distinct(close, 3).values()}) == len({*close})


@pytest.mark.parametrize(
  'texts, expected',
  [
    ('10 2 20 5', '2 5 10 20'),
    ('b a none 10 2', 'b a none 2 10'),
    ('alpha=10 alpha=inf alpha=3 alpha=0.3', 'alpha=0.3 alpha=3 alpha=10 alpha=inf'),
    ('c=1e-05 c=0.001 c=-1 information', 'c=-1 c=1e-05 c=0.001 information'),
    ('fed_avg,n=10 fed_yogi,n=10 fed_avg,n=9', 'fed_avg,n=9 fed_avg,n=10 fed_yogi,n=10'),
    ('v10 v2', 'v10 v2'),
  ],
)
def test_numbers_are_sorted_as_numbers_and_texts_stay(texts, expected):
  assert report.in_order(texts.split()) == expected.split()
