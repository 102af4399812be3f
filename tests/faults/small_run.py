"""What the tests of this folder share: damage, and a quick, stateful run."""

import hashlib
import os
import pathlib
import random

from tests.helpers import fakes
from tff_adaptive import training
from tff_adaptive.runs import state_store

KINDS = ('bit', 'cut', 'zeros', 'gone')
LINES = ('line gone', 'line twice', 'lines exchanged')


def train(
  folder: str, rounds: int, resume_from: str = 'latest', callbacks=()
) -> training.TrainingResult:
  """Trains the run in a folder to a round, or resumes it."""
  return fakes.train(
    folder, rounds, rounds_per_evaluation=1, callbacks=callbacks, resume_from=resume_from
  )


def outcome(folder: str) -> tuple:
  """Returns all that a run has come to: its rows but for the clock's, and all its states."""
  process = fakes.StatefulProcess()
  path = os.path.join(folder, 'checkpoints', 'state.sqlite')
  with state_store.ClientStateStore(path, process.initial_client_state) as store:
    checkpoint = store.restore(process.initialize())
    states = store.get(fakes.Clients.client_ids)
  weights = checkpoint.server_state.global_model_weights[0].tobytes()
  client_states = tuple((s['h'].tobytes(), int(s['last_round'])) for s in states)
  return fakes.rows(folder), checkpoint.round_number, weights, client_states


def contents(folder: str) -> dict[str, str]:
  """Returns a digest of each file of a run, but for the journal that SQLite looks after."""
  files = {}
  for path, _, names in os.walk(folder):
    for name in names:
      if not name.endswith('-journal'):
        with open(os.path.join(path, name), 'rb') as file:
          files[os.path.join(path, name)] = hashlib.sha256(file.read()).hexdigest()
  return files


def damage(path: str | pathlib.Path, kind: str, rng: random.Random) -> None:
  """Damages a file, or removes it."""
  file = pathlib.Path(path)
  content = bytearray(file.read_bytes())
  lines = content.splitlines(keepends=True)
  where = rng.randrange(len(content))
  i = rng.randrange(max(1, len(lines) - 1))
  if kind == 'bit':
    content[where] ^= 1 << rng.randrange(8)
  elif kind == 'cut':
    del content[where:]
  elif kind == 'zeros':
    content[where : where + 200] = bytes(200)
  elif kind != 'gone':
    lines[i : i + 2] = {
      'line gone': lines[i + 1 : i + 2],
      'line twice': [lines[i], *lines[i : i + 2]],
      'lines exchanged': [lines[i + 1], lines[i]],
    }[kind]
    content[:] = b''.join(lines)
  if kind == 'gone':
    file.unlink()
  else:
    file.write_bytes(content)
