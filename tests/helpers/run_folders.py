"""Folders of runs, written by hand: for what reads them."""

import json
import os

from tff_adaptive.runs import config as config_lib, run as run_lib


def config(settings, **more):
  """What a config.json with these settings holds."""
  return {
    **{'format': config_lib.FORMAT, 'run_id': 'x', 'started': '2026-11-21T10:00:00+00:00'},
    **{'settings': {'rounds': 1, **settings}, 'change_no_number': [], 'files': {}, 'data': {}},
    **{'num_parameters': 3, 'versions': {}, 'git_revision': 'abc', 'changes': [], **more},
  }


def write_config(folder, settings, **more):
  """Writes a config.json; returns its path."""
  path = os.path.join(str(folder), 'config.json')
  with open(path, 'w') as file:
    json.dump(config(settings, **more), file)
  return path


def make(
  folder, values, column='validation_accuracy', *, every=1, data=None, test=None, **settings
):
  """Writes and loads a run with `values` in `column`, one every so many rounds from round 0.

  Each round takes half a second, and sends 2 MB to clients and 1 MB back.
  """
  folder = str(folder)
  os.makedirs(folder)
  last = every * (len(values) - 1)
  settings = {'algorithm': 'fed_avg', 'seed': 0, 'rounds': last, **settings}
  write_config(folder, settings, data=data or {})
  with open(os.path.join(folder, 'metrics.csv'), 'w') as file:
    file.write(f'round,{column},seconds_round,megabytes_down,megabytes_up\n')
    for t in range(last + 1):
      if t % every:
        value = ''
      else:
        value = repr(float(values[t // every]))
      if t:
        costs = '0.5,2.0,1.0'
      else:
        costs = ',,'
      file.write(f'{t},{value},{costs}\n')
  if test is not None:
    with open(os.path.join(folder, 'summary.json'), 'w') as file:
      json.dump({'is_complete': True, 'rounds': last, 'test': test}, file)
  return run_lib.load_run(folder)


def each(folder, ends, column='validation_accuracy', *, start=0.1, **common):
  """Runs of one round: of each its last value and the settings in which it differs."""
  return [
    make(os.path.join(folder, str(i)), [start, end], column, **{**common, **settings})
    for i, (end, settings) in enumerate(ends)
  ]
