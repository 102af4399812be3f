"""How a metric is distributed over clients; NumPy alone."""

import numpy as np

from tff_adaptive.runs import metric_names

STATISTICS = ('by_examples', 'mean', 'std', 'p10', 'p50', 'p90', 'worst_tenth')


def describe(sums: np.ndarray, metric: str) -> dict[str, float]:
  """Describes a metric over clients.

  Args:
    sums: float64 [C, 2], of each client the sum of the metric over its examples and what it is to
      be divided by: their number, or that of their words, say. Clients with nothing to divide by
      are left out.
    metric: Its name, which says whether small values are good: see `runs.metric_names`.

  Returns:
    Name in `STATISTICS` -> value: the mean over all examples together, the mean by client, the
    standard deviation over clients (the population's), percentiles, linear between clients, and the
    mean of the tenth of the clients, rounded up, for which it is worst. NaN without clients.
  """
  values = of_clients(sums)
  values = values[~np.isnan(values)]
  if not len(values):
    return dict.fromkeys(STATISTICS, float('nan'))
  with np.errstate(all='ignore'):  # Of a model that diverged, values may be infinite.
    worst = np.sort(values)[:: -1 if metric_names.is_error(metric) else 1][: -(-len(values) // 10)]
    by_examples, below = np.sum(sums, axis=0)
    numbers = (
      by_examples / below,
      values.mean(),
      values.std(),
      *np.percentile(values, [10, 50, 90]),
      worst.mean(),
    )
  return {name: float(number) for name, number in zip(STATISTICS, numbers)}


def of_clients(sums: np.ndarray) -> np.ndarray:
  """A metric of each client, float64 [C], from sums [C, 2]; NaN where nothing was counted."""
  with np.errstate(all='ignore'):
    return np.where(sums[:, 1] != 0, sums[:, 0] / sums[:, 1], np.nan)
