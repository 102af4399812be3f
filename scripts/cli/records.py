"""Makes config.json's record of a run's settings, and checks a run's folder."""

import os

from tff_adaptive.runs import config, errors
from tff_adaptive.training import initial_weights

from . import command, settings as settings_lib


def of(run: settings_lib.Settings) -> config.Record:
  """Returns the record of a run's settings and of the user's own files.

  Raises:
    ValueError: If --initial_weights names a run without weights.
    OSError: If a file cannot be read.
  """
  titles = {
    'algorithm': run.what.algorithm_entry.title,
    'server_optimizer': run.what.server_entry.title,
    'client_optimizer': run.what.client_entry.title,
  }
  files = {
    flag: {**source.record(), **({'name': titles[flag]} if flag in titles else {})}
    for flag, source in run.what.sources().items()
  }
  for flag, path in {'initial_weights': run.what.initial_weights, **run.population.files()}.items():
    if path is not None:
      path = initial_weights.file_of(path)
      files[flag] = {'path': path, 'sha256': initial_weights.sha256(path)}
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
  )


def check_folder(folder: str, record: config.Record) -> None:
  """Refuses a folder that is not usable, or belongs to another run than `record` describes."""
  command.check_writable(folder, f'output_dir={folder}')
  found = record.check(folder)
  # What a start that was killed left behind of config.json is hidden.
  if found is None and os.path.isdir(folder) and any(n[0] != '.' for n in os.listdir(folder)):
    raise errors.ResumeError(
      f'--output_dir={folder} is not empty and holds no {config.FILE}: name a new folder.'
    )
