"""Which library computes which algorithm: other libraries against the test vectors.

usage: python -m research.peer_vectors

Each library runs in the environment that scripts/env/setup_peers.sh makes; one that is not there is
left out. Where a library departs from a case, it is compared with another form of the formula too
(research/peers/forms.py).
"""

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from research import vectors
from research.experiments import frame
from research.peers.forms import FORMS

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIBRARIES = {
  'tff': ('TFF', 'tensorflow-federated'),
  'flower': ('Flower', 'flwr'),
  'pfl': ('pfl-research', 'pfl'),
  'fedjax': ('FedJAX', 'fedjax'),
  'fluke': ('fluke', 'fluke-fl'),
  'pfllib': ('PFLlib', None),
  'fl_bench': ('FL-bench', None),
  'nvflare': ('NVFlare', 'nvflare'),
  'appfl': ('APPFL', 'appfl'),
  'fl4health': ('FL4Health', 'fl4health'),
}
SAME = 2e-5  # Relative to the largest entry: some compute in float32.


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


def deviations(models: list[Any], wanted: list[Any]) -> Any:
  """The deviation in each round, relative to the largest entry."""
  return np.abs(np.subtract(models, wanted)).max(1) / np.abs(wanted).max(1)


def cell(case: Any, models: list[Any]) -> str:
  """A cell of the first table: the largest deviation, or the round of the first departure."""
  error = deviations(models, [one['server']['x'] for one in case['rounds']])
  if error.max() <= SAME:
    return f'{error.max():.0e}'
  first = int(np.argmax(~(error <= SAME)))
  return f'round {first + 1} ({error[first]:.0e})'


def departure(library: str, case: Any, problem: Any, models: list[Any]) -> dict[str, str] | None:
  """A row of the second table, if the library departs: its form, and how far it is from that."""
  said = cell(case, models)
  if not said.startswith('round'):
    return None
  row = {'library': LIBRARIES[library][0], 'case': case['name'], 'departs in': said}
  if (library, case['name']) in FORMS:
    text, form = FORMS[library, case['name']]
    rest = deviations(models, models_of(form, case, problem)).max()
    row |= {'the form that it computes': text, 'deviation from that': f'{rest:.0e}'}
  return row


def version_of(library: str, python: pathlib.Path) -> str:
  """The version of the package in its environment, or the commit of its source."""
  package = LIBRARIES[library][1]
  if package is None:
    source = ROOT / '.peers' / library / 'source'
    command = ['git', '-C', str(source), 'rev-parse', '--short=8', 'HEAD']
  else:
    program = f'import importlib.metadata as m; print(m.version({package!r}))'
    command = [str(python), '-c', program]
  return subprocess.check_output(command, text=True).strip()


def models_in(library: str, python: pathlib.Path, path: pathlib.Path) -> Any:
  """Case -> the models of the server, round by round, as the library computes them."""
  command = [str(python), '-m', 'research.peers.vector_rounds', library, str(path)]
  said = subprocess.check_output(command, text=True, cwd=ROOT)
  return json.loads(said.splitlines()[-1])


def main() -> int:
  """Writes the tables into results/peer_vectors/, below the text that stands there."""
  to = ROOT / 'results' / 'peer_vectors' / 'peer_vectors.md'
  path = vectors.FOLDER / 'least_squares.json'
  content = json.loads(path.read_text(encoding='utf-8'))
  columns = {'algorithm': {case['name']: case['name'] for case in content['cases']}}
  rows = []
  for library, (title, _) in LIBRARIES.items():
    python = ROOT / '.peers' / library / 'bin' / 'python'
    if library == 'tff':
      python = pathlib.Path(sys.executable)
    if not python.exists():
      continue
    models = models_in(library, python, path)
    tried = [case for case in content['cases'] if case['name'] in models]
    column = {case['name']: cell(case, models[case['name']]) for case in tried}
    columns[f'{title} {version_of(library, python)}'] = column
    for case in tried:
      row = departure(library, case, content['problem'], models[case['name']])
      if row is not None:
        rows.append(row)
  agreement = frame.table(pd.DataFrame(columns).dropna(thresh=2).fillna('').set_index('algorithm'))
  departures = frame.table(pd.DataFrame(rows).fillna('').set_index('library'))
  head = to.read_text(encoding='utf-8').partition('\n|')[0]
  to.write_text(f'{head}\n{agreement}\n## Departures\n\n{departures}', encoding='utf-8')
  return 0


if __name__ == '__main__':
  sys.exit(main())
