"""A report: tables and a figure, written in the formats that are asked for."""

import dataclasses
import html
import os
from collections.abc import Iterable, Sequence
from typing import Any

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import style, table as table_lib

# Ending -> what it is.
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
class Report:
  """What some runs come to.

  Attributes:
    tables: The tables.
    data: The numbers, as CSV.
    figure: The `matplotlib.figure.Figure`, if there is one.
    title: Over all.
  """

  tables: Sequence[table_lib.Table]
  data: str
  figure: Any = None
  title: str = ''

  def markdown(self) -> str:
    """The tables in Markdown."""
    return '\n'.join(table.markdown() for table in self.tables)

  def write(self, output: str, formats: Iterable[str] = DEFAULT_FORMATS) -> list[str]:
    """Writes OUTPUT.md and so on, each atomically.

    Args:
      output: The path of the files without their endings.
      formats: Names in `FORMATS`.

    Returns:
      The paths of the files; those of a figure are left out where there is none.
    """
    paths = []
    for ending in formats:
      path = f'{output}.{ending}'
      if ending in style.FORMATS:
        if self.figure is None:
          continue
        style.write(self.figure, path)
      else:
        atomic_files.write_text(path, self._text(ending, os.path.basename(output)))
      paths.append(path)
    return paths

  def _text(self, ending: str, name: str) -> str:
    if ending == 'md':
      return self.markdown()
    if ending == 'csv':
      return self.data
    if ending == 'tex':
      return '\n'.join(table.latex() for table in self.tables)
    return self._page(html.escape(self.title or name))

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
