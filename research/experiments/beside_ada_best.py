"""Table 2 of "AdaBest" on EMNIST-L, and beside each row ours.

usage: python -m research.experiments.beside_ada_best --results=NAME

Reads NAME.csv and NAME_not_clipped.csv, two crossed reports of runs with gradients that are clipped
and with gradients that are not. Writes NAME.md.

  sh results/founding_letters/run.sh DIR
"""

import os
import sys
from collections.abc import Sequence

import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command

from . import frame

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_string('results', None, 'NAME of the tables.', flag_values=_FLAGS)
# Varno et al., ECCV 2022, Table 2, EMNIST-L, participation of 1 and 10 %: accuracy in percent after
# the last round, mean of five seeds. Its SCAFFOLD is SCAFFOLD/m of its Algorithm 1.
PUBLISHED = {
  ('1 %', 'alpha = 0.03'): {'FedAvg': 94.28, 'FedDyn': 92.42, 'SCAFFOLD': 93.99, 'AdaBest': 94.49},
  ('1 %', 'alpha = 0.3'): {'FedAvg': 94.47, 'FedDyn': 92.64, 'SCAFFOLD': 94.34, 'AdaBest': 94.72},
  ('1 %', 'IID'): {'FedAvg': 94.04, 'FedDyn': 92.89, 'SCAFFOLD': 94.48, 'AdaBest': 94.81},
  ('10 %', 'alpha = 0.03'): {'FedAvg': 93.58, 'FedDyn': 93.57, 'SCAFFOLD': 94.29, 'AdaBest': 94.62},
  ('10 %', 'alpha = 0.3'): {'FedAvg': 94.04, 'FedDyn': 93.54, 'SCAFFOLD': 94.54, 'AdaBest': 94.64},
  ('10 %', 'IID'): {'FedAvg': 94.32, 'FedDyn': 93.60, 'SCAFFOLD': 94.62, 'AdaBest': 94.70},
}
_UNCLIPPED = ', not clipped'
_COLUMNS = ('FedAvg', 'FedDyn', 'SCAFFOLD', 'SCAFFOLD/m', 'AdaBest', f'SCAFFOLD{_UNCLIPPED}')


def ours(name: str) -> pd.DataFrame:
  """Returns the values of a crossed report by (participation, clients) and algorithm, as text."""
  table = pd.read_csv(f'{name}.csv', dtype=str, keep_default_na=False)
  options = table.pop('task option')
  return table.assign(clients=options.map(_clients)).set_index(['participation', 'clients'])


def _clients(options: str) -> str:
  """Returns the paper's word for a task option's alpha, from 'num_clients=110, alpha=0.3' say."""
  alpha = dict(option.split('=') for option in options.split(', '))['alpha']
  return 'IID' if alpha == 'inf' else f'alpha = {alpha}'


def beside(clipped: pd.DataFrame, unclipped: pd.DataFrame) -> pd.DataFrame:
  """Returns a row of ours and a row of the paper for each participation and kind of clients."""
  table = clipped.join(unclipped.add_suffix(_UNCLIPPED))
  rows = []
  for (participation, clients), published in PUBLISHED.items():
    if (participation, clients) in table.index:
      place = {'participation': participation, 'clients': clients}
      values = table.loc[(participation, clients)].to_dict()
      rows.append({**place, 'from': 'here', **values})
      texts = {algorithm: f'{value:.2f}' for algorithm, value in published.items()}
      rows.append({**place, 'from': 'paper', **texts})
  table = pd.DataFrame(rows).fillna('')
  columns = [name for name in ('participation', 'clients', 'from', *_COLUMNS) if name in table]
  return table[columns].set_index('participation')


@command.entry('beside_ada_best.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  name = _FLAGS.results
  if not name:
    raise ValueError('give --results: see --help.')
  for path in (f'{name}.csv', f'{name}_not_clipped.csv'):
    if not os.path.exists(path):
      raise ValueError(f'{path} is not there: sh results/founding_letters/run.sh DIR writes it.')
  table = beside(ours(name), ours(f'{name}_not_clipped'))
  frame.write(name, [_INTRODUCTION, frame.table(table)])
  return command.DONE


_INTRODUCTION = frame.paragraph("""
  Test accuracy in percent after the last round, mean ± standard deviation where there are several
  seeds, on the first ten EMNIST letters by AdaBest's protocol (section 4.1): MLP 784-100-100-10,
  five epochs of batches of 45, rate 0.1 that falls by 0.998 a round, weight decay 0.0001, clients
  weighted equally; 1,000 rounds at 1 %, 1,200 at 10 %. Gradients are clipped at 10, as in the code
  of FedDyn that AdaBest's follows, except where the column says so. AdaBest's beta is the best of
  0.2, 0.4 and 0.6 by validation at 1 %, and the paper's 0.96 at 10 %. The validation is of theta,
  the global model; the test is of theta-bar, the mean of the clients' models, where there is one.
  The paper's rows are means of five seeds; its SCAFFOLD is SCAFFOLD/m of its Algorithm 1.
""")

if __name__ == '__main__':
  sys.exit(main(sys.argv))
