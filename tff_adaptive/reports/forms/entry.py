"""What describes a form of a report, and the options that several forms have."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tff_adaptive.reports import report, tables
from tff_adaptive.runs import run as run_lib

Runs = Sequence[run_lib.Run]


@dataclasses.dataclass(frozen=True)
class Option:
  """An option of a form.

  Attributes:
    name: Its name. Options of one name are the same in all forms.
    help: One or two sentences for the user.
    kind: The type of its value: str, int (from 1 on), float; list for texts separated by commas; or
      dict for a text NAME=NUMBER that may be repeated.
    default: The value if it is not given. A list or dict is empty then.
    choices: The allowed values of a text; empty if all are allowed.
  """

  name: str
  help: str
  kind: type = str
  default: Any = None
  choices: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Form:
  """A form of a report.

  Attributes:
    name: The value of the option `form` that chooses it.
    help: What the report shows, for the user.
    example: Options of an example, as texts by name; `output` and `formats` are those of a report.
    options: The options that it takes.
    build: A function of the runs, the values of the options by name, and the title.
    required: The names of options that must be given.
    hint: Examples of the required options.
    takes_metrics: Whether the option `metric` may have several values.
    takes_unevaluated: Whether it takes runs that were not evaluated after round 0.
  """

  name: str
  help: str
  example: Mapping[str, str]
  options: tuple[Option, ...]
  build: Callable[[Runs, Mapping[str, Any], str], report.Report]
  required: tuple[str, ...] = ()
  hint: str = ''
  takes_metrics: bool = False
  takes_unevaluated: bool = False


METRIC = Option(
  'metric',
  'Columns of metrics.csv, separated by commas, with a table and a panel each; other forms than'
  " comparison take one. Default: the task's metric on the validation data. Small values are good"
  ' if the name has a word for a loss or an error (docs/guide/reports.md has the list).',
  list,
)
LABEL_BY = Option(
  'label_by',
  'Settings, separated by commas, that distinguish lines or maps. Default: as few as are needed.',
  list,
)
COLUMNS = Option(
  'columns',
  'The setting of the columns of crossed, such as algorithm, tau or beta. For comparison columns of'
  f' its table, of {",".join(tables.COLUMNS)}; by default all but the last two.',
  list,
)
WINDOW = Option(
  'window',
  'Number of last rounds over which means are taken. Default: the last tenth, at most 100.',
  int,
)


def metric_of(runs: Runs, given: Mapping[str, Any]) -> str:
  """Returns the one metric that was given, or the default of the runs."""
  metrics = given['metric'] or [tables.default_metric(runs)]
  return str(metrics[0])
