"""What config.json records of a run's settings."""

from tff_adaptive.runs import config
from tff_adaptive.training import initial_weights

from . import settings as settings_lib


def of(run: settings_lib.Settings) -> config.Record:
  """Returns the record of a run's settings.

  Raises:
    ValueError: If --initial_weights names a run without weights.
    OSError: If a file cannot be read.
  """
  files, start = run.files(), run.what.initial_weights
  if start is not None:
    files['initial_weights'] = {'path': start, 'sha256': initial_weights.sha256(start)}
  # None without --ray, 0 with it: the same subrounds have the same bits.
  settings = {**run.flat(), 'gpus_per_worker': run.runtime.gpus_per_worker or None}
  return config.Record(
    settings,
    settings_lib.CHANGE_NO_NUMBER,
    files,
    may_go_on=run.aggregation.target_epsilon is None,
    hints={
      'rounds': ', on which the noise for --target_epsilon depends',
      'subrounds': ' (a run keeps its subrounds, with --ray and without)',
    },
    prefix='--',
    place='--output_dir',
  )
