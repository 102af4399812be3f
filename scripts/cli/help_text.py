"""The text of `scripts/train.py --help`: tasks, algorithms, flags, and examples."""

import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

from tff_adaptive import registry
from tff_adaptive.aggregation import table
from tff_adaptive.population import cohort_rules
from tff_adaptive.registry import entries as entries_lib
from tff_adaptive_tasks import catalog

from . import command, flag_names, flags, hyperparameters

# Widths of the columns of names.
_OF_NAMES = 19
_OF_FLAGS = 26

_INTRODUCTION = """\
Trains a model on a task with a federated optimizer: a client optimizer, a client correction, an
aggregation, a server optimizer and a schedule. The defaults are those of the task's paper.

usage: {train} [--flag=value ...] [--flagfile=FILE]
       {train} --help=WORD

--help=rates, for example, shows the section with that word in its heading, and all flags and
algorithms with it in their names or texts. --version prints the version, and --requirements the
locked packages that the command runs with.
"""

_EXAMPLES = """\
Examples:
  {train}
      FedYogi on handwritten digits that come with scikit-learn: no download, some ten seconds.
  {train} --task=emnist_cr --algorithm=fed_adam --data_dir=DIR
      The paper's EMNIST experiment with its tuned rates; DIR holds TFF's emnist_all.sqlite.
      Without --data_dir TFF downloads it.
  {train} --algorithm=ada_best --server_optimizer=yogi --output_dir=runs/mine
      AdaBest's correction with Yogi on the server.
  {train} --algorithm=mine.py:Damped --algorithm_option=strength=0.1
      A correction of your own: a frozen dataclass in mine.py that subclasses Correction.
  {train} --flagfile=scripts/configs/digits.flags --seed=1
      Flags from a file, one on each line. Later flags override them.

Ctrl-C saves the run and ends it. The same command resumes it.
"""


class _Section(NamedTuple):
  """A part of the help: a heading, and names with their texts; `note` follows them."""

  heading: str
  entries: Mapping[str, str]
  width: int  # Of the column of names.
  note: str = ''

  def __str__(self) -> str:
    lines = [_entry(name, text, self.width) for name, text in self.entries.items()]
    return f'\n{self.heading}:\n{"".join(lines)}{self.note}'


def text(word: str = '') -> str:
  """Returns the whole help, or only what it has on a word.

  That is a section with the word in its heading, and of other sections the flags, algorithms and so
  on that have the word in their names or texts. What other programs call a flag counts as its name.

  Raises ValueError, which names all headings, if there is nothing.
  """
  sections = _sections()
  if not word:
    whole = ''.join(map(str, sections))
    return command.with_commands(_INTRODUCTION) + whole + '\n' + command.with_commands(_EXAMPLES)
  on_word = [_search(section, word) for section in sections]
  texts = [str(section) for section in on_word if section.entries]
  if not texts:
    headings = '; '.join(section.heading for section in sections)
    raise ValueError(
      f'--help={word}: nothing has this word; give another, such as one of these headings:'
      f' {headings}.'
    )
  return ''.join(texts)


def _search(section: _Section, word: str) -> _Section:
  """Returns the section if its heading has the word, else only those of its entries that do."""
  word = word.lower()
  if word in section.heading.lower():
    return section
  entries = {}
  for name, text in section.entries.items():
    is_elsewhere = flag_names.called(word, name.removeprefix('--'))
    if is_elsewhere or word in f'{name} {text}'.lower():
      entries[name] = text
  return section._replace(entries=entries, note='')


def _sections() -> list[_Section]:
  """Returns the sections of the help."""
  tasks = {name: entry.description for name, entry in catalog.TASKS.items()}
  note = (
    '  A task sets its rates, rounds, clients a round, ...: docs/guide/task_list.md has them.\n'
  )
  sections = [_Section('Tasks', tasks, _OF_NAMES, note)]
  for heading, entries in (
    ('Algorithms', {**registry.ALGORITHMS, **registry.BASELINES}),
    ('More parts for chains (scaffold+sam) and their options', _more_parts()),
    ('Server optimizers', registry.SERVER_OPTIMIZERS),
    ('Client optimizers and their options', registry.CLIENT_OPTIMIZERS),
    ('Schedules and their options', registry.SCHEDULES),
    ('Aggregators and their options', table.AGGREGATORS),
    ('Cohorts and their options', _cohorts()),
  ):
    texts = {name: _described(entry) for name, entry in entries.items()}
    sections.append(_Section(heading, texts, _OF_NAMES))
  by_group: dict[str, dict[str, str]] = {}
  for flag in flags.table():
    text = flag.help
    if flag.default not in (None, []):
      text += f' Default {flag.default}.'
    by_group.setdefault(flag.group, {})[f'--{flag.name}'] = text
  sections += [_Section(group, texts, _OF_FLAGS) for group, texts in by_group.items()]
  return sections


def _more_parts() -> dict[str, registry.Algorithm]:
  """Returns the entries of the parts that are no algorithms of their own."""
  names = [name for name in registry.PARTS if name not in registry.ALGORITHMS]
  return {name: registry.algorithm(name) for name in names}


def _cohorts() -> dict[str, entries_lib.Named]:
  """Returns the rules that choose clients, as entries."""
  rules = {}
  for name, kind in cohort_rules.COHORTS.items():
    summary = (kind.__doc__ or '').partition('\n')[0].rstrip('.')
    rules[name] = entries_lib.Named(
      name, summary[0].lower() + summary[1:], '', cohort_rules.options_of(name)
    )
  return rules


def _described(entry: Any) -> str:
  """Returns a registry entry's description, with the entry's options unless they are flags."""
  text: str = entry.description
  if getattr(entry, 'is_stateful', False):
    text += '; clients keep a state'
  # A name such as adam may be an optimizer of both.
  is_of_clients = registry.CLIENT_OPTIMIZERS.get(entry.name) is entry
  is_chain = getattr(entry, 'is_chain', False)
  has_options = is_chain or is_of_clients or isinstance(entry, entries_lib.Named)
  if has_options and entry.hyperparameters:
    text += f'; {hyperparameters.listed(entry)}'
  return text


def _entry(name: str, text: str, width: int) -> str:
  first = f'  {name:<{width - 1}} '
  return textwrap.fill(text, 98, initial_indent=first, subsequent_indent=' ' * (width + 2)) + '\n'
