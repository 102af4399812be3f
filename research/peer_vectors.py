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
