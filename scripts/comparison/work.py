"""What bench.py does: lists, comparisons, and stored rows that are made again."""

import contextlib
import fcntl
import json
import math
import os
import random
import sys
from collections.abc import Iterator, Sequence

import rich.console
import rich.progress

from tff_adaptive._utils import user_code

from .. import _entry
from ..cli import command
from . import asked, cells as cells_lib, methods, page, problems, results, rows, runs

_TOLERANCE = 1e-5  # Rows have six digits. On other processors a run may end elsewhere.


def show_list(given: asked.Asked) -> int:
  """Prints the problems, the methods, and how many stored rows each has."""
  lines = ['Problems:']
  for name, problem in problems.PROBLEMS.items():
    files = ''
    if problem.files:
      files = f'; needs {" or ".join(problem.files)} in --data_dir'
    lines.append(f'  {name}: {problem.about}. {problem.metric}, {problem.direction}{files}.')
  stored = given.stored_rows()
  lines.append(f'Methods, with their rows in {given.rows_named}:')
  for method in methods.built_in():
    count = sum(key.method == method.key for key in stored)
    lines.append(f'  {method.key}: {method.title}, {count} rows')
  lines.append('Not compared:')
  for name, reason in methods.left_out().items():
    lines.append(f'  {name}: {reason}')
  command.show('\n'.join(lines) + '\n')
  return command.DONE


def compare(given: asked.Asked, compared: Sequence[methods.Method]) -> int:
  """Does the missing runs of methods, and writes their page. Returns the exit code."""
  names = given.problem_names()
  is_all = given.algorithm == asked.ALL
  folder = given.output_dir or os.path.join('runs', 'bench', _folder_name(compared, is_all))
  command.check_writable(folder, f'output_dir={folder}')
  stored = given.stored_rows()
  if not (is_all or any(k.budget == given.budget and k.problem in names for k in stored)):
    command.say(
      f'{given.rows_named}: no row is of these problems and --budget={given.budget}, so the page'
      ' has only the methods that run here. Add --algorithm=fed_avg to compare with FedAvg.'
    )
  os.makedirs(folder, exist_ok=True)
  path = os.path.join(folder, 'rows.csv')
  with _locked(folder):
    known = _known(path, compared)
    cells = cells_lib.of_methods(names, compared, given.budget)
    if not given.report_only:
      _fill(cells, known, path, given.data_dir)
      # Of the numbers in the file, which has six digits of each: ties are then those of any later
      # page of the same rows.
      known = rows.read(path)
    subjects = compared
    if is_all:  # They are the built-in methods, beside none.
      subjects = []
    outcomes = results.collect({**stored, **known}, given.budget, names, subjects)
    _check_that_some_ran(outcomes, compared)
    if subjects:
      _say_what_lacks(cells, {**stored, **known})
    whole = page.build(outcomes, _entry.commands()['bench'])
    paths = page.write(whole, os.path.join(folder, 'bench'))
  if given.json:
    command.show(json.dumps(outcomes.record(), allow_nan=False) + '\n')
  else:
    if subjects:
      command.show(whole.tables[0].markdown())
    command.show(f'In {folder}: {", ".join(map(os.path.basename, paths))}, rows.csv\n')
  return command.DONE


def _folder_name(compared: Sequence[methods.Method], is_all: bool) -> str:
  if is_all:
    return asked.ALL
  parts = []
  for method in compared:
    name = method.key
    if user_code.is_reference(name):
      name = name.rpartition(':')[2]
    parts.append(name.replace(os.sep, '_').replace(' ', ','))
  return ','.join(parts)


@contextlib.contextmanager
def _locked(folder: str) -> Iterator[None]:
  """A context in which no other command writes to the folder. Raises ValueError if one does."""
  number = os.open(folder, os.O_RDONLY)
  try:
    try:
      fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
      raise ValueError(f'{folder} is in use by another command: wait, or name another.') from None
    yield
  finally:
    os.close(number)


def _known(path: str, compared: Sequence[methods.Method]) -> cells_lib.Rows:
  """Returns the rows of a folder, without those of files that have been changed since."""
  known = rows.read(path)
  # Rows of a user's file are valid as long as the file is the same.
  digests = {method.key: method.digest() for method in compared}
  outdated = [key for key, row in known.items() if row.code != digests.get(key.method, row.code)]
  if outdated:
    command.say(f'{len(outdated)} runs are made again: the method has changed since.')
  return {key: row for key, row in known.items() if key not in outdated}


def _fill(
  cells: Sequence[cells_lib.Cell], known: cells_lib.Rows, path: str, data_dir: str | None
) -> None:
  """Does the missing runs of all cells, and writes each row at once."""
  left = sum(cell.missing(known) for cell in cells)
  if not left:
    return
  command.say(f'{left} runs to do; loading TensorFlow ...')
  with _progress(left) as done:
    for cell in cells:
      for row in cells_lib.fill(cell, known, data_dir, runs.train):
        # After each run, so that a command that is stopped loses one run at most.
        rows.write(path, known.values())
        done(row)


@contextlib.contextmanager
def _progress(total: int) -> Iterator:
  """A context with a function that shows a row: a bar on a terminal, lines elsewhere."""
  if not (sys.stderr and sys.stderr.isatty()):
    count = 0

    def line(row: rows.Row) -> None:
      nonlocal count
      count += 1
      command.say(f'{count}/{total} {_in_words(row)}')

    yield line
    return
  columns = (
    rich.progress.BarColumn(bar_width=20),
    rich.progress.MofNCompleteColumn(),
    rich.progress.TimeRemainingColumn(),
    rich.progress.TextColumn('{task.description}'),
  )
  with rich.progress.Progress(*columns, console=rich.console.Console(stderr=True)) as bar:
    task = bar.add_task('', total=total)
    yield lambda row: bar.update(task, advance=1, description=command.printable(_in_words(row)))


def _in_words(row: rows.Row) -> str:
  text = f'{row.problem} {row.method} {row.stage} {row.number}: {row.status}'
  if row.status == rows.DONE:
    return f'{text} {row.value:.4g} ({row.seconds:.1f} s)'
  return f'{text}: {row.reason}'


def _check_that_some_ran(outcomes: results.Results, compared: Sequence[methods.Method]) -> None:
  """Raises ValueError, with the reason, for a method that is refused on all problems."""
  for method in compared:
    of_method = [o for (_, key), o in outcomes.outcomes.items() if key == method.key]
    if of_method and all(outcome.refusal for outcome in of_method):
      raise ValueError(f'{method.key} has no meaning on these problems: {of_method[0].refusal}')


def _say_what_lacks(cells: Sequence[cells_lib.Cell], table: cells_lib.Rows) -> None:
  """Says which runs of the compared methods are missing."""
  for cell in cells:
    missing = cell.missing(table)
    if missing:
      command.say(
        f'{cell.method.key} is not on the page for {cell.problem}: {missing} of its runs are'
        ' missing. The same command without --report_only makes them.'
      )


def verify(given: asked.Asked) -> int:
  """Trains stored rows again. Returns 0 if all have the stored values, else 1."""
  stored = given.stored_rows()
  keys = [key for key, row in stored.items() if row.status == rows.DONE and not row.code]
  asked_for = given.problem_names()
  keys = [key for key in keys if key.problem in asked_for]
  if given.rerun is not None:
    keys = [key for key in stored if str(key) == given.rerun]
    if not keys:
      raise ValueError(
        f'--rerun={given.rerun}: {given.rows_named} has no such row; an example is'
        f' {next(iter(map(str, stored)), "absent")}.'
      )
  else:
    # Sorted, so that the draw depends on the rows and not on their order in the file.
    keys = random.Random(given.seed).sample(sorted(keys), min(given.verify or 0, len(keys)))
  if not keys:
    raise ValueError(f'{given.rows_named} has no rows to verify.')
  differ = 0
  for key in keys:
    row = stored[key]
    if row.code:
      raise ValueError(f'--rerun={key}: the row is of a file or of options that are not stored.')
    again = runs.train(key, methods.Method(key.method), row.settings, given.data_dir)
    is_same = _is_same(row, again)
    differ += not is_same
    verdict = 'DIFFERS'
    if is_same:
      verdict = 'same'
    command.show(f'{key}: stored {_outcome(row)}, now {_outcome(again)}: {verdict}\n')
  command.show(f'{len(keys) - differ} of {len(keys)} rows are the same.\n')
  if differ:
    return command.FAILED
  return command.DONE


def _is_same(row: rows.Row, again: rows.Row) -> bool:
  if row.status != again.status:
    return False
  if row.status != rows.DONE:
    return True
  return math.isclose(row.value, again.value, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _outcome(row: rows.Row) -> str:
  if row.status == rows.DONE:
    return f'{row.value:.6g}'
  return row.status
