"""Measures seconds per round, tracing time and memory, as ratios in one run on one machine.

usage: python scripts/benchmark.py [--flag=value ...]

Each way to do a round (TFF's stock process and this project's, in TFF's native context and in
the graph engine, and a loop by hand) runs in a process of its own; the rounds are interleaved, so
that a change of the machine's speed meets all alike. Examples:

  python scripts/benchmark.py --works=W1,W4 --rounds=10 --json=results/benchmark.json
  python scripts/benchmark.py --works=shakespeare_real --data_dir=FOLDER --rounds=5
  python scripts/benchmark.py --device=gpu --works=W1,W4 --variants=ours_graph,ours_graph+xla,vmap
  python scripts/benchmark.py --variants=ours_graph,ours_workers1,ours_workers2,ours_workers4
"""

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

if not __package__:  # Run as a file: the checkout's packages, not this folder, are importable.
  sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

from absl import flags as absl_flags

from scripts import command
from scripts.benchmarking import works

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_list(
  'works',
  ['W1', 'W4'],
  'Works: W1, W1s, W2, W3, W4, W5 (synthetic); digits_real, emnist_real, shakespeare_real.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_list(
  'variants',
  ['stock_native', 'stock_graph', 'ours_native', 'ours_graph', 'hand'],
  'Ways to do a round; also ours_workers1, ours_workers2, ours_workers4: workers on this machine;'
  ' ours_mergeable2: two of them, and TFF divides the round among them;'
  ' vmap: one JAX program; ours_graph+xla, +bfloat16, +float16, +single (clients one by one),'
  ' +together (the cohort in batched operations). hand and vmap are for synthetic works.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_integer(
  'rounds', 10, 'Measured rounds, after two that are not.', lower_bound=1, flag_values=_FLAGS
)
absl_flags.DEFINE_integer(
  'soak_rounds',
  0,
  'If given: also run this project in the graph engine for so many rounds of each work and report'
  ' memory after a tenth of them and at the end.',
  lower_bound=0,
  flag_values=_FLAGS,
)
absl_flags.DEFINE_string('json', None, 'Where to write the figures.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'data_dir', None, "Folder with TFF's files, for real works.", flag_values=_FLAGS
)
absl_flags.DEFINE_enum(
  'device',
  'auto',
  ['auto', 'cpu', 'gpu'],
  "As of train.py; TFF's native context is on the CPU.",
  flag_values=_FLAGS,
)


class _Child:
  """A process that runs one variant of one work, a round at each request."""

  def __init__(self, work, variant):
    arguments = [sys.executable, '-m', 'scripts.benchmarking.child', work, variant]
    # The child's working folder is another.
    data_dir = os.path.abspath(_FLAGS.data_dir) if _FLAGS.data_dir else ''
    self._errors = tempfile.TemporaryFile('w+', errors='replace')  # noqa: SIM115
    self._process = subprocess.Popen(
      [*arguments, data_dir, _FLAGS.device],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=self._errors,
      text=True,
      cwd=os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
    )

  def ask(self, line):
    """Sends a request and returns the answer, a JSON object; RuntimeError if the child ended."""
    with contextlib.suppress(BrokenPipeError):
      self._process.stdin.write(line + '\n')
      self._process.stdin.flush()
    for answer in self._process.stdout:
      if answer.startswith('{'):
        return json.loads(answer)
    code = self._process.wait()
    raise RuntimeError(f'a child ended with code {code} at request {line!r}: {self._last_error()}')

  def _last_error(self):
    self._errors.seek(0)
    said = self._errors.read().partition('Exception ignored in')[0]  # TFF's own clean-up.
    return (said.strip().splitlines() or ['it said nothing'])[-1]

  def end(self):
    """Ends the process."""
    with contextlib.suppress(BrokenPipeError):
      self._process.stdin.close()
    self._process.wait()
    self._process.stdout.close()
    self._errors.close()


def measure(work, variants, rounds):
  """Figures of each variant of a work."""
  children, figures, times = {}, {}, {}
  for variant in variants:
    child = _Child(work, variant)
    try:
      first = child.ask('round')
      child.ask('round')
    except RuntimeError as error:
      figures[variant] = {'error': str(error)}
      child.end()
      continue
    children[variant], times[variant] = child, []
    figures[variant] = {'seconds_first_round': first['seconds']}
  for r in range(rounds + 1):  # After the last round, the memory.
    for variant, child in list(children.items()):
      try:
        if r < rounds:
          times[variant].append(child.ask('round')['seconds'])
        else:
          figures[variant]['peak_memory_mb'] = child.ask('memory')['peak_mb']
      except RuntimeError as error:
        figures[variant] = {'error': str(error)}
        children.pop(variant).end()
  for variant, child in children.items():
    median = statistics.median(times[variant])
    figures[variant].update(
      seconds_median=median,
      seconds_min=min(times[variant]),
      seconds_tracing=max(0.0, figures[variant]['seconds_first_round'] - median),
    )
    child.end()
  return figures


def soak(work, rounds):
  """Memory of this project in the graph engine over many rounds, in MB."""
  child, memory = _Child(work, 'ours_graph'), {}
  try:
    for r in range(1, rounds + 1):
      child.ask('round')
      if r in (max(1, rounds // 10), rounds):
        memory[r] = child.ask('memory')['now_mb']
  except RuntimeError as error:
    print(f'{work}: {error}', file=sys.stderr, flush=True)
    return {'error': str(error)}
  finally:
    child.end()
  (early, before), (late, after) = min(memory.items()), max(memory.items())
  print(f'{work}: {before:.0f} MB after {early} rounds, {after:.0f} MB after {late}', flush=True)
  return memory


def table(results):
  """The figures as a Markdown table."""
  lines = [
    '| work | variant | s/round (median) | (min) | x by hand | tracing s | peak MB |',
    '|---|---|---|---|---|---|---|',
  ]
  for work, figures in results.items():
    hand = figures.get('hand', {}).get('seconds_median')
    for variant, f in figures.items():
      if 'error' in f:
        error = f['error'].replace('|', ' ')
        lines.append(f'| {work} | {variant} | failed: {error} | | | | |')
        continue
      ratio = f'{f["seconds_median"] / hand:.2f}' if hand else ''
      lines.append(
        f'| {work} | {variant} | {f["seconds_median"]:.3f} | {f["seconds_min"]:.3f} | {ratio} '
        f'| {f["seconds_tracing"]:.1f} | {f["peak_memory_mb"]:.0f} |'
      )
  return '\n'.join(lines)


def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if something failed, 2 for bad input."""
  try:
    if not command.read(_FLAGS, __doc__, arguments):
      return 0
    _check_flags()
  except ValueError as error:
    sys.stderr.write(f'benchmark.py: {" ".join(str(error).split())}\n')
    return 2
  return _run()


def _check_flags() -> None:
  """ValueError if a flag is bad."""
  for flag in ('works', 'variants'):
    if not _FLAGS[flag].value:
      raise ValueError(f'--{flag}= is empty: give one or more, or leave it out.')
  if _FLAGS.json:
    folder = os.path.dirname(os.path.abspath(_FLAGS.json))
    if os.path.isdir(_FLAGS.json) or not os.path.isdir(folder):
      raise ValueError(f'--json={_FLAGS.json}: name a file in a folder that there is.')
    if not os.access(folder, os.W_OK | os.X_OK):
      raise ValueError(f'--json={_FLAGS.json}: {folder} cannot be written to.')
  unknown = [w for w in _FLAGS.works if w not in works.WORKS]
  if unknown:
    raise ValueError(f'unknown works {unknown}; there are {", ".join(works.WORKS)}')
  for variant in _FLAGS.variants:
    works.split_variant(variant)
  real = [w for w in _FLAGS.works if works.WORKS[w].task is not None]
  if real and not _FLAGS.data_dir:
    raise ValueError(f"--data_dir is needed for {', '.join(real)}: a folder with TFF's files.")


def _run() -> int:
  results, failed = {}, False
  for work in _FLAGS.works:
    variants = [
      v for v in _FLAGS.variants if v not in ('hand', 'vmap') or works.WORKS[work].task is None
    ]
    print(f'{work}: {works.WORKS[work].description} ...', file=sys.stderr, flush=True)
    results[work] = measure(work, variants, _FLAGS.rounds)
    failed = failed or any('error' in figures for figures in results[work].values())
    print(table({work: results[work]}), flush=True)
    if _FLAGS.soak_rounds:
      figures = results[work].setdefault('ours_graph', {})
      figures['memory_mb_by_round'] = memory = soak(work, _FLAGS.soak_rounds)
      failed = failed or 'error' in memory
  if _FLAGS.json:
    machine = {
      'processor': platform.processor() or platform.machine(),
      'device': _FLAGS.device,
      'cores': len(os.sched_getaffinity(0)),
      'python': platform.python_version(),
      'date': time.strftime('%Y-%m-%d'),
    }
    partial = _FLAGS.json + '.tmp'
    with open(partial, 'w') as file:
      json.dump({'machine': machine, 'rounds': _FLAGS.rounds, 'works': results}, file, indent=1)
    os.replace(partial, _FLAGS.json)
    print(f'written: {_FLAGS.json}')
  return 1 if failed else 0


def main_cli() -> None:
  """Console entry point."""
  command.run(main)


if __name__ == '__main__':
  main_cli()
