"""Which library computes which algorithm: other libraries against the test vectors.

usage: python -m research.peer_vectors

Each library runs in the environment that scripts/env/setup_peers.sh makes; one that is not there is
left out. Where a library departs from a case, it is compared with another form of the formula too.
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

import oracle
from research import vectors
from research.experiments import frame

ROOT = pathlib.Path(__file__).resolve().parents[1]
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
  beta1 = 0.0 if name == 'adagrad' else 0.9
  optimizer = kind(name, 0.1, beta1, 0.99, TAU, v, correct)
  optimizer.m = m
  optimizer.t = t
  return optimizer


def models_of(form: Callable[..., Any], case: Any, problem: Any) -> list[Any]:
  """The models by a class of the oracle, or by a server optimizer with the vectors' updates."""
  if isinstance(form, type):
    with np.errstate(all='ignore'):  # A client overflows.
      return [one['server']['x'] for one in vectors.rounds(case, problem, 4, 1.0, form)]
  step = form()
  x = np.array(problem['initial'])
  seen = []
  for one in case['rounds']:
    sent = [c['weight'] * np.array(c['update']) for c in one['clients'] if c['update']]
    x = step(x, -sum(sent))
    seen.append(x)
  return seen


ADAPTIVE = oracle.Adaptive
ZERO = 'v = 0 at first'
CORRECTED = 'the rate corrected for the bias'
INSIDE = (
  'sqrt(v + eps) for sqrt(v) + tau',
  lambda: ADAPTIVE('adagrad', 0.1, 0.0, None, 0.0, 2 * TAU**2),
)
BOTH = (f'{ZERO}; m and v corrected for the bias', lambda: _adam(Corrected, 'adam', 0.0))
# (library, case) -> the form in words, and its class or what makes its server optimizer.
FORMS: dict[tuple[str, str], tuple[str, Callable[..., Any]]] = {
  ('tff', 'fed_prox'): ('d = g(y) + mu (x - y), for g(y) + mu (y - x)', TffFedProx),
  ('tff', 'fed_adagrad'): INSIDE,
  ('tff', 'fed_adam'): (f'{ZERO}; {CORRECTED}', lambda: _adam(ADAPTIVE, 'adam', 0.0)),
  ('tff', 'fed_yogi'): (CORRECTED, lambda: _adam(ADAPTIVE, 'yogi', TAU**2)),
  ('flower', 'fed_adagrad'): (ZERO, lambda: _adam(ADAPTIVE, 'adagrad', 0.0, False)),
  ('flower', 'fed_yogi'): (ZERO, lambda: _adam(ADAPTIVE, 'yogi', 0.0, False)),
  ('flower', 'fed_adam'): (
    f'{ZERO}; {CORRECTED} with exponent t + 1',
    lambda: _adam(ADAPTIVE, 'adam', 0.0, t=1),
  ),
  ('pfl', 'fed_adam'): BOTH,
  ('pfl', 'scaffold'): ('(y_i - x) / (K_i eta_l) in c_i, for (x - y_i)', PflScaffold),
  ('fedjax', 'fed_adagrad'): INSIDE,
  ('fedjax', 'fed_adam'): BOTH,
  ('fedjax', 'fed_yogi'): (
    'm = v = 1e-6 at first; both corrected for the bias',
    lambda: _adam(Corrected, 'yogi', 1e-6, m=-1e-6),
  ),
}


def cell(library: str, case: Any, problem: Any, models: list[list[float]]) -> str:
  """A cell of the table: the largest deviation, or where and how the library departs."""

  def deviations(wanted: list[Any]) -> Any:
    return np.abs(np.subtract(models, wanted)).max(1) / np.abs(wanted).max(1)

  error = deviations([one['server']['x'] for one in case['rounds']])
  if error.max() <= SAME:
    return f'{error.max():.0e}'
  first = int(np.argmax(~(error <= SAME)))
  said = f'round {first + 1} ({error[first]:.0e})'
  if (library, case['name']) in FORMS:
    text, form = FORMS[library, case['name']]
    said += f': {text} ({deviations(models_of(form, case, problem)).max():.0e})'
  return said


def main() -> int:
  """Writes the table into results/peer_vectors/, below the text that stands there."""
  to = ROOT / 'results' / 'peer_vectors' / 'peer_vectors.md'
  path = vectors.FOLDER / 'least_squares.json'
  content = json.loads(path.read_text(encoding='utf-8'))
  columns = {'algorithm': {case['name']: f'`{case["name"]}`' for case in content['cases']}}
  for library, (title, package) in LIBRARIES.items():
    python = ROOT / '.peers' / library / 'bin' / 'python'
    if library == 'tff':
      python = pathlib.Path(sys.executable)
    if not python.exists():
      continue
    script = str(ROOT / 'research' / 'peers' / 'vector_rounds.py')
    said = subprocess.check_output([python, script, library, path], text=True)
    models = json.loads(said.splitlines()[-1])
    program = f'import importlib.metadata as m; print(m.version({package!r}))'
    version = subprocess.check_output([python, '-c', program], text=True).strip()
    columns[f'{title} {version}'] = {
      case['name']: cell(library, case, content['problem'], models[case['name']])
      for case in content['cases']
      if case['name'] in models
    }
  table = frame.table(pd.DataFrame(columns).dropna(thresh=2).fillna('').set_index('algorithm'))
  head = to.read_text(encoding='utf-8').partition('\n|')[0]
  to.write_text(f'{head}\n{table}', encoding='utf-8')
  return 0


if __name__ == '__main__':
  sys.exit(main())
