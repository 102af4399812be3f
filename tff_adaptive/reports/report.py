"""Reports, which are tables and a figure, and the formats in which they are written."""

import csv
import dataclasses
import html
import io
import os
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np

from tff_adaptive._utils import atomic_files, texts
from tff_adaptive.reports import style

T = TypeVar('T')
# Finds the numbers in a text: in 'alpha=0.3, n=10' these are 0.3 and 10.
_IN_TEXT = re.compile(r'(?<![\w.])-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf)(?![\w.])')
_MOST_DIGITS = 17  # This many distinguish any two floats.
# Texts that begin like a formula, but that spreadsheets read as numbers.
_NUMBER = re.compile(r'[+-](\d[\d.]*(e[+-]?\d+)?|inf|nan)( [±(].*)?')
# What LaTeX reads as commands and, with its default fonts, as other letters.
_LATEX = {
  '\\': r'\textbackslash{}',
  '±': r'$\pm$',
  '~': r'\textasciitilde{}',
  '^': r'\textasciicircum{}',
  '<': r'\textless{}',
  '>': r'\textgreater{}',
  '|': r'\textbar{}',
  **{c: f'\\{c}' for c in '&%$#_{}'},
}
# What Markdown reads as formatting, links and ends of cells. A backslash is among them: one in a
# text would take the effect from the one before the next sign. '_' is only read at ends of words.
_MARKDOWN = re.compile(r'[\\`*\[\]|]|(?<![^\W_])_|_(?![^\W_])')
# GitHub takes what follows for a formula or an address. Not every reader knows a backslash there.
_ACTIVE_ON_GITHUB = re.compile(r'[$@]|:(?=//)|(?<=www)\.')
_ENTITY = re.compile(r'&(?=#?\w+;)')
# Ending of a file's name -> content of the file.
FORMATS = {
  'md': 'the tables in Markdown',
  'csv': 'the numbers behind the figure',
  'tex': 'the tables in LaTeX (booktabs)',
  'png': 'the figure',
  'pdf': 'the figure, to be scaled',
  'svg': 'the same, for the web',
  'html': 'tables and figure in one page that needs no other file',
}
DEFAULT_FORMATS = ('md', 'csv', 'png')
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; }
table { border-top: 2px solid; border-bottom: 2px solid; }
caption { text-align: left; padding-bottom: 0.4rem; }
th, td { padding: 0.2rem 0.8rem; text-align: right; font-variant-numeric: tabular-nums; }
th:first-child, td:first-child { text-align: left; }
thead { border-bottom: 1px solid; }
svg { max-width: 100%; height: auto; background: white; }
"""


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of texts. The first column names the rows; the other columns hold numbers.

  Attributes:
    heading: The names of the columns.
    rows: The rows, each as long as the heading.
    bold: Pairs (row, column) of the bold cells; row 0 is the first below the heading.
    title: The title above the table.
    note: The note below the table.
  """

  heading: Sequence[str]
  rows: Sequence[Sequence[str]]
  bold: frozenset[tuple[int, int]] = frozenset()
  title: str = ''
  note: str = ''

  def markdown(self) -> str:
    """Returns the table in Markdown."""
    # pandas' own Markdown escapes nothing.
    heading, *rows = self._escaped(_markdown, '**{}**')
    rule = ['---'] + ['---:'] * (len(heading) - 1)
    parts = []
    if self.title:
      parts.append(f'**{_markdown(self.title)}**\n\n')
    for row in (heading, rule, *rows):
      parts.append(f'| {" | ".join(row)} |\n')
    if self.note:
      parts.append(f'\n{_markdown(self.note)}\n')
    return ''.join(parts)

  def latex(self) -> str:
    r"""Returns the table as a LaTeX `table` with a caption; it needs the package booktabs."""
    parts = []
    if self.title:
      parts.append(f'{self.title.removesuffix(".")}.')
    if self.note:
      parts.append(self.note)
    caption = ' '.join(parts)
    table = self._styled(_latex, r'\textbf{{{}}}').to_latex(
      column_format='l' + 'r' * (len(self.heading) - 1),
      position_float='centering',
      hrules=True,
      caption=_latex(caption) or None,
    )
    return '% Needs \\usepackage{booktabs}.\n' + table

  def html(self) -> str:
    """Returns the table as an element of an HTML page."""
    table = self._styled(_html, '<b>{}</b>')
    if self.title:
      table.set_caption(_html(self.title))
    text = table.to_html(exclude_styles=True)
    if self.note:
      text += f'<p>{_html(self.note)}</p>\n'
    return str(text)

  def csv(self) -> str:
    """Returns the table as CSV, without its title, its note and bold type."""
    return csv_text([self.heading, *self.rows])

  def _styled(self, escape: Callable[[str], str], strong: str) -> Any:
    """Returns the table with escaped cells as a `pandas.io.formats.style.Styler`."""
    import pandas as pd  # Slow to import and needed here only.

    heading, *rows = self._escaped(escape, strong)
    # Columns are numbered, because a Styler takes no two columns of one name.
    frame = pd.DataFrame(rows, columns=range(len(heading)), dtype=object)
    # A formatter that changes nothing, so that pandas' options do not escape a second time. And
    # `relabel_index` would take braces in a heading for a format.
    cells = frame.style.format(str).format_index(heading.__getitem__, axis='columns')
    return cells.hide(axis='index')

  def _escaped(self, escape: Callable[[str], str], strong: str) -> list[list[str]]:
    """Returns the heading and the rows with escaped cells; `strong` formats bold cells."""
    cells = [list(map(escape, row)) for row in (self.heading, *self.rows)]
    for i, j in self.bold:
      text = cells[i + 1][j]
      if text:  # An empty cell would show the marks of bold type.
        cells[i + 1][j] = strong.format(text)
    return cells


@dataclasses.dataclass(frozen=True)
class Report:
  """A report about some runs: tables, a figure, and the numbers behind it.

  Attributes:
    tables: The tables.
    data: The numbers of the figure or, if there is none, of the table, as the text of a CSV file.
    figure: The `matplotlib.figure.Figure`; None if the report has no figure.
    title: The title of the report.
  """

  tables: Sequence[Table]
  data: str
  figure: Any = None
  title: str = ''

  def markdown(self) -> str:
    """Returns the tables in Markdown."""
    return '\n'.join(table.markdown() for table in self.tables)

  def write(self, output: str, formats: Iterable[str] = DEFAULT_FORMATS) -> list[str]:
    """Writes the report to one file for each format, each file atomically.

    Args:
      output: The path of the files without their extensions.
      formats: Names in `FORMATS`, such as 'md', 'tex' or 'png'.

    Returns:
      The paths of the files. Picture formats are left out if the report has no figure.
    """
    paths = []
    for ending in formats:
      path = f'{output}.{ending}'
      if ending not in style.FORMATS:
        atomic_files.write_text(path, self._text(ending, os.path.basename(output)))
      elif self.figure is None:
        continue
      else:
        style.write(self.figure, path)
      paths.append(path)
    return paths

  def _text(self, ending: str, name: str) -> str:
    if ending == 'csv':
      return self.data
    if ending == 'html':
      return self._page(_html(self.title or name))
    if ending == 'md':
      return self.markdown()
    return '\n'.join(table.latex() for table in self.tables)

  def _page(self, heading: str) -> str:
    parts = [f'<div class="wide">\n{table.html()}</div>\n' for table in self.tables]
    if self.figure is not None:
      picture = style.svg(self.figure)
      parts.append(f'<div class="wide" role="img" aria-label="figure">\n{picture}</div>\n')
    return (
      '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
      '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
      f'<title>{heading}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n'
      f'<h1>{heading}</h1>\n{"".join(parts)}</body>\n</html>\n'
    )


def spread(values: Sequence[float], digits: int = 4) -> str:
  """Formats values as mean ± sample standard deviation, '0.1200 ± 0.0100'; one value stands alone.

  Both numbers have `digits` decimals, or three significant digits if the mean is so small that
  decimals would show at most one digit. They may be NaN if a run diverged. No values give ''.
  """
  if not len(values):
    return ''
  with np.errstate(all='ignore'):
    mean = float(np.mean(values))
    form = f'.{digits}f'
    if digits > 0 and 0 < abs(mean) < 10.0 ** (1 - digits):
      form = '.3g'
    if len(values) == 1:
      return f'{mean:{form}}'
    deviation = float(np.std(values, ddof=1))
  return f'{mean:{form}} ± {deviation:{form}}'


def distinct(values: Iterable[float], digits: int) -> dict[float, str]:
  """Returns different texts by number, with as few significant digits as possible, >= `digits`."""
  numbers = dict.fromkeys(values)
  texts: dict[float, str] = {}
  # Two rates of a search must not share a heading: 0.0316 and 0.03162 look equal in three digits.
  # All get the digits that the two nearest need, for columns of one width.
  for count in range(digits, _MOST_DIGITS + 1):
    texts = {number: f'{number:.{count}g}' for number in numbers}
    if len(set(texts.values())) == len(numbers):
      break
  return texts


def number_key(text: str) -> tuple[str, tuple[float, ...]]:
  """Returns a sort key for texts that differ in numbers: 'n=2' comes before 'n=10'."""
  return _IN_TEXT.sub('#', text), tuple(float(number) for number in _IN_TEXT.findall(text))


def in_order(items: Sequence[T], text: Callable[[T], str] = str) -> list[T]:
  """Sorts by number the items whose texts differ only in numbers. Others keep their order."""
  # Words keep the order of their first occurrence.
  keys = {item: number_key(text(item)) for item in items}
  first = list(dict.fromkeys(words for words, _ in keys.values()))
  return sorted(items, key=lambda item: (first.index(keys[item][0]), keys[item][1]))


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
  """Formats rows as CSV, in which a spreadsheet takes no text for a formula."""
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows([map(cell, row) for row in rows])
  return text.getvalue()


def cell(value: Any) -> Any:
  """Returns a value for a CSV file. A float has six digits; a formula gets a quote before it.

  Control characters of a text are escaped.
  """
  if isinstance(value, float):
    return f'{value:.6g}'
  if isinstance(value, str):
    value = texts.printable(value)
  # Settings and labels may be a stranger's, and a spreadsheet would run them.
  is_formula = str(value).startswith(tuple('=+-@')) and not _NUMBER.fullmatch(str(value))
  if is_formula:
    return f"'{value}"
  return value


def _html(text: str) -> str:
  return html.escape(_one_line(text))


def _latex(text: str) -> str:
  escaped = re.sub(r'[\\±~^<>|&%$#_{}]', lambda match: _LATEX[match[0]], _one_line(text))
  # After the end of a row LaTeX looks for a star or for a length in brackets.
  return re.sub(r'^[*\[]', r'{\g<0>}', escaped)


def _markdown(text: str) -> str:
  # Markdown passes HTML on, so '<' and what looks like an entity are escaped, too.
  with_entities = _ENTITY.sub('&amp;', _one_line(text)).replace('<', '&lt;')
  with_backslashes = _MARKDOWN.sub(r'\\\g<0>', with_entities)
  return _ACTIVE_ON_GITHUB.sub(lambda match: f'&#{ord(match[0])};', with_backslashes)


def _one_line(text: str) -> str:
  if text.splitlines() not in ([], [text]):
    text = ' '.join(text.split())
  return texts.printable(text)
