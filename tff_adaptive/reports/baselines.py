"""The constant prediction that runs name in summary.json: the most frequent class, or the mean."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive.runs import run as run_lib, summary as summary_lib


@dataclasses.dataclass(frozen=True)
class Constant:
  """A constant prediction: its label in a table, and its value in a column."""

  label: str
  value: float


def of_runs(runs: Sequence[run_lib.Run], column: str) -> Constant | None:
  """Returns the constant prediction that all runs have in their summary.json.

  Args:
    runs: The runs.
    column: A column of metrics.csv, such as validation_accuracy.

  Returns:
    The prediction; None if a run has none or another one, or the column has no value for it.
  """
  # Constants of equal label and value are equal, so runs on the same data leave one.
  baselines = {_of_run(run, column) for run in runs}
  if len(baselines) != 1:
    return None
  return baselines.pop()


def _of_run(run: run_lib.Run, column: str) -> Constant | None:
  kind, _, metric = column.partition('_')
  if kind not in ('validation', 'inference'):
    return None
  try:
    entry: Mapping[str, Any] = summary_lib.read(run.folder)['baseline']
    value = float(entry['metrics'][metric])
    label = f'always {entry["prediction"]}'
  except (OSError, ValueError, LookupError, TypeError):
    return None  # A run of a program, or of an earlier version.
  if math.isnan(value):
    return None
  return Constant(label, value)
