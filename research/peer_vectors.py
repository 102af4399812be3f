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
from research.peers.forms import form_of
from tff_adaptive._utils import temporary_folders

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
FILES = {'least_squares': 'Least squares', 'logistic': 'Logistic regression'}
PLAIN = ('fed_avg', 'fed_prox', 'scaffold', 'fed_nova', 'fed_exp', 'mime_lite', 'mime', 'apfl')
SAME = 2e-5  # Relative to the largest entry: some compute in float32.


def content_of(name: str) -> Any:
  """A file of vectors; the logistic one with further cases, of least squares' settings.

  In that file most algorithms have options that few of the libraries combine with them.
  """
  content = json.loads((vectors.FOLDER / f'{name}.json').read_text(encoding='utf-8'))
  if name != 'logistic':
    return content
  problem = content['problem']
  for case in content_of('least_squares')['cases']:
    if case['name'] in PLAIN:
      settings = {**case, 'name': f'{case["name"]}-plain'}
      done = vectors.rounds(settings, problem, **vectors.SCHEDULES['logistic'])
      settings['rounds'] = json.loads(json.dumps([*done], default=np.ndarray.tolist))
      content['cases'].append(settings)
  return content


def models_of(form: Callable[..., Any], case: Any, problem: Any) -> list[Any]:
  """The models by a class of the oracle, or by a server optimizer with the vectors' updates."""
  if isinstance(form, type):
    schedule = vectors.SCHEDULES[problem['loss']]
    with np.errstate(all='ignore'):  # A client overflows.
      rounds = vectors.rounds(case, problem, **schedule, kind=form)
      return [one['server']['x'] for one in rounds]
  step = form(case['server_optimizer'])
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
  known = form_of(library, case)
  if known is not None:
    text, form = known
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


def environments() -> dict[str, pathlib.Path]:
  """The Python of each library that has an environment here."""
  pythons = {library: ROOT / '.peers' / library / 'bin' / 'python' for library in LIBRARIES}
  pythons['tff'] = pathlib.Path(sys.executable)
  return {library: python for library, python in pythons.items() if python.exists()}


def tables(content: Any) -> str:
  """Which library agrees with which case of a file, and the forms of those that depart."""
  cases = content['cases']
  columns = {'case': {case['name']: case['name'] for case in cases}}
  rows = []
  with temporary_folders.folder('peer-vectors-') as folder:
    path = pathlib.Path(folder) / 'vectors.json'
    path.write_text(json.dumps(content), encoding='utf-8')
    for library, python in environments().items():
      models = models_in(library, python, path)
      tried = [case for case in cases if case['name'] in models]
      column = {case['name']: cell(case, models[case['name']]) for case in tried}
      columns[f'{LIBRARIES[library][0]} {version_of(library, python)}'] = column
      for case in tried:
        row = departure(library, case, content['problem'], models[case['name']])
        if row is not None:
          rows.append(row)
  agreement = frame.table(pd.DataFrame(columns).dropna(thresh=2).fillna('').set_index('case'))
  departures = frame.table(pd.DataFrame(rows).fillna('').set_index('library'))
  return f'{agreement}\nWhere a library departs:\n\n{departures}'


def main() -> int:
  """Writes the tables into results/peer_vectors/, below the text that stands there."""
  to = ROOT / 'results' / 'peer_vectors' / 'peer_vectors.md'
  page = to.read_text(encoding='utf-8').partition('\n## ')[0]
  for name, title in FILES.items():
    page += f'\n## {title}\n\n{tables(content_of(name))}'
  to.write_text(page, encoding='utf-8')
  return 0


if __name__ == '__main__':
  sys.exit(main())
