"""The flags of bench.py, and the methods and problems that they name."""

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

from tff_adaptive import registry
from tff_adaptive._utils import suggestions, user_code

from ..cli import fields, flags as run_flags
from . import methods, problems, rows as rows_lib

ALL = 'all'
# Flags of train.py that the protocol sets.
_OF_THE_PROTOCOL = (
  *('task', 'algorithm', 'seed', 'rounds', 'rounds_per_evaluation', 'clients_per_round'),
  *('participation', 'output_dir', 'data_dir', 'client_learning_rate', 'batch_size'),
  *('client_epochs', 'local_steps', 'synchrony', 'buffer_size', 'json', 'quiet', 'ledger'),
)


@dataclasses.dataclass(frozen=True)
class Asked(fields.Group):
  """The flags of bench.py."""

  TITLE = 'Bench'

  algorithm: str | None = fields.flag(
    'Built-in methods, chains or FILE.py:NAME, separated by commas, in place of the argument; all'
    ' for each built-in method, which makes the stored rows.'
  )
  algorithm_option: tuple[str, ...] = fields.flag(
    'An option of your own method, NAME=VALUE; may be repeated.', []
  )
  set: tuple[str, ...] = fields.flag(
    'A flag of train.py for the method, NAME=VALUE, as server_optimizer=yogi; may be repeated.',
    [],
  )
  search: tuple[str, ...] = fields.flag(
    'With --budget=full: search this too, NAME=LOW,HIGH or NAME=LOW,HIGH,log. NAME is an option of'
    ' your method or a flag of train.py. May be repeated.',
    [],
  )
  budget: str = fields.flag(
    'small: 4 trials and 3 seeds on each problem; full: 12 trials and 5 seeds.',
    'small',
    choices=tuple(methods.BUDGETS),
  )
  problems: str | None = fields.flag(
    'Problems, separated by commas. Default: all that need no files, and those whose files are in'
    ' --data_dir.'
  )
  data_dir: str | None = fields.flag('Folder with the files of MNIST, EMNIST letters and FLamby.')
  output_dir: str | None = fields.flag('The folder of the page. Default runs/bench/METHOD.')
  rows: str | None = fields.flag("The file of the stored rows. Default: the project's two.")
  report_only: bool | None = fields.flag('Train nothing: write the page of the runs that are done.')
  json: bool | None = fields.flag(
    'Print the numbers of the page as one JSON object on standard output.'
  )
  list: bool | None = fields.flag('Show problems, methods and the number of stored rows.')
  verify: int | None = fields.count('Train this many stored rows again, and compare.')
  seed: int = fields.count('The seed by which --verify draws rows.', 1, low=0)
  rerun: str | None = fields.flag(
    'Train one stored row again, and compare: PROBLEM/METHOD/BUDGET/STAGE/NUMBER.'
  )

  @property
  def rows_files(self) -> Sequence[str]:
    """The paths of the stored rows."""
    if self.rows:
      return [self.rows]
    return rows_lib.stored_files()

  @property
  def rows_named(self) -> str:
    """The paths of the stored rows, for messages."""
    return ' and '.join(self.rows_files)

  def stored_rows(self) -> dict[rows_lib.Key, rows_lib.Row]:
    """Returns the stored rows by key. Raises ValueError for a file that is none of the bench's."""
    return rows_lib.read_all(self.rows_files)

  def problem_names(self) -> Sequence[str]:
    """Returns the names of the problems. Raises ValueError for one that cannot be used."""
    if self.data_dir is not None and not os.path.isdir(self.data_dir):
      raise ValueError(f'--data_dir={self.data_dir} is no folder.')
    if self.problems is None:
      return problems.by_default(self.data_dir)
    names = self.problems.split(',')
    for name in names:
      fields.check_name('problems', name, problems.PROBLEMS)
      if not problems.has_files(name, self.data_dir):
        files = ' or '.join(problems.PROBLEMS[name].files)
        raise ValueError(f'--problems={name} needs a folder with {files}: give --data_dir.')
    return list(dict.fromkeys(names))


def methods_of(given: Asked, words: Sequence[str]) -> list[methods.Method]:
  """Returns the methods that flags and arguments name. Loads the user's files.

  Raises ValueError if there is none, or one is unknown or takes none of what is given.
  """
  references = list(words)
  for word in words:
    if not user_code.is_reference(word):
      raise ValueError(
        f'unexpected argument {word!r}: give FILE.py:NAME, or --algorithm={word} for a built-in'
        ' method.'
      )
  if given.algorithm is not None:
    references += given.algorithm.split(',')
  if not references:
    raise ValueError(
      'name a method: FILE.py:NAME, or --algorithm=fed_adam; --list shows the built-in ones.'
    )
  if references == [ALL]:
    if given.set or given.search or given.algorithm_option:
      raise ValueError(f'--algorithm={ALL} makes the rows of methods as they are: give no options.')
    return methods.built_in()
  if given.search and given.budget == 'small':
    raise ValueError(
      '--search needs --budget=full: the small budget searches the client rate only.'
    )
  for text in given.search:
    methods.read_range(text)
  more = _flags(given)
  named = [methods.Method(name, more, given.search) for name in references]
  for method in named:
    _check(method)
  keys = [method.key for method in named]
  for i, key in enumerate(keys):
    if key in keys[:i]:
      raise ValueError(
        f'{references[i]} would have the rows of {references[keys.index(key)]}, because both are'
        f' called {key}: name it once, or rename one of the files.'
      )
  return named


def _flags(given: Asked) -> dict[str, Any]:
  """Returns the flags of --set and --algorithm_option by name."""
  arguments = [f'--algorithm_option={text}' for text in given.algorithm_option]
  for text in given.set:
    name, equals, value = text.partition('=')
    if not equals or not value:
      raise ValueError(f'--set={text}: write it as NAME=VALUE, such as server_optimizer=yogi.')
    if name in _OF_THE_PROTOCOL:
      raise ValueError(f'--set={text}: the protocol sets {name}, the same for all methods.')
    arguments.append(f'--{text}')
  return run_flags.parse(['', *arguments]) or {}


def _check(method: methods.Method) -> None:
  """Raises ValueError if a method cannot be compared, or takes none of its settings."""
  left_out = methods.left_out()
  if method.reference in left_out:
    raise ValueError(f'--algorithm={method.reference}: {left_out[method.reference]}.')
  is_single = '+' not in method.reference and not user_code.is_reference(method.reference)
  if is_single and method.reference not in registry.ALGORITHMS:
    text = suggestions.unknown('algorithm', method.reference, registry.ALGORITHMS)
    raise ValueError(f'--algorithm: {text}')
  with fields.about('algorithm'):
    entry = method.entry
  if methods.has_client_models(method):
    raise ValueError(
      f'{method.reference}: {methods.PERSONAL}; report.py --form=clients compares such.'
    )
  own_options = {h.name for h in entry.hyperparameters}
  known = sorted(own_options | {flag.name for flag in run_flags.table()})
  for text in method.searched:
    name, _ = methods.read_range(text)
    if name not in known:
      raise ValueError(f'--search={text}: {suggestions.unknown("option", name, known)}')
