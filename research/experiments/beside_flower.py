"""FedAvg on MNIST here and in Flower's baseline, accuracy by round.

usage: python -m research.experiments.beside_flower --runs=FOLDER --published=FILE --results=NAME

FOLDER has a run for each number of local epochs, E=1 and E=5, with an evaluation in every round.
FILE is published_curves_flower.json, the curves that Flower's baseline fedavg_mnist committed.
Writes NAME.csv, all rounds of both, and NAME.md, some of them.

  sh results/mnist_flower/run.sh DIR
"""

import json
import pathlib
import sys
from collections.abc import Sequence

import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive.runs import run as run_lib

from . import frame

_FLAGS = absl_flags.FlagValues()
for _name, _words in (
  ('runs', "The runs' folder."),
  ('published', 'published_curves_flower.json.'),
  ('results', 'Where to write: NAME.md, NAME.csv.'),
):
  absl_flags.DEFINE_string(_name, None, _words, flag_values=_FLAGS)
ROUNDS = (1, 2, 5, 10, 20, 30, 40, 50)


def published(path: str, epochs: int) -> dict[int, float]:
  """Returns Flower's accuracy by round: 100 clients, batches of 10, `epochs` local epochs."""
  content = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
  curves = content['fedavg_mnist'][f'C=100_B=10_E={epochs}_R=1000_stag=0.0']
  for name in ('metrics_centralized/accuracy', 'accuracy'):
    if name in curves:
      return {int(number): float(value) for number, value in curves[name]}
  raise ValueError(f'--published={path}: E={epochs} has no accuracies.')


def rows(folder: str, path: str) -> pd.DataFrame:
  """Returns E, round, and the accuracies of both, in the rounds that the runs have."""
  parts = []
  for run in run_lib.find_runs([folder]):
    epochs = run.settings['client_epochs']
    theirs = published(path, epochs)
    for row in run.rows:
      number = int(row['round'])
      if number > 0 and 'validation_accuracy' in row:
        parts.append((epochs, number, row['validation_accuracy'], theirs[number]))
  table = pd.DataFrame(parts, columns=['E', 'round', 'here', 'flower'])
  return table.sort_values(['E', 'round'])


@command.entry('beside_flower.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  for name in ('runs', 'published', 'results'):
    if not _FLAGS[name].value:
      raise ValueError(f'give --{name}: see --help.')
  command.check_output('results', _FLAGS.results)
  table = rows(_FLAGS.runs, _FLAGS.published)
  frame.write_rows(f'{_FLAGS.results}.csv', table)
  some_rounds = table[table['round'].isin(ROUNDS)].set_index('round')
  columns = {}
  for epochs, part in some_rounds.groupby('E'):
    columns[f'E = {epochs}, here'] = part['here'].map('{:.4f}'.format)
    columns[f'E = {epochs}, Flower'] = part['flower'].map('{:.4f}'.format)
  frame.write(_FLAGS.results, [_INTRODUCTION, frame.table(pd.DataFrame(columns).fillna(''))])
  return command.DONE


_INTRODUCTION = frame.paragraph("""
  Test accuracy of FedAvg on MNIST after some rounds: the CNN of McMahan et al., 100 clients with
  two label shards each, B = 10, rate 0.1, SGD; ours beside the curves that Flower committed with
  its baseline fedavg_mnist. Here 10 clients train in a round; how many did in Flower is not in the
  file.
""")

if __name__ == '__main__':
  sys.exit(main())
