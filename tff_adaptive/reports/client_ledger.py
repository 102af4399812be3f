"""A report on ledgers: who took part, how far clients drift, and who diverged or stands out."""

import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tff_adaptive.reports import figures, report, scores
from tff_adaptive.runs import run as run_lib

if TYPE_CHECKING:
  import pandas as pd

_REASONS = ('diverged', 'empty', 'failed', 'late', 'enough', 'stale')
# Column of the ledger -> the heading of its mean over clients and rounds.
_OF_DRIFT = {
  'update_norm': 'norm of update',
  'gradient_norm': 'norm of gradient',
  'cosine_mean': 'cosine to mean',
  'cosine_h': 'cosine to h',
  'train_loss': 'training loss',
  'loss_before': 'loss before',
  'loss_after': 'loss after',
  'staleness': 'staleness',
}


def build(groups: Mapping[str, Sequence[run_lib.Run]], top: int, title: str = '') -> report.Report:
  """Reports on the ledgers of runs.

  Args:
    groups: Runs by label. The runs of a label differ only in their seed.
    top: How many clients that stand out are listed for each label.
    title: The title of the figure.

  Returns:
    A report. Its tables have, for each label, the participation of clients and what became of their
    updates; the means of norms, cosines and losses over the updates that counted, in the first and
    the last third of the rounds; and the clients that diverged, or whose updates are the largest
    beside those of their rounds. Its figure has the median norm of the updates of a round.

  Raises:
    RunFileError: If a run has no ledger.
  """
  ledgers = {}
  for label, members in groups.items():
    ledgers[label] = [_with_ratio(run.ledger) for run in members]
  tables = [_participation(ledgers, title), _drift(ledgers)]
  standing_out = _standing_out(ledgers, top)
  if standing_out.rows:
    tables.append(standing_out)
  curves = [_curve(label, tables_of) for label, tables_of in ledgers.items()]
  data: list[list[Any]] = []
  for curve in curves:
    for point in zip(curve.rounds, curve.mean, curve.std):
      data.append([curve.label, *point])
  text = report.csv_text([['label', 'round', 'median_update_norm', 'std'], *data])
  drawn = [curve for curve in curves if len(curve.rounds)]
  figure = None
  if drawn:
    all_runs = itertools.chain.from_iterable(groups.values())
    task = scores.data_of(run.shown for run in all_runs)
    figure = figures.comparison({'median norm of updates': drawn}, title=title or task)
  return report.Report(tables, text, figure, title)


def _with_ratio(table: 'pd.DataFrame') -> 'pd.DataFrame':
  """Returns a ledger with `ratio`: each norm over the median of the norms of its round."""
  # Norms shrink in the course of training, so a client stands out only beside those of its round.
  counted = table['outcome'] == 'counted'
  norms = table['update_norm'].where(counted)
  medians = norms.groupby(table['round']).transform('median')
  return table.assign(ratio=norms / medians)


def _participation(ledgers: Mapping[str, Sequence['pd.DataFrame']], title: str) -> report.Table:
  """Returns the table of who took part, and why updates did not count; means over the runs."""
  # Only reasons that occur: most runs have one or two of them.
  outcomes: set[str] = set()
  for table in itertools.chain(*ledgers.values()):
    outcomes.update(table['outcome'].unique())
  reasons = [reason for reason in _REASONS if reason in outcomes]
  heading = ['', 'clients seen', 'updates that counted', *reasons, 'fewest', 'median', 'most']
  rows = []
  for label, tables in ledgers.items():
    cells: list[list[float]] = []
    for table in tables:
      counted = table[table['outcome'] == 'counted']
      numbers = [float(table['client'].nunique()), float(len(counted))]
      numbers += [float((table['outcome'] == reason).sum()) for reason in reasons]
      # A client that was drawn, but never counted, counts with 0.
      times = counted['client'].value_counts().reindex(table['client'].unique(), fill_value=0)
      numbers += [float(times.min()), float(times.median()), float(times.max())]
      cells.append(numbers)
    columns = [report.spread(list(column), 1) for column in zip(*cells)]
    rows.append([label, *columns])
  note = 'fewest, median and most: how often a client that was drawn counted.'
  return report.Table(heading, rows, title=title or 'Participation', note=note)


def _drift(ledgers: Mapping[str, Sequence['pd.DataFrame']]) -> report.Table:
  """Returns the table of norms, cosines and losses, in the first and the last third of rounds."""
  # Some are empty without `--full_ledger`, and the staleness in synchronous training.
  columns = []
  for name in _OF_DRIFT:
    if any(table[name].notna().any() for table in itertools.chain(*ledgers.values())):
      columns.append(name)
  rows = []
  for label, tables in ledgers.items():
    for part in ('first', 'last'):
      cells = []
      for name in columns:
        means = [_mean(table, name, part) for table in tables]
        cells.append(report.spread(means))
      rows.append([f'{label}, {part} third', *cells])
  heading = ['', *(_OF_DRIFT[name] for name in columns)]
  note = 'Means over the updates that counted in a third of the rounds.'
  return report.Table(heading, rows, title='Drift', note=note)


def _mean(table: 'pd.DataFrame', name: str, part: str) -> float:
  """Returns the mean of a column over the updates that counted in the first or last third."""
  # By rounds and not by rows, because cohorts may differ in size. At least one round.
  third = max(1, int(table['round'].max()) // 3)
  inside = table['round'] <= third
  if part == 'last':
    inside = table['round'] > table['round'].max() - third
  values = table[name][inside & (table['outcome'] == 'counted')]
  if not values.notna().any():
    return float('nan')
  return float(values.astype('float64').mean())


def _standing_out(ledgers: Mapping[str, Sequence['pd.DataFrame']], top: int) -> report.Table:
  """Returns the table of clients that diverged, and of those with the largest updates."""
  import pandas as pd  # Slow to import and needed here only.

  rows = []
  for label, tables in ledgers.items():
    whole = pd.concat(tables)
    by_client = whole.groupby('client')
    clients = pd.DataFrame(
      {
        'times': by_client.size(),
        'diverged': by_client['outcome'].agg(lambda outcomes: int((outcomes == 'diverged').sum())),
        'ratio': by_client['ratio'].median(),
        'cosine': by_client['cosine_mean'].median(),
        'attacks': by_client['is_attacker'].any(),
      }
    )
    # The sort is stable, so that equal clients are in the order of their ids.
    clients = clients.sort_values(['diverged', 'ratio'], ascending=False, kind='stable')
    for client, values in clients.head(top).iterrows():
      # A client that never counted and never diverged was only late, say.
      if not values['diverged'] and not np.isfinite(values['ratio']):
        continue
      cells = [str(values['times']), str(values['diverged'])]
      cells += [_number(values['ratio']), _number(values['cosine'])]
      cells.append('yes' if values['attacks'] else '')
      rows.append([f'{label}: {client}', *cells])
  heading = ['', 'times drawn', 'diverged', 'norm over median', 'cosine to mean', 'attacker']
  note = (
    'Norm over median: the median over rounds of the norm of its update over that of the round.'
  )
  return report.Table(heading, rows, title='Clients that stand out', note=note)


def _number(value: float) -> str:
  """Formats a number; '' if it is not known."""
  if not np.isfinite(value):
    return ''
  return f'{value:.2f}'


def _curve(label: str, tables: Sequence['pd.DataFrame']) -> figures.Curve:
  """Returns the median norm of the updates of each round: mean and deviation over the runs."""
  import pandas as pd  # Slow to import and needed here only.

  of_runs = []
  for table in tables:
    counted = table[table['outcome'] == 'counted']
    of_runs.append(counted.groupby('round')['update_norm'].median())
  # Rounds in which all runs have a value: else the mean would jump where a run is missing.
  medians = pd.concat(of_runs, axis=1).dropna()
  rounds = medians.index.to_numpy()
  deviation = np.zeros(len(medians))
  if len(of_runs) > 1:
    deviation = medians.std(axis=1, ddof=1).to_numpy()
  mean = medians.mean(axis=1).to_numpy()
  return figures.Curve(label, label, rounds, rounds.astype(np.float64), mean, deviation)
