"""Client drift on federated least squares: where algorithms end, and the path of FedAvg.

usage: python -m research.experiments.least_squares [--flag=value ...]

Client k has the loss 1/2 ||A_k x - b_k||^2 and takes full-gradient steps of the rate s = 0.125, all
clients in every round, in float64. Writes into the folder --results:

  least_squares.png, .csv: the distance to the least-squares solution by round, of algorithms that
    take 20 local steps; dashed lines are the fixed points in closed form (oracle/fixed_points.py).
  least_squares_paths.png, .csv, .md: FedAvg's distance by round and number E of local steps,
    measured and by the recursion x^{t+1} = B x^t + c, with B the mean of the (I - s A_k'A_k)^E; and
    f - f* of the adaptive servers with the rates of Corollaries 1 and 2 of "Adaptive Federated
    Optimization" (client rate 1 / (K L sqrt(T)), server rate sqrt(K m), tau = G / L) beside the
    best of a grid.

  python -m research.experiments.least_squares --results=results/least_squares
"""

import itertools
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from oracle import fixed_points
from scripts.cli import command
from tff_adaptive.reports import style

from . import frame

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_integer('rounds', 100, 'Rounds, T.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer('seed', 2, 'Of problem and x_0.', lower_bound=0, flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'results', 'results/least_squares', 'The folder to write into.', flag_values=_FLAGS
)
RATE = 0.125
STEPS = 20  # Of the algorithms in the first figure.
MU = 0.5  # Of FedDyn and AdaBest.
PROX_MU = 2.0
PATH_STEPS = (1, 2, 5, 20, 50)
SERVER_STEPS = 5
SERVERS = ('fed_adagrad', 'fed_adam', 'fed_yogi')
# Client rates, server rates and tau of the grid.
GRID = ((0.003, 0.01, 0.03), (0.1, 0.3, 1.0, 3.0), (1e-3, 0.1))


class Problem(NamedTuple):
  """The clients' systems, the model, and the least-squares solution."""

  a: list[np.ndarray]
  b: list[np.ndarray]
  model: Any
  solution: np.ndarray

  @property
  def start(self) -> np.ndarray:
    """Returns x_0."""
    return np.asarray(self.model.initial_weights[0][0])


class Curve(NamedTuple):
  """An algorithm of the first figure.

  Attributes:
    label: Its name there.
    algorithm: Its name in the registry.
    options: Those of its builder.
    end: Its fixed point in closed form.
    steps: Local steps a round.
  """

  label: str
  algorithm: str
  options: Mapping[str, Any]
  end: np.ndarray
  steps: int = STEPS


def load() -> Problem:
  """Returns the problem of the seed, in float64."""
  import tff_adaptive_tasks as tasks

  task = tasks.load('least_squares', seed=_FLAGS.seed, dtype='float64')
  loaded = [task.train.load(client) for client in task.train.client_ids]
  a = [np.asarray(data['x']) for data in loaded]
  b = [np.asarray(data['y']) for data in loaded]
  return Problem(a, b, task.build_model(_FLAGS.seed), fixed_points.minimiser(a, b))


def curves(problem: Problem) -> tuple[list[Curve], list[Curve]]:
  """Returns the curves of the two panels: other corrections, other server optimizers."""
  from tff_adaptive import optimizers

  a, b, _, solution = problem
  counts = [STEPS] * len(a)
  drifted = fixed_points.gradient_descent(a, b, counts, RATE)
  pulled = fixed_points.gradient_descent(a, b, counts, RATE, mu=PROX_MU)
  clients = {'num_clients': len(a)}
  fed_avg = Curve(f'FedAvg, E = {STEPS}', 'fed_avg', {}, drifted)
  scaffold = Curve('SCAFFOLD', 'scaffold', clients, solution)
  corrections = [
    fed_avg,
    Curve('FedProx', 'fed_prox', {'mu': PROX_MU}, pulled),
    Curve('FedAvg, E = 1', 'fed_avg', {}, solution, steps=1),
    Curve('FedDyn', 'fed_dyn', {'mu': MU, **clients}, solution),
    scaffold,
    Curve('SCAFFOLD/m', 'scaffold_m', clients, solution),
  ]
  for beta in (0.95, 0.99):
    end = fixed_points.ada_best(a, b, MU, beta, problem.start)
    options = {'mu': MU, 'beta': beta}
    corrections.append(Curve(f'AdaBest, beta = {beta:g}', 'ada_best', options, end))
  adaptive = {'server_learning_rate': 0.5, 'tau': 0.5, 'beta1': 0.5}
  adagrad = {'server_learning_rate': 1.0, 'tau': 0.5}
  yogi = optimizers.build_yogi(1.0, tau=0.5, beta1=0.5)
  servers = [
    fed_avg,
    Curve('FedAvgM', 'fed_avgm', {'momentum': 0.5}, drifted),
    Curve('FedAdagrad', 'fed_adagrad', adagrad, drifted),
    Curve('FedAdam', 'fed_adam', adaptive, drifted),
    Curve('FedYogi', 'fed_yogi', adaptive, drifted),
    Curve('SCAFFOLD with Yogi', 'scaffold', {'server_optimizer': yogi, **clients}, solution),
    scaffold,
  ]
  return corrections, servers


def path(
  problem: Problem, algorithm: str, steps: int, rate: float = RATE, **options: Any
) -> np.ndarray:
  """Returns the global model before the first round and after each, float64 [T + 1, n]."""
  from tff_adaptive import algorithms, client, registry

  build: Any = getattr(algorithms, f'build_{algorithm}')
  process = build(
    problem.model,
    client_learning_rate=rate,
    client_weighting='uniform',
    training=client.ClientTraining(batching=client.Batching(None, epochs=steps)),
    **options,
  )
  cohort = [client.client_arrays(x, y, k) for k, (x, y) in enumerate(zip(problem.a, problem.b))]
  state = process.initialize()
  is_stateful = registry.algorithm(algorithm).is_stateful
  client_states = [process.initial_client_state] * len(cohort) if is_stateful else None
  models = [state.global_model_weights.trainable[0]]
  for _ in range(_FLAGS.rounds):
    if client_states is None:
      state = process.next(state, cohort).state
    else:
      state, client_states, _ = process.next(state, client_states, cohort)
    models.append(state.global_model_weights.trainable[0])
  return np.array(models)


def predicted(problem: Problem, steps: int) -> np.ndarray:
  """Returns FedAvg's path by x <- B x + c, float64 [T + 1, n]."""
  identity = np.eye(len(problem.start))
  powers = []
  offsets = []
  for m, v in zip(problem.a, problem.b):
    power = np.linalg.matrix_power(identity - RATE * m.T @ m, steps)
    powers.append(power)
    offsets.append((identity - power) @ np.linalg.lstsq(m, v, rcond=None)[0])
  models = [problem.start]
  for _ in range(_FLAGS.rounds):
    models.append(np.mean(powers, 0) @ models[-1] + np.mean(offsets, 0))
  return np.array(models)


def distances(problem: Problem, models: np.ndarray) -> np.ndarray:
  """Returns the distances of models [T + 1, n] to the least-squares solution."""
  return np.asarray(np.linalg.norm(models - problem.solution, axis=1))


def ends(problem: Problem) -> None:
  """Writes the first figure and its numbers."""
  panels = curves(problem)
  table = pd.DataFrame(index=pd.RangeIndex(_FLAGS.rounds + 1, name='round'))
  # FedAvg and SCAFFOLD are in both panels.
  by_label = {curve.label: curve for curve in itertools.chain(*panels)}
  for label, curve in by_label.items():
    models = path(problem, curve.algorithm, curve.steps, **curve.options)
    table[f'{label}: predicted'] = np.linalg.norm(curve.end - problem.solution)
    table[label] = distances(problem, models)
    command.say(f'{label}: distance {table[label].iloc[-1]:.3e}')
  frame.write_rows(_file('least_squares.csv'), table.reset_index())
  figure, (axes,) = style.figure(1, 2, 5.5, 4.4)
  titles = ('Corrections decide where it ends', 'Server optimizers decide how it gets there')
  for one_axes, title, panel in zip(axes, titles, panels):
    for curve in panel:
      (line,) = one_axes.semilogy(table[curve.label], label=curve.label, linewidth=1.6)
      level = table[f'{curve.label}: predicted'].iloc[0]
      one_axes.axhline(level, color=line.get_color(), linestyle='--', linewidth=0.8)
    one_axes.set_title(title, fontsize=10)
    one_axes.set_xlabel('round')
    one_axes.set_ylim(1e-9, 20)
    one_axes.legend(fontsize=7, frameon=False, loc='lower left')
  axes[0].set_ylabel('distance to the least-squares solution')
  style.write(figure, _file('least_squares.png'))


def paths(problem: Problem) -> list[str]:
  """Writes the second figure and its numbers; returns the table of the last round."""
  parts = []
  for steps in PATH_STEPS:
    measured = distances(problem, path(problem, 'fed_avg', steps))
    columns = {'measured': measured, 'predicted': distances(problem, predicted(problem, steps))}
    parts.append(pd.DataFrame({'E': steps, 'round': range(_FLAGS.rounds + 1), **columns}))
  table = pd.concat(parts)
  frame.write_rows(_file('least_squares_paths.csv'), table)
  figure, ((axes,),) = style.figure(1, 1, 6, 3.6)
  for steps, rows in table.groupby('E'):
    (line,) = axes.semilogy(rows['round'], rows['measured'], label=f'E = {steps}', linewidth=1.4)
    dots = rows.iloc[::4]
    axes.semilogy(dots['round'], dots['predicted'], '.', color=line.get_color())
  axes.set_xlabel('round')
  axes.set_ylabel('distance to the least-squares solution')
  axes.legend(fontsize=8, frameon=False, title='dots: predicted')
  style.write(figure, _file('least_squares_paths.png'))
  last = table[table['round'] == _FLAGS.rounds].set_index('E')[['measured', 'predicted']]
  return [frame.table(last.map('{:.6g}'.format))]


def rates(problem: Problem) -> list[str]:
  """Returns the table of f - f* with the rates of the theory and with the best of the grid."""
  hessians = np.array([m.T @ m for m in problem.a])
  gradients = [m.T @ (m @ problem.start - v) for m, v in zip(problem.a, problem.b)]
  smoothness = np.linalg.eigvalsh(hessians).max()  # L; G is the largest entry of a gradient.
  theory = (
    1 / (SERVER_STEPS * smoothness * _FLAGS.rounds**0.5),
    (SERVER_STEPS * len(problem.a)) ** 0.5,
    np.abs(gradients).max() / smoothness,
  )

  def gap(server: str, client_rate: float, server_rate: float, tau: float) -> float:
    options = {'server_learning_rate': server_rate, 'tau': tau}
    away = path(problem, server, SERVER_STEPS, client_rate, **options)[-1] - problem.solution
    return float(away @ hessians.mean(0) @ away / 2)

  lines: dict[str, dict[str, str]] = {}
  for server in SERVERS:
    gaps = {point: gap(server, *point) for point in itertools.product(*GRID)}
    tuned = min(gaps, key=lambda point: gaps[point])
    for kind, point, value in (
      ('theory', theory, gap(server, *theory)),
      ('tuned', tuned, gaps[tuned]),
    ):
      text = ', '.join(f'{number:.2g}' for number in point)
      lines.setdefault(f'{kind}: client rate, server rate, tau', {})[server] = text
      lines.setdefault(f'{kind}: f - f*', {})[server] = f'{value:.1e}'
  return [frame.table(pd.DataFrame(lines).rename_axis('server'))]


def _file(name: str) -> str:
  return os.path.join(_FLAGS.results, name)


@command.entry('least_squares.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  command.check_output('results', _file('least_squares'))
  from tff_adaptive import engine

  engine.set_graph_context()
  problem = load()
  ends(problem)
  tables = [*paths(problem), *rates(problem)]
  made_by = frame.made_by('experiments.least_squares', f'{_FLAGS.rounds} rounds')
  frame.write(_file('least_squares_paths'), [_INTRODUCTION, *tables, made_by])
  return command.DONE


_INTRODUCTION = frame.paragraph(f"""
  Distance to the least-squares solution after the last round, by E; then f - f* with
  {SERVER_STEPS} local steps at the theory's rates (constants taken as 1) and at the best of a grid.
""")

if __name__ == '__main__':
  sys.exit(main())
