"""The test vectors' problem for a program in another library's environment: NumPy alone."""

import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

FILE = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding='utf-8'))
CLIENTS = FILE['problem']['clients']
START = np.array(FILE['problem']['initial'])
CASES = {case['name']: case['rounds'] for case in FILE['cases']}
RATE = 0.1
EPOCHS = 2
BETAS = (0.9, 0.99)
TAU = 0.01
MIME_RATE = RATE * (1 - 0.8)  # For libraries whose momentum is m <- beta m + g.

Models = dict[str, list[list[float]]]


def sent(one: Any) -> list[Any]:
  """The clients of a round whose update counts."""
  return [client for client in one['clients'] if client['update'] is not None]


def members(name: str) -> list[list[int]]:
  """The numbers of these clients, by round."""
  return [[client['client'] for client in sent(one)] for one in CASES[name]]


def arrays(client: int) -> tuple[np.ndarray, np.ndarray]:
  """A client's examples."""
  return np.array(CLIENTS[client]['x']), np.array(CLIENTS[client]['y'])


def batches(client: int) -> list[tuple[np.ndarray, np.ndarray]]:
  """The batches of one pass of a client."""
  x, y = arrays(client)
  return [(x[k : k + 4], y[k : k + 4]) for k in range(0, len(y), 4)]


def server(
  name: str, step: Callable[[Any, np.ndarray, np.ndarray], Any], state: Any = None
) -> list[list[float]]:
  """The models by a server optimizer, (state, x, D) -> (state, x)."""
  x = START
  seen = []
  for one in CASES[name]:
    d = sum(c['weight'] * np.array(c['update']) for c in sent(one))
    state, new = step(state, x, d)
    x = np.array(new)
    seen.append(x.tolist())
  return seen
