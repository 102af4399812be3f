"""Trains pfl-research's CIFAR-10 with differential privacy here and there, rounds in turn.

usage: python -m research.experiments.beside_pfl --data_dir=DIR --peer=PYTHON [--flag=value ...]

Their published setting: 1,000 IID clients of 50 images, 50 a round, batches of 10, one epoch at
rate 0.1, the plain mean of updates clipped at 0.4, noise for epsilon 2 and delta 1e-6 after 3,000
rounds of 1,000 out of a million users; their accountant computes it. Both have the same
cohorts; initial weights, dropout and noise differ. DIR has cifar10.npz, and PYTHON is the one of
`scripts/env/setup_peers.sh pfl`. Writes RESULTS.csv, RESULTS.md and RESULTS.png at each evaluation.
"""

import functools
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive.reports import style

from . import frame

_FLAGS = absl_flags.FlagValues()
for _name, _default, _words in (
  ('data_dir', None, 'Folder with cifar10.npz.'),
  ('peer', '.peers/pfl/bin/python', "pfl-research's Python."),
  ('results', 'results/beside_pfl_dp', 'Where to write.'),
):
  absl_flags.DEFINE_string(_name, _default, _words, flag_values=_FLAGS)
for _name, _number in (('rounds', 3000), ('rounds_per_evaluation', 50), ('seed', 0)):
  absl_flags.DEFINE_integer(_name, _number, 'A whole number.', flag_values=_FLAGS)

_NAMES = 'tff-adaptive', 'pfl-research'
_CLIENTS, _COHORT, _EXAMPLES, _BATCH, _RATE, _CLIP = 1000, 50, 50, 10, 0.1, 0.4
_NOISE_COHORT, _POPULATION, _ROUNDS, _EPSILON, _DELTA = 1000, 10**6, 3000, 2.0, 1e-6

Round = Callable[[int, bool], dict[str, float]]


@command.entry('beside_pfl.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  if not _FLAGS.data_dir or not os.path.isfile(_FLAGS.peer):
    raise ValueError('give --data_dir, with cifar10.npz, and --peer: see --help.')
  arrays = _arrays()
  draws = np.random.default_rng([_FLAGS.seed, 1])
  cohorts = [
    draws.choice(_CLIENTS, _COHORT, replace=False).tolist() for _ in range(_FLAGS.rounds + 2)
  ]
  with tempfile.TemporaryDirectory() as folder:
    theirs, noise = _theirs(folder, arrays, cohorts)
    both = dict(zip(_NAMES, (_ours(arrays, cohorts, noise), theirs)))
    _train(both, noise)
  return command.DONE


def _arrays() -> dict[str, np.ndarray]:
  """Images standardised by channel, in the order of the clients."""
  from tff_adaptive_tasks.data import image_arrays

  train, test, _ = image_arrays.load(image_arrays.CIFAR10, _FLAGS.data_dir)
  if len(train.y) < _CLIENTS * _EXAMPLES:
    raise ValueError(f'{len(train.y)} training images; {_CLIENTS * _EXAMPLES} are needed.')
  order = np.random.default_rng(_FLAGS.seed).permutation(len(train.y))
  axes = (0, 1, 2)
  mean, deviation = train.x.mean(axes, np.float64), train.x.std(axes, np.float64)
  x, x_test = (((v - mean) / deviation).astype(np.float32) for v in (train.x[order], test.x))
  return {'x': x, 'y': train.y[order], 'x_test': x_test, 'y_test': test.y}


def _theirs(
  folder: str, arrays: dict[str, np.ndarray], cohorts: list[list[int]]
) -> tuple[Round, float]:
  """What does a round in pfl-research, and the noise multiplier by its accountant."""
  path = os.path.join(folder, 'images.npz')
  np.savez(path, **arrays)
  with socket.socket() as free:
    free.bind(('127.0.0.1', 0))
    port = free.getsockname()[1]
  accountant = {
    'num_compositions': _ROUNDS,
    'sampling_probability': _NOISE_COHORT / _POPULATION,
    'epsilon': _EPSILON,
    'delta': _DELTA,
    'noise_scale': _COHORT / _NOISE_COHORT,
  }
  settings = {'port': port, 'cohorts': cohorts, 'examples': _EXAMPLES, 'rate': _RATE}
  settings |= {'batch_size': _BATCH, 'clip': _CLIP, 'accountant': accountant, 'seed': _FLAGS.seed}
  script = pathlib.Path(__file__).parents[1] / 'peers' / 'cifar10_rounds.py'
  given = os.path.join(folder, 'settings.json')
  pathlib.Path(given).write_text(json.dumps(settings), encoding='utf-8')
  peer = subprocess.Popen(
    [_FLAGS.peer, str(script), path, given],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )

  def read() -> dict[str, float]:
    assert peer.stdout is not None
    for line in peer.stdout:
      if line.startswith('{'):
        return dict(json.loads(line))
    raise RuntimeError('the process of pfl-research has ended.')

  def do_round(r: int, evaluates: bool) -> dict[str, float]:
    assert peer.stdin is not None
    peer.stdin.write('accuracy\n' if evaluates else 'round\n')
    peer.stdin.flush()
    return read()

  return do_round, read()['noise_multiplier']


def _ours(arrays: dict[str, np.ndarray], cohorts: list[list[int]], noise: float) -> Round:
  """What does a round in this project."""
  from tff_adaptive import aggregation, algorithms, client, engine, models
  from tff_adaptive_tasks import emnist

  engine.set_graph_context()
  model = emnist.build_cnn(_FLAGS.seed, 10, (32, 32, 3))
  process = algorithms.build_fed_avg(
    model,
    client_learning_rate=_RATE,
    training=client.ClientTraining(batching=client.Batching(_BATCH), seed=_FLAGS.seed),
    client_weighting='uniform',
    aggregator=aggregation.build_aggregator(
      'dp_gaussian',
      {'noise_multiplier': noise, 'clip': _CLIP, 'adaptive': False},
      aggregation.Cohort(_COHORT, model.initial_weights[0], False, _FLAGS.seed),
    ),
  )
  evaluate = models.build_evaluation(model, 1000)
  state = process.initialize()

  @functools.cache
  def load(c: int) -> Any:
    part = slice(c * _EXAMPLES, (c + 1) * _EXAMPLES)
    return client.client_arrays(arrays['x'][part], arrays['y'][part], c)

  def do_round(r: int, evaluates: bool) -> dict[str, float]:
    nonlocal state
    start = time.perf_counter()
    state = process.next(state, [load(c) for c in cohorts[r]]).state
    weights = state.global_model_weights.trainable
    found = {'seconds': time.perf_counter() - start}
    if evaluates:
      test = {'x': arrays['x_test'], 'y': arrays['y_test']}
      found['accuracy'] = evaluate(weights, test)['accuracy']
    return found

  return do_round


def _train(both: dict[str, Round], noise: float) -> None:
  rows: list[dict[str, Any]] = []
  for r in range(_FLAGS.rounds):
    evaluates = (r + 1) % _FLAGS.rounds_per_evaluation == 0 or r + 1 == _FLAGS.rounds
    row: dict[str, Any] = {'round': r + 1}
    for name in [*both][:: 1 if r % 2 else -1]:  # Either is the first in half of the rounds.
      row |= {f'{key} {name}': value for key, value in both[name](r, evaluates).items()}
    rows.append(row)
    if evaluates:
      _write(pd.DataFrame(rows), noise)
      command.show(f'round {r + 1}: {row}\n')


def _write(rows: pd.DataFrame, noise: float) -> None:
  from tff_adaptive.aggregation import accounting

  frame.write_rows(f'{_FLAGS.results}.csv', rows)
  seconds, accuracy = ([f'{what} {name}' for name in _NAMES] for what in ('seconds', 'accuracy'))
  medians = [statistics.median(rows[column][1:]) for column in seconds]
  measured = rows.dropna().set_index('round')
  cells = {'seconds a round, median': [f'{m:.3f}' for m in medians]}
  cells |= {
    f'accuracy after round {r}': [f'{measured[column][r]:.4f}' for column in accuracy]
    for r in measured.index
    if r % 250 == 0 or r == measured.index[-1]
  }
  last = measured.tail(10)
  cells['accuracy, mean of the last ten'] = [f'{last[column].mean():.4f}' for column in accuracy]
  z = noise * _NOISE_COHORT / _COHORT
  joins, exchanged = (
    accounting.SampledGaussian(_POPULATION, _NOISE_COHORT, factor * z).epsilon(_ROUNDS, _DELTA)
    for factor in (accounting.SENSITIVITY, 1.0)
  )
  text = f"""
    {medians[1] / medians[0]:.2f} x as fast as pfl-research 0.6.0 in two processes of one thread,
    whose published setting it is: see the program. Its accountant asks for a noise multiplier of
    {noise:.6f} for a cohort of {_COHORT}, {z:.4f} for one of {_NOISE_COHORT}: epsilon
    {_EPSILON:g} at delta {_DELTA:g} after {_ROUNDS} rounds if one user more or less takes part.
    This project's accountant says {joins:.3f} for that, and {exchanged:.3f} if one user is
    exchanged for another, which it means. Rounds in turn, seed {_FLAGS.seed}."""
  flags = f'experiments.beside_pfl --data_dir=DIR --rounds={_FLAGS.rounds}'
  parts = ['# CIFAR-10 with differential privacy, beside pfl-research\n']
  parts += [frame.table(pd.DataFrame(cells, [*_NAMES]).T), frame.paragraph(text)]
  frame.write(_FLAGS.results, [*parts, frame.made_by(flags, f'{len(rows)} rounds')])
  figure, axes = style.figure(1, 2, width=4.2)
  lines = {}
  for i, (name, s, a) in enumerate(zip(_NAMES, seconds, accuracy)):
    minutes = rows[s].cumsum().to_numpy()[measured.index - 1] / 60
    for axis, x in zip(axes[0], (measured.index, minutes)):
      (lines[name],) = axis.plot(x, measured[a], **style.line(i))
  for axis, label in zip(axes[0], ('round', 'minutes of training')):
    axis.set(xlabel=label, ylabel='test accuracy')
    axis.grid(alpha=0.3)
  style.legend(figure, [*lines.values()], [*lines])
  style.write(figure, f'{_FLAGS.results}.png')


if __name__ == '__main__':
  sys.exit(main())
