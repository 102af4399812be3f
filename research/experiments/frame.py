"""What experiments share: flags, rows that are kept while it runs, results, and their origin."""

import datetime
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive._utils import atomic_files, suggestions
from tff_adaptive.reports import report as report_lib

MNIST = ('mnist.npz', 'mnist_digits.npz')


def flags(name: str) -> absl_flags.FlagValues:
  """The flags of an experiment whose rates are chosen by runs that do not count."""
  values = absl_flags.FlagValues()
  for flag, default, words in (
    ('data_dir', None, "Folder with the tasks' files."),
    ('results', f'results/{name}/{name}', 'Where to write: RESULTS.md, say.'),
    ('tuning_seed', '100', 'Seed of the runs that choose the rates.'),
  ):
    absl_flags.DEFINE_string(flag, default, words, flag_values=values)
  absl_flags.DEFINE_boolean('report_only', False, 'Train nothing.', flag_values=values)
  absl_flags.DEFINE_list('seeds', ['0', '1', '2'], 'Of the runs that count.', flag_values=values)
  return values


def check(
  given: absl_flags.FlagValues,
  known: Mapping[str, Collection[str]],
  files: Mapping[str, Sequence[str]],
) -> None:
  """Refuses bad flags before hours are spent on runs."""
  check_values(given, known)
  check_seeds('seeds', given.seeds)
  check_seeds('tuning_seed', [given.tuning_seed])
  if given.tuning_seed in given.seeds:
    raise ValueError(f'--tuning_seed={given.tuning_seed} is one of --seeds: give another.')
  if not given.report_only:
    check_files(given.data_dir, files)


def check_values(given: absl_flags.FlagValues, known: Mapping[str, Collection[str]]) -> None:
  """Raises ValueError if one of the lists, or --seeds, is empty or has what is not known."""
  for flag, names in known.items():
    for name in given[flag].value or ():
      if name not in names:
        raise ValueError(f'--{flag}: {suggestions.unknown(flag.rstrip("s"), name, names)}')
  for flag in (*known, 'seeds'):
    if not given[flag].value:
      raise ValueError(f'--{flag}= is empty: give one value or more, or leave it out.')


def check_seeds(flag: str, seeds: Sequence[str]) -> None:
  """Raises ValueError if a seed that a flag gives is no whole number."""
  for seed in seeds:
    if not seed.isdecimal():
      raise ValueError(f'--{flag}: {seed}: give whole numbers from 0 on, 0,1,2 say.')


def check_files(data_dir: str | None, files: Mapping[str, Sequence[str]]) -> None:
  """Raises ValueError if the folder lacks all of a task's files."""
  for task, names in files.items():
    paths = [os.path.join(data_dir or '', name) for name in names]
    if names and not (data_dir and any(map(os.path.isfile, paths))):
      raise ValueError(f'{task} needs a folder with {" or ".join(names)}: give --data_dir.')


def read_rows(path: str) -> list[dict[str, Any]]:
  """The rows that a CSV file has so far: what they say need not be found again."""
  if os.path.exists(path):
    return pd.read_csv(path).to_dict('records')
  return []


def write_rows(path: str, rows: pd.DataFrame | Sequence[Mapping[str, Any]]) -> None:
  """Writes all rows, the new ones too."""
  text = pd.DataFrame(rows).to_csv(index=False, float_format='%.6g')
  atomic_files.write_text(path, text)


def shorten(given: absl_flags.FlagValues, shorter: Mapping[str, Any]) -> None:
  """Sets flags that were not given to the values of a run that takes seconds."""
  for name, value in shorter.items():
    if not given[name].present:
      given[name].value = value


def trained(given: absl_flags.FlagValues, train: Callable[[str], None]) -> pd.DataFrame:
  """Returns the rows of RESULTS.csv, which `train` completes unless --report_only is given.

  Args:
    given: The experiment's flags.
    train: Trains what is missing in the CSV file at a path, in the graph engine.
  """
  command.check_output('results', given.results)
  path = f'{given.results}.csv'
  if not given.report_only:
    from tff_adaptive import engine

    engine.set_graph_context()
    train(path)
  if not os.path.exists(path):
    raise ValueError(f'{path} is missing: leave out --report_only, which trains nothing.')
  return pd.read_csv(path)


def write(results: str, parts: Sequence[str]) -> None:
  """Writes the parts of RESULTS.md."""
  atomic_files.write_text(f'{results}.md', '\n'.join(parts))
  command.show(f'{results}.* is written.\n')


def table(lines: pd.DataFrame) -> str:
  """A table in Markdown, with its index as the first columns."""
  whole = lines.reset_index().astype(str)
  return report_lib.Table([*whole.columns], whole.to_numpy().tolist()).markdown()


def spread(values: pd.Series, digits: int = 1) -> str:
  """Formats shares as percent, mean and standard deviation; one value stands alone."""
  mean = f'{100 * values.mean():.{digits}f}'
  if len(values) < 2:
    return mean
  return f'{mean} ± {100 * values.std(ddof=1):.{digits}f}'


def paragraph(text: str) -> str:
  """Returns a text on one line."""
  return ' '.join(text.split()) + '\n'


def made_by(command: str, what: str) -> str:
  """The last line of a report: its command, what that did, and the day."""
  day = datetime.date.today().isoformat()
  return paragraph(f'Made by `python -m research.{command}`: {what}; {day}.')
