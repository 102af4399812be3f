"""Damages a finished sweep's files, many times, and looks at what the same command makes of it.

Either the command refuses, with exit code 2 and a line that names the file, and no run begins; or
it ends with exit code 0. Then a grid's table is the one of before: of trials that are drawn, each
row of the table is what lies in its folder (the journal has no checksums, so that a trial's state
may have become another).

    python -m tests.faults.sweeps --tries=1000 --seed=1
"""

import argparse
import collections
import contextlib
import io
import os
import random
import shutil
import sys
import tempfile
from unittest import mock

from scripts import sweep
from scripts.cli import study, trainers
from tests.faults import damage
from tests.helpers import sweep_pool

COMMANDS = {
  'grid': '--grid=client_learning_rate=0.1,0.2,0.3 --grid=seed=0,1 -- --rounds=4',
  'tpe': '--search=tpe --trials=5 --range=client_learning_rate=0.01,1,log -- --rounds=4',
  'asha': (
    '--search=random --trials=5 --prune=asha --first_rung=1 --reduction_factor=2'
    ' --range=client_learning_rate=0.01,1,log -- --rounds=4 --rounds_per_evaluation=1'
  ),
}
KINDS = ('bit', 'cut', 'zeros', 'empty', 'gone', 'line gone', 'line twice', 'lines exchanged')
RUNS_KINDS = ('metrics gone', 'metrics cut', 'metrics line gone', 'metrics cell')


def command(folder: str, of: str) -> tuple[int, int, str]:
  """Runs a sweep whose runs take no time; returns its exit code, its runs and its last line."""
  pool, error = (
    sweep_pool.Hosts(lambda s: 0.5 + 0.1 * s.flat()['client_learning_rate']),
    io.StringIO(),
  )
  own, _, fixed = COMMANDS[of].partition(' -- ')
  with (
    mock.patch.object(trainers, 'LocalHost', pool),
    contextlib.redirect_stdout(io.StringIO()),
    contextlib.redirect_stderr(error),
  ):
    code = sweep.main(['sweep.py', f'--output_dir={folder}', *own.split(), '--', *fixed.split()])
  return code, len(pool.jobs), (error.getvalue().splitlines() or [''])[-1]


def harmed(content: bytes, kind: str, rng: random.Random) -> bytes:
  """Returns a journal's content after a damage."""
  out, lines = bytearray(content), content.splitlines(keepends=True)
  where, i = rng.randrange(len(out)), rng.randrange(len(lines) - 1)
  if kind == 'bit':
    out[where] ^= 1 << rng.randrange(8)
  elif kind == 'cut':
    del out[where:]
  elif kind == 'zeros':
    out[where : where + 200] = bytes(200)
  elif kind == 'empty':
    return b''
  else:
    lines[i : i + 2] = {
      'line gone': lines[i + 1 : i + 2],
      'line twice': [lines[i], *lines[i : i + 2]],
      'lines exchanged': [lines[i + 1], lines[i]],
    }[kind]
    return b''.join(lines)
  return bytes(out)


def harm_rows(path: str, kind: str) -> None:
  """Damages the rows of a run that is complete."""
  with open(path, encoding='utf-8') as file:
    lines = file.readlines()
  if kind == 'metrics gone':
    return os.remove(path)
  if kind == 'metrics cell':
    lines[2] = lines[2].replace('.', 'x')
  else:
    del lines[2 if kind == 'metrics line gone' else -1]
  with open(path, 'w', encoding='utf-8') as file:
    file.writelines(lines)
  return None


class Attack:
  """A finished sweep, to be damaged again and again."""

  def __init__(self, folder: str, of: str):
    """Does the sweep named `of`, below `folder`."""
    self._folder, self._of = os.path.join(folder, 'sweep'), of
    self._kept = os.path.join(folder, 'kept')
    code, runs, _ = command(self._folder, of)
    assert code == 0
    assert runs >= 5
    shutil.copytree(self._folder, self._kept)

  def attempt(self, kind: str, rng: random.Random) -> str:
    """Damages the sweep and gives its command again.

    Args:
      kind: One of `KINDS` or `RUNS_KINDS`.
      rng: Draws where.

    Returns:
      'refused', 'the same table' or 'another table'.

    Raises:
      AssertionError: If it is none of what it may be.
    """
    shutil.rmtree(self._folder)
    shutil.copytree(self._kept, self._folder)
    if kind in RUNS_KINDS:
      run = rng.choice(sorted(n for n in os.listdir(self._folder) if '=' in n))
      named = path = os.path.join(self._folder, run, 'metrics.csv')
      named = os.path.dirname(path)
      harm_rows(path, kind)
    else:
      named = path = os.path.join(self._folder, study.JOURNAL)
      with open(path, 'rb') as file:
        content = file.read()
      os.remove(path)
      if kind != 'gone':
        with open(path, 'wb') as file:
          file.write(harmed(content, kind, rng))
    try:
      code, runs, line = command(self._folder, self._of)
    except Exception as error:
      raise AssertionError(f'{kind}: {error!r}') from error
    if code == 2:
      assert runs == 0, f'{kind}: {runs} runs, and then: {line}'
      assert named in line or self._folder in line, f'{kind}: {line}'
      return 'refused'
    assert code == 0, f'{kind}: exit code {code}: {line}'
    if self._table(self._folder) == self._table(self._kept):
      return 'the same table'
    assert self._of != 'grid', f'{kind}: another table, without a word'
    return 'another table'

  def _table(self, folder: str) -> str:
    with open(os.path.join(folder, 'sweep.md'), encoding='utf-8') as file:
      return file.read()


def main() -> int:
  """Runs the command; exit code 1 if a damage came to something else."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--tries', type=int, default=300, help='of each kind of sweep')
  parser.add_argument('--seed', type=int, default=0)
  given = parser.parse_args()
  counts: collections.Counter = collections.Counter()
  for of in COMMANDS:
    rng = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as folder:
      attack = Attack(folder, of)
      for _ in range(given.tries):
        kind = rng.choice(KINDS + (() if of == 'asha' else RUNS_KINDS))
        try:
          counts[of, kind, attack.attempt(kind, rng)] += 1
        except AssertionError as error:
          counts[of, kind, 'WRONG'] += 1
          sys.stdout.write(f'{of}, {error}\n')
  return damage.report(counts)


if __name__ == '__main__':
  sys.exit(main())
