"""Draws the pictures of the guide's page for readers who know machine learning.

.venv/bin/python docs/tools/pictures.py

The paths are computed on a problem with two weights and two clients, whose losses are
1/2 (theta - b_i)' A_i (theta - b_i); nothing is trained.
"""

import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parents[1] / 'guide' / 'pictures'
# The curvatures differ, so that the mean of the clients' minima is not the minimum of the mean.
CURVATURES = (np.diag([4.0, 0.4]), np.diag([0.4, 4.0]))
MINIMA = (np.array([-1.0, 1.2]), np.array([1.6, -1.0]))
START = np.array([-1.8, -1.6])
RATE = 0.1
_COLOURS = ('#0072b2', '#d55e00', '#009e73', '#cc79a7')  # Told apart by the colour-blind too.


def minimum() -> np.ndarray:
  """Returns the minimum of the mean of the clients' losses."""
  right = sum(a @ b for a, b in zip(CURVATURES, MINIMA))
  return np.linalg.solve(sum(CURVATURES), right)


def local_path(theta: np.ndarray, client: int, steps: int) -> np.ndarray:
  """Returns a client's models, from the received one to the one after its last local step."""
  path = [theta]
  for _ in range(steps):
    gradient = CURVATURES[client] @ (path[-1] - MINIMA[client])
    path.append(path[-1] - RATE * gradient)
  return np.array(path)


def server_path(rounds: int, steps: int, server_rate: float = 1.0) -> np.ndarray:
  """Returns the global models of FedAvg with both clients in each round."""
  path = [START]
  for _ in range(rounds):
    updates = [path[-1] - local_path(path[-1], client, steps)[-1] for client in (0, 1)]
    path.append(path[-1] - server_rate * np.mean(updates, axis=0))
  return np.array(path)


def draw_round(axes: Any) -> None:
  """A server, four clients of which two are drawn, and what travels."""
  axes.axis('off')
  axes.set(xlim=(0, 10), ylim=(0, 4.2))
  box = dict(boxstyle='round', facecolor='white', edgecolor='black')
  axes.text(5, 3.6, 'server: global model theta', ha='center', va='center', bbox=box)
  for client in range(4):
    x = 1.3 + 2.45 * client
    is_drawn = client in (0, 2)
    colour = 'black' if is_drawn else '0.6'
    text = f'client {client}\ndata stay here'
    edge = dict(box, edgecolor=colour)
    axes.text(x, 0.6, text, ha='center', va='center', color=colour, bbox=edge)
    if is_drawn:
      down = dict(arrowstyle='->', color=_COLOURS[0])
      up = dict(arrowstyle='->', color=_COLOURS[1])
      axes.annotate('', (x - 0.2, 1.15), (4.6, 3.2), arrowprops=down)
      axes.annotate('', (5.4, 3.2), (x + 0.2, 1.15), arrowprops=up)
  axes.text(0.2, 2.4, '1. theta goes to\nthe cohort', color=_COLOURS[0])
  axes.text(7.4, 2.4, '3. updates come back,\ntheir mean moves theta', color=_COLOURS[1])
  axes.text(5, 0.02, '2. each client of the cohort trains on its own data', ha='center')


def draw_participation(axes: Any) -> None:
  """Who takes part in which round: 3 of 12 clients in each."""
  random = np.random.default_rng(1)
  for round_number in range(1, 13):
    cohort = random.choice(12, 3, replace=False)
    axes.scatter([round_number] * 12, range(12), s=18, color='0.85')
    axes.scatter([round_number] * 3, cohort, s=40, color=_COLOURS[0])
  axes.set(xlabel='round', ylabel='client', xticks=range(1, 13), yticks=range(12))


def draw_local_epochs(axes: Any) -> None:
  """The distance to the minimum by round, for several numbers of local steps."""
  for colour, steps in zip(_COLOURS, (1, 5, 20)):
    distances = np.linalg.norm(server_path(40, steps) - minimum(), axis=1)
    if steps == 1:
      label = '1 local step a round'
    else:
      label = f'{steps} local steps a round'
    axes.semilogy(distances, color=colour, label=label)
  axes.set(xlabel='round (one exchange with the clients)', ylabel='distance to the minimum')
  axes.legend()


def draw_two_rates(axes: Any) -> None:
  """The distance to the minimum by round, for several server rates with one client rate."""
  for colour, rate in zip(_COLOURS, (0.3, 1.0, 3.0)):
    distances = np.linalg.norm(server_path(30, 1, rate) - minimum(), axis=1)
    axes.semilogy(distances, color=colour, label=f'server rate {rate:g}')
  axes.set(xlabel='round', ylabel='distance to the minimum')
  axes.set_title(f'client rate {RATE:g}, 1 local step', fontsize=10)
  axes.legend()


def draw_drift(axes: Any) -> None:
  """The clients' local paths of one round, and where FedAvg ends."""
  x, y = np.meshgrid(np.linspace(-2.2, 2.2, 80), np.linspace(-2, 2, 80))
  loss = np.zeros_like(x)
  for a, b in zip(CURVATURES, MINIMA):
    loss += 0.5 * (a[0, 0] * (x - b[0]) ** 2 + a[1, 1] * (y - b[1]) ** 2)
  axes.contour(x, y, loss, 12, colors='0.85', linewidths=0.8)
  for client in (0, 1):
    path = local_path(START, client, 20)
    axes.plot(*path.T, '.-', color=_COLOURS[client], label=f'client {client} drifts')
    axes.plot(*MINIMA[client], 's', color=_COLOURS[client], label=f'minimum of client {client}')
  path = server_path(40, 20)
  axes.plot(*path.T, 'k.-', linewidth=0.8, label='global model, by round')
  axes.plot(*minimum(), '*', color=_COLOURS[2], markersize=14, label='minimum for all')
  axes.set(xlabel='first weight', ylabel='second weight')
  axes.legend(fontsize=8, loc='upper right')


def draw_alpha(axes: Any) -> None:
  """The labels of eight clients for three concentrations of the Dirichlet distribution."""
  random = np.random.default_rng(2)
  alphas = (0.03, 0.3, 100.0)
  place = 0
  ticks = []
  for alpha in alphas:
    shares = random.dirichlet([alpha] * 4, size=8)
    for client in range(8):
      left = 0.0
      for label in range(4):
        share = shares[client, label]
        axes.barh(place, share, left=left, color=_COLOURS[label], edgecolor='white')
        left += share
      place += 1
    ticks.append((place - 4.5, f'alpha = {alpha:g}'))
    place += 1
  axes.set_yticks([tick for tick, _ in ticks], [text for _, text in ticks])
  axes.invert_yaxis()
  axes.set(xlabel='shares of the four labels in the data of each client (a bar each)')


PICTURES: Mapping[str, Callable[[Any], None]] = {
  'round': draw_round,
  'participation': draw_participation,
  'local_epochs': draw_local_epochs,
  'two_rates': draw_two_rates,
  'drift': draw_drift,
  'alpha': draw_alpha,
}


def draw(folder: pathlib.Path) -> None:
  """Writes all pictures as SVG into a folder, the same bytes with the same Matplotlib."""
  import matplotlib
  from matplotlib.backends import backend_svg
  from matplotlib.figure import Figure

  folder.mkdir(exist_ok=True)
  # Text stays text, which is small, and ids do not depend on the run.
  with matplotlib.rc_context({'svg.fonttype': 'none', 'svg.hashsalt': 'tff-adaptive'}):
    for name, picture in PICTURES.items():
      figure = Figure(figsize=(6, 3.6), layout='tight')
      backend_svg.FigureCanvasSVG(figure)
      picture(figure.add_subplot())
      figure.savefig(folder / f'{name}.svg', metadata={'Date': None})


if __name__ == '__main__':
  draw(FOLDER)
