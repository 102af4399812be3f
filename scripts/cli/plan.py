"""The flags of sweep.py, and the parts of a search that follow from them."""

import dataclasses

from tff_adaptive.runs import run as run_lib

from . import fields, search_space

_DRAWN = fields.Needs('search', ('random', 'tpe'))
_WAY_OUT = 'restore a copy of the file, or remove the folder, and the run is done again.'


def _check_metric_name(name: str, metric: str) -> None:
  if not metric.startswith(('validation_', 'inference_', 'train_')):
    raise ValueError(
      f'{name}={metric} must begin with validation_, inference_ or train_, because trials are never'
      ' selected on test data: give validation_accuracy, say.'
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(fields.Group):
  """The flags of sweep.py; flags after ' -- ' are those of train.py."""

  TITLE = 'Sweep'

  grid: tuple[str, ...] = fields.flag(
    'A flag of train.py and its values: FLAG=VALUE,VALUE. Each trial is trained with each seed.'
    ' May be repeated.',
    [],
  )
  range: tuple[str, ...] = fields.flag(
    'A flag of train.py, for random and tpe, whose values are drawn between bounds: FLAG=LOW,HIGH'
    ' or FLAG=LOW,HIGH,log. May be repeated.',
    [],
    needs=_DRAWN,
  )
  output_dir: str | None = fields.flag('Folder for the folders of the runs. Required.')
  search: str = fields.flag(
    'grid: every combination; random: random points; tpe: points near good ones, by the'
    " tree-structured Parzen estimator (Optuna's).",
    'grid',
    choices=('grid', 'random', 'tpe'),
  )
  trials: int | None = fields.count(
    'Number of trials of random and tpe. A later command may ask for more.', needs=_DRAWN
  )
  search_seed: int = fields.count(
    'Seed of the draws of random and tpe.', 0, zero='the default', needs=_DRAWN
  )
  prune: str | None = fields.flag(
    'asha: asynchronous successive halving. Trials are compared at --first_rung rounds and then at'
    ' --reduction_factor times as many each; the best of them continue their runs.',
    choices=('asha',),
  )
  first_rung: int | None = fields.count(
    'Rounds before trials are pruned. Default: a ninth of --rounds.', needs='prune'
  )
  reduction_factor: int = fields.count(
    'One of this number of trials, 2 or more, continues from a rung to the next.',
    3,
    low=2,
    needs='prune',
  )
  jobs: int = fields.count('Runs at a time.', 1)
  metric: str | None = fields.flag(
    "Column of metrics.csv by which trials are compared. Default: the task's metric on the"
    ' validation data.',
    check=_check_metric_name,
  )
  window: int | None = fields.count(
    'Trials are compared by their means over this number of last rounds. Default: the last tenth,'
    ' and at most 100.'
  )
  target: float | None = fields.flag('Show after how many rounds the metric reached this value.')
  dry_run: bool = fields.flag('Only show the commands that would run.', False)

  @property
  def is_grid(self) -> bool:
    """Whether the search tries every combination."""
    return self.search == 'grid'

  def rungs(self, rounds: int) -> list[int]:
    """Returns the rounds at which trials are compared, the rungs, followed by the last round."""
    rungs = []
    rung = self.first_rung or rounds
    while rung < rounds:
      rungs.append(rung)
      rung *= self.reduction_factor
    return [*rungs, rounds]

  def folder(self, number: int, point: search_space.Point) -> str:
    """Returns the name of a trial's folder."""
    if self.is_grid:
      return search_space.label(point)
    return f'trial={number}'  # Values that are drawn have too many digits for a name.

  def read(self, folder: str, rounds: int) -> run_lib.Run:
    """Returns the run in `folder` with the rows of its first `rounds` rounds.

    Raises ValueError if the run cannot be read, or lacks a row, which would change its mean.
    """
    try:
      run = run_lib.load_run(folder)
    except ValueError as error:
      raise ValueError(f'{str(error).rstrip(".")}: {_WAY_OUT}') from None
    last = int(run.rows[-1]['round'])
    if run.is_complete and last < run.settings['rounds']:  # The run has stopped at its target.
      rounds = min(rounds, last)
    rows = [row for row in run.rows if row['round'] <= rounds]
    missing = {*range(rounds + 1)} - {int(row['round']) for row in rows}
    if missing:
      raise ValueError(f'{folder} lacks round {min(missing)} in metrics.csv: {_WAY_OUT}')
    return dataclasses.replace(run, rows=rows, window=self.window)
