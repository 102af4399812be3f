"""One table, in the formats in which people want it."""

import csv
import dataclasses
import html
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

# What no spreadsheet takes for a formula, though it may begin as one.
_NUMBER = re.compile(r'[+-](\d[\d.]*(e[+-]?\d+)?|inf|nan)( [±(].*)?')
_LATEX = {
  '\\': r'\textbackslash{}',
  '±': r'$\pm$',
  '~': r'\textasciitilde{}',
  '^': r'\textasciicircum{}',
  **{c: f'\\{c}' for c in '&%$#_{}'},
}


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of texts; the first column names the rows, the others are numbers.

  Attributes:
    heading: The names of the columns.
    rows: The rows, as long as the heading each.
    bold: (row, column) of the cells that stand out.
    title: Over the table.
    note: Below it.
  """

  heading: Sequence[str]
  rows: Sequence[Sequence[str]]
  bold: frozenset[tuple[int, int]] = frozenset()
  title: str = ''
  note: str = ''

  def markdown(self) -> str:
    """The table in Markdown."""
    above = f'**{_markdown(self.title)}**\n\n' if self.title else ''
    below = f'\n{_markdown(self.note)}\n' if self.note else ''
    lines = [list(map(_markdown, self.heading)), ['---'] + ['---:'] * (len(self.heading) - 1)]
    for i, row in enumerate(self.rows):
      lines.append([self._strong(i, j, _markdown(cell), '**', '**') for j, cell in enumerate(row)])
    return above + ''.join('| ' + ' | '.join(line) + ' |\n' for line in lines) + below

  def latex(self) -> str:
    r"""The table in LaTeX, with the rules of the package booktabs: a `table` with its caption."""

    def line(cells: Sequence[str]) -> str:
      return '  ' + ' & '.join(cells) + r' \\' + '\n'

    body = ''.join(
      line([self._strong(i, j, _latex(cell), r'\textbf{', '}') for j, cell in enumerate(row)])
      for i, row in enumerate(self.rows)
    )
    caption = ' '.join(filter(None, (_sentence(self.title), self.note)))
    return (
      '% Needs \\usepackage{booktabs}.\n\\begin{table}\n\\centering\n'
      + (f'\\caption{{{_latex(caption)}}}\n' if caption else '')
      + f'\\begin{{tabular}}{{l{"r" * (len(self.heading) - 1)}}}\n  \\toprule\n'
      + line(list(map(_latex, self.heading)))
      + '  \\midrule\n'
      + body
      + '  \\bottomrule\n\\end{tabular}\n\\end{table}\n'
    )

  def html(self) -> str:
    """The table as an element of an HTML page."""

    def cells(tag: str, texts: Sequence[str]) -> str:
      return '<tr>' + ''.join(f'<{tag}>{text}</{tag}>' for text in texts) + '</tr>\n'

    body = ''.join(
      cells('td', [self._strong(i, j, html.escape(c), '<b>', '</b>') for j, c in enumerate(row)])
      for i, row in enumerate(self.rows)
    )
    caption = f'<caption>{html.escape(self.title)}</caption>\n' if self.title else ''
    note = f'<p>{html.escape(self.note)}</p>\n' if self.note else ''
    heading = cells('th', list(map(html.escape, self.heading)))
    return (
      f'<table>\n{caption}<thead>\n{heading}</thead>\n<tbody>\n{body}</tbody>\n</table>\n{note}'
    )

  def csv(self) -> str:
    """The table as CSV, without title, note and bold."""
    return csv_text([self.heading, *self.rows])

  def _strong(self, row: int, column: int, text: str, before: str, after: str) -> str:
    return f'{before}{text}{after}' if (row, column) in self.bold and text else text


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
  """Rows of texts and numbers as CSV; to no spreadsheet a text is a formula."""
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows([map(_csv, row) for row in rows])
  return text.getvalue()


def _csv(value: Any) -> Any:
  if isinstance(value, float):
    return f'{value:.6g}'
  is_formula = str(value).startswith(('=', '+', '-', '@')) and not _NUMBER.fullmatch(str(value))
  return f"'{value}" if is_formula else value


def _latex(text: str) -> str:
  return re.sub(r'[\\±~^&%$#_{}]', lambda found: _LATEX[found[0]], _one_line(text))


def _markdown(text: str) -> str:
  return _one_line(text).replace('|', r'\|').replace('<', '&lt;')


def _one_line(text: str) -> str:
  return ' '.join(text.split()) if '\n' in text else text


def _sentence(text: str) -> str:
  return text if not text or text.endswith('.') else f'{text}.'
