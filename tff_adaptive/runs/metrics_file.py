"""Reading metrics.csv: all of it, or an error that names the line at fault."""

import dataclasses
import itertools
from collections.abc import Sequence


class MetricsFileError(ValueError):
  """A metrics.csv that was not written by a run, or was damaged since."""


@dataclasses.dataclass(frozen=True)
class Table:
  """The rows of a run, as they stand in its file.

  Attributes:
    columns: The names of the columns, `round` first; none if the file has no header yet.
    cells: For each row its cells, as many as there are columns; '' where nothing was measured.
  """

  columns: Sequence[str]
  cells: Sequence[Sequence[str]]

  @property
  def rounds(self) -> list[int]:
    """The number of each row's round."""
    return [int(row[0]) for row in self.cells]

  def rows(self) -> list[dict[str, float]]:
    """Returns the rows as numbers, without their empty cells."""
    return [{k: float(v) for k, v in zip(self.columns, row) if v} for row in self.cells]


def read(path: str) -> Table:
  """Reads a metrics.csv.

  A last line without its end is left out: it is being written, or was when the run was killed.

  Args:
    path: The file.

  Returns:
    Its table.

  Raises:
    FileNotFoundError: If there is no such file.
    MetricsFileError: If it cannot be read, or is not a table of numbers by round.
  """
  try:
    with open(path, newline='', encoding='utf-8') as file:
      lines = [line[:-1] for line in file if line.endswith('\n')]
  except FileNotFoundError:
    raise
  except (OSError, UnicodeDecodeError) as error:
    raise MetricsFileError(f'{path} cannot be read ({error}).') from None
  if not lines:
    return Table([], [])
  columns = lines[0].split(',')
  if columns[0] != 'round' or len(set(columns)) < len(columns) or not all(map(_is_name, columns)):
    raise MetricsFileError(
      f"{path} is damaged: line 1 is not a header of distinct columns that begins with 'round'."
    )
  cells = [_cells(path, number, line, columns) for number, line in enumerate(lines[1:], 2)]
  table = Table(columns, cells)
  rounds = table.rounds
  for number, (before, after) in enumerate(itertools.pairwise(rounds), 3):
    if before >= after:
      raise MetricsFileError(
        f'{path} is damaged: line {number} is of round {after}, after round {before}; it has rows'
        ' twice or in disorder.'
      )
  return table


def _is_name(text: str) -> bool:
  return bool(text) and text.isprintable()


def _cells(path: str, number: int, line: str, columns: Sequence[str]) -> list[str]:
  """Returns a line's cells; raises MetricsFileError if they are no row."""
  cells = line.split(',')
  if len(cells) != len(columns):
    raise MetricsFileError(
      f'{path} is damaged: line {number} has {len(cells)} cells, the header {len(columns)}.'
    )
  if not (cells[0].isascii() and cells[0].isdigit()):
    raise MetricsFileError(f'{path} is damaged: line {number} has no round number.')
  for name, cell in zip(columns, cells):
    try:
      float(cell or 0)
    except ValueError:
      raise MetricsFileError(
        f'{path} is damaged: line {number}, {name}: {cell[:40]!r} is not a number.'
      ) from None
  return cells
