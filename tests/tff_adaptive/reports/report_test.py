"""One table in all formats, with what each needs escaped; numbers in tables."""

import csv
import io
import math
import re
import xml.etree.ElementTree as ET

import markdown
import markdown_it
import matplotlib.text
import pandas as pd
import pytest

from tff_adaptive.reports import figures, report, scores, style

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
    r'| &lt;z>\[a\](x) |  | diverged |',
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
  assert r' & a\_b & c \& d \\' in lines
  assert r'x\textbar{}y & \textbf{1.00 $\pm$ 0.50} & 50 \% \\' in lines
  rules = [line.strip() for line in lines if 'rule' in line]
  assert rules == [r'\toprule', r'\midrule', r'\bottomrule']
  # Every row has as many cells as there are columns.
  assert all(line.replace(r'\&', '').count('&') == 2 for line in lines if line.endswith(r'\\'))


# What readers of the formats obey, and what each must show in its place.
HOSTILE = {
  r'a\](https://example.org)': None,
  '![a](https://example.org/x.png)': None,
  r'!\[a\](x)': None,
  '[a][b]': None,
  '[a]: https://example.org': None,
  '*a*': None,
  '**': None,
  '_a_ b_c': None,
  '`a|b`': None,
  r'a\|b': None,
  r'\\': None,
  '|': None,
  '<img src=x onerror=alert(1)>': None,
  '</td></table><script>alert(1)</script>': None,
  '&lt;b&gt; & &amp': None,
  'https://example.org www.example.org a@example.org': None,
  '$$x$$ $`x`$': None,
  '[1pt] a': None,
  '*1': None,
  r'\input{x} $\frac$ %{#': None,
  'a\nb\r\n| c |': 'a b | c |',
  'a\x1b[31mb\x07': r'a\x1b[31mb\x07',
  'a\u202eb': r'a\u202eb',
  'a\udcffb': r'a\udcffb',
}
# As a name of a row, of a column, in a bold cell, as title and as note.
HOSTILE_TABLES = [
  (in_latex or text, report.Table([text, text], [[text, text]] * 2, {(1, 1)}, text, text))
  for text, in_latex in HOSTILE.items()
]


def _texts(elements):
  return [''.join(element.itertext()) for element in elements]


def _common_mark(text):
  return markdown_it.MarkdownIt().enable('table').render(text)


def _python_markdown(text):
  return markdown.markdown(text, extensions=['tables'])


@pytest.mark.parametrize('render', [_common_mark, _python_markdown])
@pytest.mark.parametrize('text, table', HOSTILE_TABLES)
def test_markdown_shows_texts_as_they_are(render, text, table):
  written = table.markdown()
  assert written.replace('\n', '').isprintable()
  # What is active on GitHub, but in no reader here.
  assert not re.search(r'\$|@|://|www\.', written)
  root = ET.fromstring(f'<div>{render(written)}</div>')
  assert {element.tag for element in root.iter()} <= {
    'div',
    'p',
    'strong',
    'table',
    'thead',
    'tbody',
    'tr',
    'th',
    'td',
  }
  cells = [_texts(row) for row in root.iter('tr')]
  assert cells == [[text, text]] * 3
  assert _texts(root.findall('p')) == [text, text]
  assert len(root.findall('.//strong')) == 2  # The title and one cell.


@pytest.mark.parametrize('text, table', HOSTILE_TABLES)
def test_html_shows_texts_as_they_are(text, table):
  written = table.html()
  assert written.replace('\n', '').isprintable()
  root = ET.fromstring(f'<div>{written}</div>')
  assert {element.tag for element in root.iter()} <= {
    'div',
    'p',
    'b',
    'table',
    'caption',
    'thead',
    'tbody',
    'tr',
    'th',
    'td',
  }
  cells = [_texts(row) for row in root.iter('tr')]
  assert cells == [[text, text]] * 3
  assert (root.findtext('table/caption'), root.findtext('p')) == (text, text)


def _latex_shows(text):
  """What LaTeX shows of a cell or a caption, in which nothing may be left that it obeys."""
  names = {'backslash': '\\', 'asciitilde': '~', 'asciicircum': '^'}
  names |= {'less': '<', 'greater': '>', 'bar': '|'}
  plain = ''
  rest = text
  while rest:
    symbol = re.match(r'\\text(?P<name>\w+)\{\}', rest)
    literal = re.match(r'\\([&%$#_{}])|\{([*\[])\}|([^\\&%$#_{}~^<>|])', rest)
    assert symbol or literal, f'LaTeX obeys {rest!r}'
    if symbol:
      plain += names[symbol['name']]
      rest = rest[symbol.end() :]
    else:
      plain += literal[literal.lastindex]
      rest = rest[literal.end() :]
  return plain


@pytest.mark.parametrize('text, table', HOSTILE_TABLES)
def test_latex_shows_texts_as_they_are(text, table):
  written = table.latex()
  assert written.replace('\n', '').isprintable()
  top, _, below = written.partition('\\toprule\n')
  head, _, below = below.partition('\\midrule\n')
  body, _, end = below.partition('\\bottomrule\n')
  rows = (head + body).splitlines()
  assert len(rows) == 3
  for row in rows:
    assert row.endswith(r' \\')
    # What follows a row's end, or a rule, would be taken for its option.
    assert not row.startswith(('[', '*'))
    cells = re.split(r' (?<!\\)& ', row.removesuffix(r' \\'))
    cells = [re.sub(r'^\\textbf\{(.*)\}$', r'\1', cell) for cell in cells]
    assert [_latex_shows(cell) for cell in cells] == [text, text]
  caption = re.search(r'^\\caption\{(.*)\}$', top, re.M)[1]
  assert _latex_shows(caption) == f'{text}. {text}'
  assert end == '\\end{tabular}\n\\end{table}\n'


def test_options_of_pandas_change_no_table():
  expected = (TABLE.html(), TABLE.latex())
  with pd.option_context('styler.format.escape', 'html', 'display.max_colwidth', 2):
    assert (TABLE.html(), TABLE.latex()) == expected


def test_a_table_may_have_no_rows():
  empty = report.Table(['a', 'a'], [])
  assert '\\midrule\n\\bottomrule\n' in empty.latex()
  assert 'caption' not in empty.latex() + empty.html()
  assert [cell.text for cell in ET.fromstring(empty.html()).iter('th')] == ['a', 'a']


@pytest.mark.parametrize('ending', report.FORMATS)
def test_no_file_of_a_report_has_control_characters(tmp_path, ending):
  text = 'a\x1b[31m\udcff'
  figure, ((axes,),) = style.figure(1, 1, title=text)
  axes.set_xlabel(text)
  axes.set_ylabel(r'$\frac$')  # Is no formula, so it can be drawn.
  style.legend(figure, axes.plot([0, 1], label=text), [text])
  table = report.Table([text], [[text]], title=text)
  whole_report = report.Report([table], table.csv(), figure, text)
  whole_report.write(str(tmp_path / 'x'), [ending])
  written = (tmp_path / f'x.{ending}').read_bytes()
  if ending in ('png', 'pdf'):
    texts = [text_of_figure.get_text() for text_of_figure in figure.findobj(matplotlib.text.Text)]
    assert r'a\x1b[31m\udcff' in texts
    assert text not in texts
  else:
    assert b'\x1b' not in written
    assert re.search(rb'a.*x1b.*31m.*udcff', written)


def test_html_holds_the_cells():
  root = ET.fromstring(f'<div>{TABLE.html()}</div>')
  cells = [_texts(row) for row in root.iter('tr')]
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
    ('\t=1+1', '\\t=1+1'),
    ('\x1b[31m=1', '\\x1b[31m=1'),
    ('\udcff', '\\udcff'),
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
