"""Client drift on federated least squares: predicted and measured paths, and the theory's rates.

usage: python -m research.experiments.least_squares [--flag=value ...]

Client k has the loss 1/2 ||A_k x - b_k||^2 and takes E full-gradient steps of a rate s in a round,
all clients in every round. The mean of their models then is x^{t+1} = B x^t + c, with B the mean of
the (I - s A_k'A_k)^E: the predicted path of FedAvg. The adaptive servers take the rates of
Corollaries 1 and 2 of "Adaptive Federated Optimization" (client rate 1 / (K L sqrt(T)), server rate
sqrt(K m), tau = G / L) beside the best of a grid. Writes RESULTS.md, RESULTS.csv, RESULTS.png.

  python -m research.experiments.least_squares --results=results/least_squares_paths
"""

import itertools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive.reports import style

from . import frame

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_integer('rounds', 100, 'Rounds, T.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer('seed', 2, 'Of problem and x_0.', lower_bound=0, flag_values=_FLAGS)
_PATH = 'results/least_squares_paths'
absl_flags.DEFINE_string('results', _PATH, 'Where to write.', flag_values=_FLAGS)
_RATE, _STEPS, _K = 0.125, (1, 2, 5, 20, 50), 5  # s and E of FedAvg; E of the adaptive servers.
_SERVERS = ('fed_adagrad', 'fed_adam', 'fed_yogi')
_GRID = (0.003, 0.01, 0.03), (0.1, 0.3, 1, 3), (1e-3, 0.1)  # Client rate, server rate, tau.


def path(
  model: Any, a: np.ndarray, b: np.ndarray, name: str, rate: float, steps: int, **options: Any
) -> np.ndarray:
  """The global model before the first round and after each, float64 [T + 1, n]."""
  from tff_adaptive import algorithms, client

  training = client.ClientTraining(batching=client.Batching(None, epochs=steps))
  options |= {'client_learning_rate': rate, 'client_weighting': 'uniform', 'training': training}
  process: Any = getattr(algorithms, f'build_{name}')(model, **options)
  data = [client.client_arrays(x, y, i) for i, (x, y) in enumerate(zip(a, b))]
  state = process.initialize()
  found = [state.global_model_weights.trainable[0]]
  for _ in range(_FLAGS.rounds):
    state = process.next(state, data).state
    found.append(state.global_model_weights.trainable[0])
  return np.array(found)


def predicted(x: np.ndarray, a: np.ndarray, b: np.ndarray, steps: int) -> np.ndarray:
  """FedAvg's path from x by x <- B x + c, float64 [T + 1, n]."""
  one = np.eye(len(x))
  powers = np.array([np.linalg.matrix_power(one - _RATE * m.T @ m, steps) for m in a])
  goals = np.array([np.linalg.lstsq(m, v, rcond=None)[0] for m, v in zip(a, b)])
  offset = np.mean([(one - power) @ goal for power, goal in zip(powers, goals)], 0)
  found = [x]
  for _ in range(_FLAGS.rounds):
    found.append(powers.mean(0) @ found[-1] + offset)
  return np.array(found)


def draw(table: pd.DataFrame) -> None:
  """Writes the figure: measured paths as lines, predicted ones as dots."""
  made, ((axes,),) = style.figure(1, 1, 6, 3.6)
  for steps, own in table.groupby('E'):
    (line,) = axes.semilogy(own['round'], own['measured'], label=f'E = {steps}', linewidth=1.4)
    dots = own.iloc[::4]
    axes.semilogy(dots['round'], dots['predicted'], '.', color=line.get_color())
  axes.set_xlabel('round')
  axes.set_ylabel('distance to the least-squares solution')
  axes.legend(fontsize=8, frameon=False, title='dots: predicted')
  style.write(made, f'{_FLAGS.results}.png')


@command.entry('least_squares.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  command.check_output('results', _FLAGS.results)
  import tff_adaptive_tasks as tasks
  from tff_adaptive import engine

  engine.set_graph_context()
  task = tasks.load('least_squares', seed=_FLAGS.seed, dtype='float64')
  model, loaded = task.build_model(_FLAGS.seed), map(task.train.load, task.train.client_ids)
  a, b = map(np.array, zip(*((one['x'], one['y']) for one in loaded)))
  start, hessians = model.initial_weights[0][0], a.transpose(0, 2, 1) @ a
  moments = np.einsum('krc,kr->kc', a, b)
  solution = np.linalg.solve(hessians.mean(0), moments.mean(0))
  parts = []
  for steps in _STEPS:
    both = {'measured': path(model, a, b, 'fed_avg', _RATE, steps)}
    both['predicted'] = predicted(start, a, b, steps)
    away = {name: np.linalg.norm(x - solution, axis=1) for name, x in both.items()}
    parts.append(pd.DataFrame({'E': steps, 'round': range(_FLAGS.rounds + 1)} | away))
  table = pd.concat(parts)
  frame.write_rows(f'{_FLAGS.results}.csv', table)
  draw(table)
  ends = table[table['round'] == _FLAGS.rounds].set_index('E')[['measured', 'predicted']]

  def loss(name: str, client: float, server: float, tau: float) -> float:
    """f - f* after the rounds."""
    rates = {'server_learning_rate': server, 'tau': tau}
    away = path(model, a, b, name, client, _K, **rates)[-1] - solution
    return float(away @ hessians.mean(0) @ away / 2)

  largest = np.linalg.eigvalsh(hessians).max()  # L; G is the largest entry of a gradient at x_0.
  ratio = np.abs(hessians @ start - moments).max() / largest
  theory = 1 / (_K * largest * _FLAGS.rounds**0.5), (_K * len(a)) ** 0.5, ratio
  lines: dict[str, dict[str, str]] = {}
  for name in _SERVERS:
    tuned = min(itertools.product(*_GRID), key=lambda point: loss(name, *point))
    for kind, point in (('theory', theory), ('tuned', tuned)):
      shown = ', '.join(f'{value:.2g}' for value in point)
      lines.setdefault(f'{kind}: client rate, server rate, tau', {})[name] = shown
      lines.setdefault(f'{kind}: f - f*', {})[name] = f'{loss(name, *point):.1e}'
  tables = (
    frame.table(ends.map('{:.6g}'.format)),
    frame.table(pd.DataFrame(lines).rename_axis('server')),
  )
  made_by = frame.made_by('experiments.least_squares', f'{_FLAGS.rounds} rounds')
  frame.write(_FLAGS.results, [_INTRODUCTION, *tables, made_by])
  return command.DONE


_INTRODUCTION = frame.paragraph(f"""
  Distance to the least-squares solution after the last round, by E; then f - f* with K = {_K} local
  steps at the theory's rates (constants taken as 1) and at the best of a grid of 24.
""")

if __name__ == '__main__':
  sys.exit(main())
