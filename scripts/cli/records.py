"""Makes config.json's record of a run's settings, and checks a run's folder."""

import os

from tff_adaptive._utils import user_files
from tff_adaptive.runs import config, errors, state_path
from tff_adaptive.training import initial_weights

from . import command, settings as settings_lib


def of(run: settings_lib.Settings) -> config.Record:
  """Returns what config.json records of a run: its settings, and hashes of the user's own files.

  Raises:
    ValueError: If a user's file cannot be used, or --initial_weights names a run without weights.
    OSError: If a file cannot be read.
  """
  titles = {
    'algorithm': run.what.algorithm_entry.title,
    'server_optimizer': run.what.server_entry.title,
    'client_optimizer': run.what.client_entry.title,
  }
  files = {}
  for key, source in run.sources().items():
    files[key] = source.record()
    files[key]['copy'] = user_files.place_of_copy(key, files[key])
    if key in titles:
      files[key]['name'] = titles[key]
  paths = run.population.files()
  if run.what.initial_weights is not None:
    paths['initial_weights'] = initial_weights.file_of(run.what.initial_weights)
  for flag, path in paths.items():
    files[flag] = {'path': path, 'sha256': initial_weights.sha256(path)}
  # 0, the default with --ray, is recorded as None, as without --ray: the bits are the same.
  settings = {**run.flat(), 'gpus_per_worker': run.runtime.gpus_per_worker or None}
  if run.task_object is not None:
    for name in ('task_option', 'data_dir'):  # Nothing can load the task from its name.
      del settings[name]
  return config.Record(
    settings,
    settings_lib.CHANGE_NO_NUMBER,
    files,
    given=tuple(run.given),
    may_go_on=run.aggregation.target_epsilon is None,
    hints={
      'rounds': ', on which the noise for --target_epsilon depends',
      'subrounds': ' (a run keeps its subrounds, with --ray and without)',
    },
    prefix='--',
  )


def check_folder(folder: str, record: config.Record) -> None:
  """Raises ValueError if a folder is not writable, or holds anything but the run of `record`."""
  command.check_writable(folder, f'output_dir={folder}')
  state_path.check_length(folder)
  if record.check(folder) is not None or not os.path.isdir(folder):
    return
  # Hidden files do not count: a killed start may have left a part of config.json in one.
  if any(not name.startswith('.') for name in os.listdir(folder)):
    raise errors.ResumeError(
      f'--output_dir={folder} is not empty and holds no {config.FILE}: name a new folder.'
    )
