"""A report: tables and a figure, written in the formats that are asked for."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import Any

from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import page, style, table as table_lib

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
    picture = '' if self.figure is None else style.svg(self.figure)
    return page.build(self.title or name, self.tables, picture)
