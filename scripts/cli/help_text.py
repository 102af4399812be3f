"""The text of `scripts/train.py --help`: tasks, algorithms, flags, and examples."""

import textwrap
from collections.abc import Mapping
from typing import Any

from tff_adaptive import registry
from tff_adaptive.aggregation import table
from tff_adaptive.population import cohort_rules
from tff_adaptive.registry import entries as entries_lib
from tff_adaptive_tasks import catalog

from . import flags, hyperparameters

_INTRODUCTION = """\
Trains a model on a task with a federated optimizer: a client optimizer, a client correction, an
aggregation, a server optimizer and a schedule. The defaults are those of the task's paper.

usage: python scripts/train.py [--flag=value ...] [--flagfile=FILE]
       python scripts/train.py --help=WORD

--help=rates, for example, shows only the sections with that word in their headings. --version
prints the version, and --requirements the locked packages that the command runs with.
"""

_EXAMPLES = """\
Examples:
  python scripts/train.py
      FedYogi on handwritten digits that come with scikit-learn: no download, some ten seconds.
  python scripts/train.py --task=emnist_cr --algorithm=fed_adam --data_dir=DIR
      The paper's EMNIST experiment with its tuned rates; DIR holds TFF's emnist_all.sqlite.
      Without --data_dir TFF downloads it.
  python scripts/train.py --algorithm=ada_best --server_optimizer=yogi --output_dir=runs/mine
      AdaBest's correction with Yogi on the server.
  python scripts/train.py --algorithm=mine.py:Damped --algorithm_option=strength=0.1
      A correction of your own: a frozen dataclass in mine.py that subclasses Correction.
  python scripts/train.py --flagfile=scripts/configs/digits.flags --seed=1
      Flags from a file, one on each line. Later flags override them.

Ctrl-C saves the run and ends it. The same command resumes it.
"""


def text(section: str = '') -> str:
  """Returns the whole help, or only the sections with the word `section` in their headings.

  Raises ValueError, which names all headings, if no heading has the word.
  """
  found = _sections()
  if not section:
    return ''.join((_INTRODUCTION, *found, '\n' + _EXAMPLES))
  if not (shown := [part for part in found if section.lower() in _heading(part).lower()]):
    known = '; '.join(map(_heading, found))
    raise ValueError(f'--help={section}: no section has this word; give a word of: {known}.')
  return ''.join(shown)


def _heading(section: str) -> str:
  return section.strip().partition('\n')[0].rstrip(':')


def _sections() -> list[str]:
  """Returns the sections of the help. Each begins with its heading."""
  parts = [_listed('Tasks', {n: entry.description for n, entry in catalog.TASKS.items()})]
  parts[0] += (
    '  A task sets its rates, rounds, clients a round, ...: docs/guide/task_list.md has them.\n'
  )
  for title, entries in (
    ('Algorithms', {**registry.ALGORITHMS, **registry.BASELINES}),
    ('More parts for chains (scaffold+sam) and their options', _more_parts()),
    ('Server optimizers', registry.SERVER_OPTIMIZERS),
    ('Client optimizers and their options', registry.CLIENT_OPTIMIZERS),
    ('Schedules and their options', registry.SCHEDULES),
    ('Aggregators and their options', table.AGGREGATORS),
    ('Cohorts and their options', _cohorts()),
  ):
    parts.append(_listed(title, {name: _described(entry) for name, entry in entries.items()}))
  group = None
  for flag in flags.table():
    if flag.group != group:
      group = flag.group
      parts.append(f'\n{group}:\n')
    shown = '' if flag.default in (None, []) else f' Default {flag.default}.'
    parts[-1] += _entry(f'--{flag.name}', flag.help + shown, 26)
  return parts


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
  is_of_clients = registry.CLIENT_OPTIMIZERS.get(entry.name) is entry
  takes_options = getattr(entry, 'is_chain', False)
  if (
    takes_options or is_of_clients or isinstance(entry, entries_lib.Named)
  ) and entry.hyperparameters:
    text += f'; {hyperparameters.listed(entry)}'
  return text


def _listed(title: str, entries: Mapping[str, str]) -> str:
  return f'\n{title}:\n' + ''.join(_entry(name, text, 19) for name, text in entries.items())


def _entry(name: str, text: str, width: int) -> str:
  first, others = f'  {name:<{width - 1}} ', ' ' * (width + 2)
  return textwrap.fill(text, 98, initial_indent=first, subsequent_indent=others) + '\n'
