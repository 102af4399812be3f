"""The rows of the bench: what each run came to, in a CSV file that grows while the bench runs."""

import csv
import dataclasses
import io
import math
import os
import pathlib
import statistics
import sysconfig
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tff_adaptive._utils import atomic_files

from . import problems

VERSION = 1  # Of the protocol: rows of another one are not compared.
SEARCH = 'search'
FINAL = 'final'
# What became of a run. 'refused' is a method that has no meaning on a problem, such as one for
# classes on a regression.
DONE = 'done'
DIVERGED = 'diverged'
REFUSED = 'refused'
# Of the problems that need no files, and of those that do.
_STORED = (('bench', 'rows.csv'), ('bench_data', 'rows.csv'))
_ROUNDING = 1e-5
_HERE = pathlib.Path(__file__).resolve()


class Key(NamedTuple):
  """What identifies a run.

  `number` is that of a trial, from 0, for the stage 'search', and the seed for the stage 'final'.
  """

  problem: str
  method: str
  budget: str
  stage: str
  number: int

  def __str__(self) -> str:
    return '/'.join(map(str, self))


@dataclasses.dataclass(frozen=True)
class Row:
  """What a run came to.

  Attributes:
    problem, method, budget, stage, number: See `Key`.
    point: The searched settings, NAME=VALUE with spaces between them.
    status: 'done', 'diverged' or 'refused'.
    value: The mean over the last two evaluations; NaN unless the run is done.
    area: The mean over all evaluations after round 0.
    curve: The evaluations from round 0 on, with spaces between them.
    megabytes: What all clients received and sent.
    gradients: The number of batch gradients of all clients.
    seconds: The seconds of training and evaluation.
    reason: Why it diverged or was refused.
    code: A digest of the user's file and settings; '' for a built-in method.
    version: `VERSION` of the program that made the row.
    revision: The revision of the program.
    day: The day of the run.
  """

  problem: str
  method: str
  budget: str
  stage: str
  number: int
  point: str
  status: str
  value: float = math.nan
  area: float = math.nan
  curve: str = ''
  megabytes: float = math.nan
  gradients: float = math.nan
  seconds: float = math.nan
  reason: str = ''
  code: str = ''
  version: int = VERSION
  revision: str = ''
  day: str = ''

  @property
  def key(self) -> Key:
    """What identifies the run."""
    return Key(self.problem, self.method, self.budget, self.stage, self.number)

  @property
  def evaluations(self) -> list[float]:
    """The values of the curve, from round 0 on."""
    return [float(text) for text in self.curve.split()]

  @property
  def settings(self) -> dict[str, float]:
    """The searched settings by name."""
    pairs = (pair.partition('=') for pair in self.point.split())
    return {name: float(value) for name, _, value in pairs}


COLUMNS = tuple(field.name for field in dataclasses.fields(Row))
_KINDS = {field.name: field.type for field in dataclasses.fields(Row)}


def in_words(point: dict[str, float]) -> str:
  """Returns searched settings as `Row.point` has them."""
  return ' '.join(f'{name}={value:g}' for name, value in point.items())


def stored_files() -> list[str]:
  """Returns the paths of the stored rows: in the checkout, or where the wheel put them."""
  place = _HERE.parents[2] / 'results'
  if not place.is_dir():
    place = pathlib.Path(sysconfig.get_path('data'), 'share', 'tff-adaptive')
  return [str(place.joinpath(*names)) for names in _STORED]


def read_all(paths: Iterable[str]) -> dict[Key, Row]:
  """Returns the rows of several files by key; see `read`."""
  rows: dict[Key, Row] = {}
  for path in paths:
    rows.update(read(path))
  return rows


def read(path: str) -> dict[Key, Row]:
  """Returns the rows of a file by key; {} if there is none.

  Rows of another version of the protocol are left out. Raises ValueError for a file that is none of
  the bench's, two rows of the same run, and a value that is not that of the row's curve.
  """
  if not os.path.exists(path):
    return {}
  with open(path, encoding='utf-8', newline='') as file:
    reader = csv.DictReader(file)
    names = reader.fieldnames or []
    missing = [name for name in COLUMNS if name not in names]
    if missing:
      raise ValueError(
        f'{path} has no rows of the bench: it lacks the column {missing[0]}. Name another file, or'
        ' another folder.'
      )
    table = [(reader.line_num, texts) for texts in reader]
  rows: dict[Key, Row] = {}
  for line, texts in table:
    row = _parsed(path, line, texts)
    if row.version != VERSION:
      continue
    if row.key in rows:
      raise ValueError(f'{path}, line {line}: {row.key} is there twice; remove one of the rows.')
    _check_value(path, line, row)
    rows[row.key] = row
  return rows


def _check_value(path: str, line: int, row: Row) -> None:
  """Raises ValueError if the value of a complete run is not what its curve ends with."""
  if row.status != DONE:
    return
  last = row.evaluations[-problems.AVERAGED :]
  if not last:
    raise ValueError(f'{path}, line {line}: the run is done and has no curve; remove the line.')
  expected = statistics.fmean(last)
  # They are written with six digits each, so that the mean of large numbers is not exact.
  digits = _ROUNDING * max(map(abs, last))
  if not math.isclose(row.value, expected, rel_tol=_ROUNDING, abs_tol=max(digits, _ROUNDING)):
    raise ValueError(
      f'{path}, line {line}: value is {row.value:g}, but the last {problems.AVERAGED} evaluations'
      f' of curve have the mean {expected:g}; remove the line, and its run is made again.'
    )


def _parsed(path: str, line: int, texts: dict[str, Any]) -> Row:
  values = {}
  for name in COLUMNS:
    try:
      values[name] = _KINDS[name](texts[name])  # type: ignore[operator]
    except (TypeError, ValueError):
      raise ValueError(
        f'{path}, line {line}: {name} is {texts[name]!r:.40}; remove the line, and its run is made'
        ' again.'
      ) from None
  return Row(**values)


def write(path: str, rows: Iterable[Row]) -> None:
  """Writes all rows, in the order of their keys, in place of the file."""
  text = io.StringIO()
  writer = csv.writer(text, lineterminator='\n')
  writer.writerow(COLUMNS)
  # In one order, so that two files of the same runs are equal but for seconds and days.
  for row in sorted(rows, key=lambda row: row.key):
    writer.writerow(_texts(row))
  atomic_files.write_text(path, text.getvalue())


def _texts(row: Row) -> Sequence[str]:
  texts = []
  for value in dataclasses.astuple(row):
    if isinstance(value, float):
      texts.append(f'{value:.6g}')
    else:
      texts.append(str(value))
  return texts
