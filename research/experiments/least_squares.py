"""Draws where each algorithm ends up on federated least squares, and where it should.

usage: python -m research.experiments.least_squares [--flag=value ...]

Runs the algorithms on the task least_squares in float64, all clients in every round, and writes
OUTPUT.png and OUTPUT.csv: the distance to the least-squares solution x_LS by round. Dashed lines
are the closed forms of tasks/least_squares_solutions.py. Takes a minute or two.

  python -m research.experiments.least_squares --output=results/least_squares
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import style

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_integer('rounds', 150, 'Rounds.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer('seed', 2, 'Of problem and x_0.', lower_bound=0, flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'output', 'results/least_squares', 'Where to write: OUTPUT.png, OUTPUT.csv.', flag_values=_FLAGS
)

_STEPS, _RATE = 20, 0.125  # E and s: a client's full-gradient steps in a round, and their rate.
_MU, _PROX_MU = 0.5, 2.0  # mu of FedDyn and AdaBest, and of FedProx.

_BLUE, _RED, _GREEN, _PURPLE, _BLACK, _SKY, _ORANGE = style.COLORS
_GREY = '#888888'
_TITLES = (
  'The correction decides where it ends up',
  'The server optimizer decides how it gets there',
)


class Curve(NamedTuple):
  """One algorithm of the figure."""

  label: str  # Its name in the figure.
  color: str  # Of its curve.
  algorithm: str  # Its name for `algorithms.build`.
  options: Mapping[str, Any]  # Its options there.
  target: np.ndarray  # Its fixed point in closed form.
  point: str = ''  # The fixed point's name in the figure; '' to leave it out.
  steps: int = _STEPS  # Local steps a round.
  is_dotted: bool = False  # Whether it is drawn over another that it equals.


def curves(a: Any, b: Any, x_0: np.ndarray) -> tuple[list[Curve], list[Curve]]:
  """The curves of the two panels: other corrections, other server optimizers."""
  from tff_adaptive import optimizers
  from tff_adaptive_tasks import least_squares_solutions as solutions

  n = {'num_clients': len(a)}
  x_ls = solutions.least_squares(a, b)
  x_fgd = solutions.gradient_descent(a, b, _STEPS, _RATE)
  x_prox = solutions.gradient_descent(a, b, _STEPS, _RATE, _PROX_MU)
  fed_avg = Curve(f'FedAvg, E = {_STEPS}', _BLACK, 'fed_avg', {}, x_fgd, 'equation (6)')
  scaffold = Curve('SCAFFOLD', _BLUE, 'scaffold', n, x_ls)

  def ada_best(beta: float, color: str) -> Curve:
    x, options = solutions.ada_best(a, b, _MU, beta, x_0), {'mu': _MU, 'beta': beta}
    label = f'AdaBest, beta = {beta:g}'
    return Curve(label, color, 'ada_best', options, x, f'ridge, beta = {beta:g}')

  corrections = [
    fed_avg,
    Curve('FedProx', _ORANGE, 'fed_prox', {'mu': _PROX_MU}, x_prox, '(6) with mu'),
    ada_best(0.95, _PURPLE),
    ada_best(0.99, _RED),
    Curve('FedAvg, E = 1', _GREY, 'fed_avg', {}, x_ls, steps=1),
    Curve('FedDyn', _GREEN, 'fed_dyn', {'mu': _MU, **n}, x_ls),
    scaffold,
    Curve('SCAFFOLD/m', _SKY, 'scaffold_m', n, x_ls, is_dotted=True),
  ]
  adaptive = {'server_learning_rate': 0.5, 'tau': 0.5, 'beta1': 0.5}
  adagrad = {'server_learning_rate': 1.0, 'tau': 0.5}
  yogi = optimizers.build_yogi(1.0, tau=0.5, beta1=0.5)
  servers = [
    fed_avg,
    Curve('FedAvgM', _GREY, 'fed_avgm', {'momentum': 0.5}, x_fgd),
    Curve('FedAdagrad', _ORANGE, 'fed_adagrad', adagrad, x_fgd),
    Curve('FedAdam', _PURPLE, 'fed_adam', adaptive, x_fgd),
    Curve('FedYogi', _RED, 'fed_yogi', adaptive, x_fgd),
    Curve('SCAFFOLD with Yogi', _GREEN, 'scaffold', {'server_optimizer': yogi, **n}, x_ls),
    scaffold,
  ]
  return corrections, servers


def distances(curve: Curve, data: Any, model: Any, x_ls: np.ndarray) -> np.ndarray:
  """||x - x_LS|| before the first round and after each, float64 [rounds + 1]."""
  from tff_adaptive import algorithms, registry
  from tff_adaptive.client import Batching, ClientTraining

  process: Any = algorithms.build(
    curve.algorithm,
    model,
    client_learning_rate=_RATE,
    client_weighting='uniform',
    training=ClientTraining(batching=Batching(None, epochs=curve.steps)),
    **curve.options,
  )
  state = process.initialize()
  is_stateful = registry.algorithm(curve.algorithm).is_stateful
  client_states = [process.initial_client_state] * len(data) if is_stateful else None
  found = []
  for _ in range(_FLAGS.rounds + 1):
    (x,) = state.global_model_weights.trainable
    found.append(np.linalg.norm(np.asarray(x) - x_ls))
    if client_states is None:
      state = process.next(state, data).state
    else:
      state, client_states, _ = process.next(state, client_states, data)
  return np.array(found)


def draw(path: str, panels: Sequence[Sequence[Curve]], table: pd.DataFrame) -> None:
  """Writes the figure: curves, and right of where they end the predicted levels."""
  figure, (all_axes,) = style.figure(1, 2, 5.75, 4.8)
  end = 1.55 * _FLAGS.rounds
  for axes, title, panel in zip(all_axes, _TITLES, panels):
    for curve in panel:
      look = {'linestyle': (0, (1, 2)), 'linewidth': 3} if curve.is_dotted else {'linewidth': 1.8}
      axes.semilogy(table[curve.label], color=curve.color, label=_greek(curve.label), **look)
      if curve.point:
        level = table[f'{curve.label}: predicted'][0]
        axes.axhline(level, color=curve.color, linestyle='--', linewidth=1, zorder=1)
        place = {'ha': 'right', 'va': 'center', 'bbox': {'color': 'white', 'pad': 0.8}}
        axes.text(end, level, _greek(curve.point), color=curve.color, fontsize=9, **place)
    axes.set_title(title, loc='left', fontsize=12)
    axes.set(xlabel='round', xlim=(0, end), ylim=(1e-9, 20))
    axes.set_xticks(np.linspace(0, _FLAGS.rounds, 6))
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.legend(fontsize=9, frameon=False, loc='lower right', borderaxespad=0)
  all_axes[0].set_ylabel('distance to the least-squares solution')
  style.write(figure, path)


def _greek(text: str) -> str:
  return text.replace('beta', '\u03b2').replace('mu', '\u03bc')


@command.entry('least_squares.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  command.check_output('output', _FLAGS.output)
  import tff_adaptive_tasks as tasks
  from tff_adaptive import engine
  from tff_adaptive.client import whole_client
  from tff_adaptive_tasks import least_squares_solutions

  engine.set_graph_context()
  task = tasks.load('least_squares', seed=_FLAGS.seed, dtype='float64')
  model = task.build_model(_FLAGS.seed)
  a, b = least_squares_solutions.systems(task.train)
  x_ls = least_squares_solutions.least_squares(a, b)
  panels = curves(a, b, model.initial_weights[0][0])
  data = [whole_client.client_arrays(x, y, i) for i, (x, y) in enumerate(zip(a, b))]
  table = pd.DataFrame(index=pd.RangeIndex(_FLAGS.rounds + 1, name='round'))
  for curve in {curve.label: curve for panel in panels for curve in panel}.values():
    # The closed form's distance, then that of each round.
    table[f'{curve.label}: predicted'] = level = np.linalg.norm(curve.target - x_ls)
    table[curve.label] = found = distances(curve, data, model, x_ls)
    command.show(f'{curve.label:22} distance {found[-1]:.3e}, predicted {level:.3e}\n')
  atomic_files.write_text(f'{_FLAGS.output}.csv', table.to_csv(float_format='%.6g'))
  draw(f'{_FLAGS.output}.png', panels, table)
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
