"""PFLlib's own program on the clients of `personal_models`, for the table there.

usage: python -m research.experiments.beside_pfllib --data_dir=DIR [--flag=value ...]

It writes the 20 clients of the task (--task) as PFLlib's files, and runs PFLlib's main.py on
them, a method at a time, for as many rounds as --rounds says. PFLlib must be in .peers/pfllib, as
`sh scripts/env/setup_peers.sh pfllib` makes it. Writes RESULTS.csv, the accuracy in percent on the
clients' test images by method and round; methods that are in it with as many rounds are not run
again. `personal_models --report_only` takes it into its table.

  python -m research.experiments.beside_pfllib --data_dir=DIR --rounds=20
"""

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command

from . import frame, personal_models

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_PFLLIB = _ROOT / '.peers' / 'pfllib'
# What the lines before an accuracy say of the models that are evaluated.
_ROUND = re.compile(r'Round number: (\d+)')
_ACCURACY = re.compile(r'Averaged? Test Accuracy: ([\d.]+)')
_TUNES_AT_THE_END = 'FedBABU'
_TUNED = 'Evaluate fine-tuned personalized models'
# What PFLlib calls a task, and its number of classes.
_NAMES = {'fashion_mnist': ('FashionMNIST', 10), 'cifar100_pfllib': ('Cifar100', 100)}
COLUMNS = ('method', 'round', 'accuracy')

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_enum('task', 'fashion_mnist', list(_NAMES), 'Which.', flag_values=_FLAGS)
absl_flags.DEFINE_string('data_dir', None, "The folder of the task's files.", flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'results', 'results/personal_models/pfllib', 'Where to write: RESULTS.csv.', flag_values=_FLAGS
)
absl_flags.DEFINE_string(
  'folder', 'runs/beside_pfllib', "The folder of PFLlib's data and models.", flag_values=_FLAGS
)
absl_flags.DEFINE_list('methods', list(personal_models.METHODS), 'Which.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('rounds', 20, 'Of each method.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer(
  'rounds_per_evaluation',
  1,
  'On all images; each takes PFLlib about as long as a round. A divisor of --rounds.',
  lower_bound=1,
  flag_values=_FLAGS,
)


def write_clients(folder: pathlib.Path, data_dir: str | None, name: str) -> None:
  """Writes the clients' images where PFLlib's `read_data` looks, with the channels first."""
  import tff_adaptive_tasks as tasks

  task = tasks.load(name, data_dir=data_dir, seed=0)
  of_program, _ = _NAMES[name]
  tests = task.test_clients
  assert tests is not None
  for part, clients in (('train', task.train), ('test', tests)):
    to = folder / 'dataset' / of_program / part
    to.mkdir(parents=True, exist_ok=True)
    for number, client in enumerate(clients.client_ids):
      data = clients.load(client)
      images = np.moveaxis(data['x'], -1, 1)
      content: Any = {'x': images, 'y': data['y']}
      np.savez(to / f'{number}.npz', data=content)


def run(title: str, rounds: int, folder: pathlib.Path) -> pd.DataFrame:
  """Runs a method in PFLlib, and returns its rows."""
  system = folder / 'system'  # PFLlib's paths begin with '..'.
  system.mkdir(parents=True, exist_ok=True)
  method = personal_models.METHODS[title]
  # It trains once more after its last evaluation, before models are tuned.
  of_program = rounds - int(_TUNES_AT_THE_END in method.program)
  name, classes = _NAMES[_FLAGS.task]
  arguments = ['-data', name, '-ncl', str(classes), '-dev', 'cpu', '-gr', str(of_program)]
  arguments += ['-eg', str(_FLAGS.rounds_per_evaluation), *method.program]
  program = _PFLLIB / 'source' / 'system' / 'main.py'
  python = str(_PFLLIB / 'bin' / 'python')
  done = subprocess.run(
    [python, '-W', 'ignore', '-m', method.module, str(program), *arguments],
    cwd=system,
    env={**os.environ, 'PYTHONPATH': str(_ROOT)},
    stdout=subprocess.PIPE,
    text=True,
  )
  if done.returncode:
    raise ValueError(f"PFLlib's {title} ended with {done.returncode}; it said why above")
  return rows(title, rounds, done.stdout)


def rows(title: str, rounds: int, output: str) -> pd.DataFrame:
  """Reads what PFLlib's program prints.

  Of a round with several accuracies the last one counts, which is that of the clients' own models.
  Where models are tuned after the last round, only these count.
  """
  by_round: dict[int, float] = {}
  number = 0
  for line in output.splitlines():
    of_round = _ROUND.search(line)
    accuracy = _ACCURACY.search(line)
    if of_round is not None:
      number = int(of_round[1])
    elif _TUNED in line:
      by_round.clear()
      number = rounds
    elif accuracy is not None:
      by_round[number] = 100 * float(accuracy[1])
  table = pd.DataFrame(by_round.items(), columns=['round', 'accuracy'])
  return table.assign(method=title)[[*COLUMNS]]


@command.entry('beside_pfllib.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  personal_models.check_methods(_FLAGS.methods)
  if _FLAGS.rounds % _FLAGS.rounds_per_evaluation:
    raise ValueError(
      f'--rounds_per_evaluation={_FLAGS.rounds_per_evaluation} does not divide'
      f' --rounds={_FLAGS.rounds}: the last round would not be evaluated'
    )
  if not (_PFLLIB / 'bin' / 'python').exists():
    raise ValueError('PFLlib is not there: run sh scripts/env/setup_peers.sh pfllib')
  command.check_output('results', _FLAGS.results)
  folder = pathlib.Path(_FLAGS.folder).resolve()
  write_clients(folder, _FLAGS.data_dir, _FLAGS.task)
  path = pathlib.Path(f'{_FLAGS.results}.csv')
  table = pd.DataFrame(columns=[*COLUMNS])
  if path.exists():
    table = pd.read_csv(path)
  for title in _FLAGS.methods:
    before = table[table['method'] == title]
    if max(before['round'], default=-1) >= _FLAGS.rounds:
      continue
    others = table[table['method'] != title]
    table = pd.concat([others, run(title, _FLAGS.rounds, folder)], ignore_index=True)
    frame.write_rows(str(path), table)
    command.say(f'{title}: {_FLAGS.rounds} rounds')
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
