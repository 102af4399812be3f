"""Makes tables and a figure from the folders of runs.

usage: {report} [--flag=value ...] FOLDER [FOLDER ...]

FOLDER is the folder of a run, or holds folders of runs. Runs that differ only in their seed are
repetitions: tables and figures give their mean and standard deviation.

"""

import dataclasses
import importlib
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

if not __package__:  # Run as a file, which is in no package.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
  __package__ = 'scripts'
  importlib.import_module('scripts._entry').begin()

from tff_adaptive.reports import report, scores, style
from tff_adaptive.reports.forms import catalog, entry
from tff_adaptive.runs import groups as groups_lib, run as run_lib

from .cli import command, fields, flags

_PROGRAM = '  {report}'
_LAST_WORDS = (
  'If the runs of a cell differ in other settings, tasks and crossed take those with the best'
  ' validation data, and name them.'
)
# The annotation of a flag's field, by the kind of an option.
_TYPES: Mapping[type, Any] = {
  str: str | None,
  int: int | None,
  float: float | None,
  list: str | None,
  dict: tuple[str, ...],
}
_OF_ALL_FORMS: Mapping[str, tuple[Any, Any]] = {
  'where': (
    tuple[str, ...],
    fields.flag(
      'Only runs with this setting, NAME=VALUE. May be repeated; a run must have all settings.', []
    ),
  ),
  'rename': (
    tuple[str, ...],
    fields.flag(
      'Replace a label, or a part of one, in tables and legends: OLD=NEW. May be repeated.', []
    ),
  ),
  'title': (
    str,
    fields.flag('Title of the figure and of the tables, which is their caption in LaTeX.', ''),
  ),
  'output': (
    str | None,
    fields.flag('Path of the files without extension, as in OUTPUT.md. Default: print only.'),
  ),
  'formats': (
    str,
    fields.flag(
      'What to write: '
      + '; '.join(f'{name}, {text}' for name, text in report.FORMATS.items())
      + '.',
      ','.join(report.DEFAULT_FORMATS),
      needs='output',
    ),
  ),
}


def _flag_of(option: entry.Option) -> Any:
  """Returns the field of the flag of a form's option."""
  if option.kind is int:
    return fields.count(option.help)
  if option.kind is dict:
    return fields.flag(option.help, [])
  return fields.flag(option.help, option.default, choices=option.choices)


def _group() -> type[fields.Group]:
  """Returns the group of the flags of report.py: those of all forms' options, and its own."""
  form = fields.flag(
    f'The form of the report: {", ".join(catalog.FORMS)}.',
    catalog.DEFAULT,
    choices=tuple(catalog.FORMS),
  )
  declared: list[tuple[str, Any, Any]] = [('form', str, form)]
  for name, option in catalog.options().items():
    declared.append((name, _TYPES[option.kind], _flag_of(option)))
  for name, (kind, field) in _OF_ALL_FORMS.items():
    declared.append((name, kind, field))
  group = dataclasses.make_dataclass(
    '_Report',
    declared,
    bases=(fields.Group,),
    namespace={'TITLE': 'Report'},
    frozen=True,
    kw_only=True,
  )
  return cast(type[fields.Group], group)


# Made from the forms, so that a new form needs no change here.
_Report = _group()
_FLAGS = flags.define(flags.of_group(_Report))


@command.entry('report.py', prints_result=lambda: not _FLAGS['output'].value)
def main(arguments: Sequence[str]) -> int:
  """Runs the command. Returns 0 for success, 1 for a failure and 2 for bad input."""
  folders = command.parse(_FLAGS, _help_text(), arguments)
  if folders is None:
    return command.DONE
  if not folders:
    raise ValueError("give at least one run's folder.")
  given = flags.check(_FLAGS, _Report)
  form = catalog.FORMS[given.form]
  formats = given.formats.split(',')
  if not set(formats) <= set(report.FORMATS):
    known = ', '.join(report.FORMATS)
    raise ValueError(f'--formats={given.formats}: give one or more of {known}.')
  options = _options_of(form, given)
  renamed = dict(_pairs('rename', given.rename))
  runs = [
    dataclasses.replace(run, window=options.get('window'), renamed=renamed)
    for run in run_lib.find_runs(folders)
  ]
  if given.where:
    runs = groups_lib.where(runs, _pairs('where', given.where, str.partition))
  # A run that was not evaluated yet has no value to report.
  if not form.takes_unevaluated:
    metrics = options.get('metric') or [None]
    runs = scores.evaluated(runs, metrics[0])
  result = form.build(runs, options, given.title)
  _check_renamed(result, renamed)
  if result.figure is None and set(formats) <= set(style.FORMATS):
    raise ValueError(f'--formats={given.formats}: this report has tables only.')
  if given.output is not None:
    command.check_output('output', given.output)
    result.write(given.output, formats)
  command.show(result.markdown())
  return command.DONE


def _help_text() -> str:
  """Returns the text above the flags in --help, with an example of each form."""
  parts = [__doc__ or '']
  for form in catalog.FORMS.values():
    words = textwrap.fill(form.help, 100, initial_indent=6 * ' ', subsequent_indent=6 * ' ')
    parts.append(f'{_PROGRAM} runs {_example_of(form)}\n{words}\n')
  parts.append('\n' + textwrap.fill(_LAST_WORDS, 100) + '\n')
  return ''.join(parts)


def _example_of(form: entry.Form) -> str:
  """Returns the flags of a form's example."""
  options = {'form': form.name, **form.example}
  if form.name == catalog.DEFAULT:
    del options['form']
  return ' '.join(f'--{name}={value}' for name, value in options.items())


def _options_of(form: entry.Form, given: Any) -> dict[str, Any]:
  """Returns the values of a form's options by name. Raises ValueError if flags do not suit it."""
  taken = {option.name: option for option in form.options}
  for name in catalog.options():
    # `present` and not the value: a flag that was given with its default is refused, too.
    if name not in taken and _FLAGS[name].present:
      forms = ' or '.join(catalog.takers(name))
      raise ValueError(f'--{name} needs --form={forms}: give that, or leave --{name} out.')
  values = {name: _value(option, getattr(given, name)) for name, option in taken.items()}
  if not all(values[name] for name in form.required):
    needed = ' and '.join(f'--{name}' for name in form.required)
    raise ValueError(f'--form={form.name} needs {needed}, such as {form.hint}.')
  if len(values.get('metric') or []) > 1 and not form.takes_metrics:
    raise ValueError(f'--form={form.name} takes one --metric.')
  return values


def _value(option: entry.Option, value: Any) -> Any:
  """Returns the value of an option for its form, from that of its flag."""
  if option.kind is list:
    if not value:
      return []
    return value.split(',')
  if option.kind is not dict:
    return value
  numbers = {}
  for name, text in _pairs(option.name, value):
    try:
      numbers[name] = float(text)
    except ValueError:
      raise ValueError(
        f'--{option.name}={name}={text}: give a number, such as paper=0.85.'
      ) from None
  return numbers


def _check_renamed(result: report.Report, renamed: Mapping[str, str]) -> None:
  """Raises ValueError if a label that was to be renamed does not occur."""
  # The new text must be somewhere: a misspelt OLD would change nothing, without a word.
  texts: set[str] = set()
  for table in result.tables:
    texts.update(table.heading, [table.title])
    for row in table.rows:
      texts.update(row)
  for old, new in renamed.items():
    if not any(new in text for text in texts):
      raise ValueError(f'--rename={old}={new}: no label has the part {old!r}.')


def _pairs(
  flag: str, texts: Sequence[str], divide: Callable[[str, str], Sequence[str]] = str.rpartition
) -> list[tuple[str, str]]:
  """Splits each NAME=VALUE text of a flag at the last '=', or where `divide` splits it."""
  pairs = []
  for text in texts:
    name, sign, value = divide(text, '=')
    if not name or not sign:
      raise ValueError(f'--{flag}={text}: write it as NAME=VALUE.')
    pairs.append((name, value))
  return pairs


if __name__ == '__main__':
  sys.exit(main())
