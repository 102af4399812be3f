"""Which library computes which algorithm: other libraries against the test vectors.

usage: python -m research.peer_vectors [--write=results/peer_vectors.md]

Each library runs in the environment that scripts/env/setup_peers.sh makes; one that is not there is
left out. Where a library departs from a case, it is compared with another form of the formula too.
"""

import argparse
import functools
import importlib.metadata
import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from research import vectors
from research.benchmarks import peer_environments
from tests.helpers import oracle

ROOT = vectors.FOLDER.parent
LIBRARIES = {
  'tff': ('TFF', 'tensorflow-federated'),
  'flower': ('Flower', 'flwr'),
  'pfl': ('pfl-research', 'pfl'),
  'fedjax': ('FedJAX', 'fedjax'),
}
SAME = 2e-5  # Relative to the largest entry: some compute in float32.
TAU = 0.01


class TffFedProx(oracle.FedProx):
  """The proximal term is of the other sign."""

  def correction(self, i: int, theta_i: Any) -> Any:
    return -super().correction(i, theta_i)


class PflScaffold(oracle.Scaffold):
  """c_i takes (y_i - x) / (K_i eta_l)."""

  def new_h_i(self, i: int, g_i: Any, steps: int, rate: float) -> Any:
    return self.h_i[i] - self.h - g_i / (steps * rate)


class Corrected(oracle.Adaptive):
  """m and v are both corrected for the bias: with the factor of the rate, tau is as given."""

  def __call__(self, theta: Any, delta: Any) -> Any:
    self.tau = TAU * np.sqrt(1 - self.beta2 ** (self.t + 1))
    return super().__call__(theta, delta)


def _adam(kind: Any, name: str, v: float, correct: bool = True, m: float = 0.0, t: int = 0) -> Any:
  """An adaptive optimizer whose m, v and t begin with these values."""
  made = kind(name, 0.1, 0.9 if name != 'adagrad' else 0.0, 0.99, TAU, v, correct)
  made.m, made.t = m, t
  return made


def _server(make: Callable[[], Any], case: Any, problem: Any) -> list[Any]:
  """The models by a server optimizer, given the vectors' mean updates."""
  step, x, seen = make(), np.array(problem['initial']), []
  for one in case['rounds']:
    sent = [c['weight'] * np.array(c['update']) for c in one['clients'] if c['update']]
    seen.append(x := step(x, -sum(sent)))
  return seen


def _whole(kind: Any, case: Any, problem: Any) -> list[Any]:
  """The models by another class of the oracle's algorithm."""
  with np.errstate(all='ignore'):  # A client overflows.
    return [one['server']['x'] for one in vectors.rounds(case, problem, 4, 1.0, kind)]


def _optimizer(*values: Any, **named: Any) -> Callable[..., list[Any]]:
  return functools.partial(_server, functools.partial(_adam, *values, **named))


INSIDE = (
  'sqrt(v + eps) for sqrt(v) + tau',
  functools.partial(
    _server, functools.partial(oracle.Adaptive, 'adagrad', 0.1, 0.0, None, 0.0, 2 * TAU**2)
  ),
)
BOTH = ('v = 0 at first; m and v corrected for the bias', _optimizer(Corrected, 'adam', 0.0))
ZERO = 'v = 0 at first'
# (library, case) -> the form in words, and as a function of the case and its problem.
FORMS: dict[tuple[str, str], tuple[str, Callable[[Any, Any], list[Any]]]] = {
  ('tff', 'fed_prox'): (
    'd = g(y) + mu (x - y), for g(y) + mu (y - x)',
    functools.partial(_whole, TffFedProx),
  ),
  ('tff', 'fed_adagrad'): INSIDE,
  ('tff', 'fed_adam'): (
    f'{ZERO}; the rate corrected for the bias',
    _optimizer(oracle.Adaptive, 'adam', 0.0),
  ),
  ('tff', 'fed_yogi'): (
    'the rate corrected for the bias',
    _optimizer(oracle.Adaptive, 'yogi', TAU**2),
  ),
  ('flower', 'fed_adagrad'): (ZERO, _optimizer(oracle.Adaptive, 'adagrad', 0.0, False)),
  ('flower', 'fed_yogi'): (ZERO, _optimizer(oracle.Adaptive, 'yogi', 0.0, False)),
  ('flower', 'fed_adam'): (
    f'{ZERO}; the rate corrected for the bias with exponent t + 1',
    _optimizer(oracle.Adaptive, 'adam', 0.0, t=1),
  ),
  ('pfl', 'fed_adam'): BOTH,
  ('pfl', 'scaffold'): (
    '(y_i - x) / (K_i eta_l) in c_i, for (x - y_i)',
    functools.partial(_whole, PflScaffold),
  ),
  ('fedjax', 'fed_adagrad'): INSIDE,
  ('fedjax', 'fed_adam'): BOTH,
  ('fedjax', 'fed_yogi'): (
    'm = v = 1e-6 at first; both corrected for the bias',
    _optimizer(Corrected, 'yogi', 1e-6, m=-1e-6),
  ),
}


def cell(library: str, case: Any, problem: Any, found: list[list[float]]) -> str:
  """A cell of the table: the largest deviation, or where and how the library departs."""

  def deviations(wanted: list[Any]) -> Any:
    return np.abs(np.subtract(found, wanted)).max(1) / np.abs(wanted).max(1)

  error = deviations([one['server']['x'] for one in case['rounds']])
  if error.max() <= SAME:
    return f'{error.max():.0e}'
  first = int(np.argmax(~(error <= SAME)))
  said = f'round {first + 1} ({error[first]:.0e})'
  if (library, case['name']) in FORMS:
    text, form = FORMS[library, case['name']]
    said += f': {text} ({deviations(form(case, problem)).max():.0e})'
  return said


def main() -> int:
  """Writes the table into the file, below the text that stands there."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--write', type=pathlib.Path, default=ROOT / 'results' / 'peer_vectors.md')
  to = parser.parse_args().write
  path = vectors.FOLDER / 'least_squares.json'
  content = json.loads(path.read_text(encoding='utf-8'))
  columns = {'algorithm': {case['name']: f'`{case["name"]}`' for case in content['cases']}}
  for library, (title, package) in LIBRARIES.items():
    peer = peer_environments.Peer(title, library, package, 'vector_rounds.py')
    python = peer.python() if library != 'tff' else pathlib.Path(sys.executable)
    if not python.exists():
      continue
    command = [str(python), str(ROOT / 'research' / 'peers' / peer.script), library, str(path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    models = json.loads(done.stdout.splitlines()[-1])
    version = peer.version() if library != 'tff' else importlib.metadata.version(package)
    columns[f'{title} {version}'] = {
      case['name']: cell(library, case, content['problem'], models[case['name']])
      for case in content['cases']
      if case['name'] in models
    }
  rows = [[*columns], ['---'] * len(columns)]
  rows += [[column.get(name, '') for column in columns.values()] for name in columns['algorithm']]
  lines = ['| ' + ' | '.join(row) + ' |' for row in rows if any(row[1:])]
  table = '\n'.join(lines)
  head = to.read_text(encoding='utf-8').partition('\n|')[0] if to.exists() else ''
  to.write_text(f'{head}\n{table}\n', encoding='utf-8')
  return 0


if __name__ == '__main__':
  sys.exit(main())
