"""Folders of runs, written by hand: for what reads them."""

import json
import os

from tff_adaptive.runs import run as run_lib


def make(
  folder, values, column='validation_accuracy', *, every=1, data=None, test=None, **settings
):
  """Writes a run whose `column` has `values`, one every so many rounds from round 0.

  Each round takes half a second, and sends 2 MB to clients and 1 MB back.

  Returns:
    The run, read again.
  """
  folder = str(folder)
  os.makedirs(folder)
  last = every * (len(values) - 1)
  settings = {'algorithm': 'fed_avg', 'seed': 0, 'rounds': last, **settings}
  with open(os.path.join(folder, 'config.json'), 'w') as file:
    json.dump({'settings': settings, 'data': data or {}}, file)
  with open(os.path.join(folder, 'metrics.csv'), 'w') as file:
    file.write(f'round,{column},seconds_round,megabytes_down,megabytes_up\n')
    for t in range(last + 1):
      value = '' if t % every else repr(float(values[t // every]))
      costs = '0.5,2.0,1.0' if t else ',,'
      file.write(f'{t},{value},{costs}\n')
  if test is not None:
    with open(os.path.join(folder, 'summary.json'), 'w') as file:
      json.dump({'is_complete': True, 'rounds': last, 'test': test}, file)
  return run_lib.load_run(folder)
