"""The constant prediction that a run's model should beat, in its first and last lines."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tff_adaptive._utils import metric_names
from tff_adaptive.training import callbacks

if TYPE_CHECKING:
  from tff_adaptive_tasks import baselines  # It imports TensorFlow.

_ALIKE = 1e-9  # Differences that are only rounding.
_UNEVEN = 80.0  # From this share of one class on, in percent, accuracy alone says little.


class Callback(callbacks.Callback):
  """A callback that adds the entry `baseline` to summary.json."""

  may_load_ahead = True

  def __init__(self, baseline: baselines.Baseline, metric: str):
    """Creates the callback; `metric` is the one by which the run is judged."""
    self._entry = {
      'prediction': baseline.prediction,
      'text': baseline.text,
      'metric': metric,
      'metrics': dict(baseline.metrics),
    }

  def summary(self, rounds: int) -> Mapping[str, Any]:
    return {'baseline': self._entry}


def first_line(baseline: baselines.Baseline, metric: str) -> str:
  """Returns the line that a run begins with."""
  names = [metric]
  if metric != 'accuracy' and 'accuracy' in baseline.metrics:
    names.append('accuracy')
  values = [f'{name} {_text(baseline.metrics[name])}' for name in names]
  line = (
    f'Baseline: always {baseline.prediction}, {baseline.text}, has validation {", ".join(values)}.'
  )
  others = [name for name in ('balanced_accuracy', 'f1', 'auc_pr') if name in baseline.metrics]
  is_uneven = 100 * baseline.metrics.get('accuracy', 0.0) >= _UNEVEN
  if metric == 'accuracy' and is_uneven and others:
    line += f' --metric={others[-1]} says more about rare classes than accuracy.'
  return line


def last_lines(summary: Mapping[str, Any]) -> list[str]:
  """Returns lines for the metrics in which the model is no better than the baseline."""
  baseline = summary.get('baseline')
  if baseline is None:
    return []
  lines = []
  for name in dict.fromkeys((baseline['metric'], 'accuracy')):
    value = summary['last'].get(f'validation_{name}')
    constant = baseline['metrics'].get(name)
    if value is None or constant is None:
      continue
    sign = -1 if metric_names.is_error(name) else 1
    if sign * value <= sign * constant + _ALIKE:
      relation = 'is below' if sign > 0 else 'is above'
      if abs(value - constant) <= _ALIKE + 1e-6 * abs(constant):
        relation = 'equals'
      lines.append(
        f'The validation {name}, {_text(value)}, {relation} that of always predicting'
        f' {baseline["prediction"]}, {baseline["text"]}: {_text(constant)}.'
      )
  return lines


def column(summary: Mapping[str, Any]) -> dict[str, float]:
  """Returns the baseline's values by column of metrics.csv; {} without a baseline."""
  metrics = summary.get('baseline', {}).get('metrics', {})
  return {f'validation_{name}': value for name, value in metrics.items()}


def _text(value: float) -> str:
  if math.isnan(value):
    return 'undefined (NaN)'
  return f'{value:.4f}'
