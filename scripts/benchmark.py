"""Measures seconds per round, tracing time and memory, as ratios in one run on one machine.

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

from absl import app, flags

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

_WORKS = flags.DEFINE_list(
  'works',
  ['W1', 'W4'],
  'Works: W1, W1s, W2, W3, W4, W5 (synthetic); digits_real, emnist_real, shakespeare_real.',
)
_VARIANTS = flags.DEFINE_list(
  'variants',
  ['stock_native', 'stock_graph', 'ours_native', 'ours_graph', 'hand'],
  'Ways to do a round; also ours_workers1, ours_workers2, ours_workers4: workers on this machine;'
  ' ours_mergeable2: two of them, and TFF divides the round among them;'
  ' vmap: one JAX program; ours_graph+xla, +bfloat16, +float16, +single (clients one by one),'
  ' +together (the cohort in batched operations). hand and vmap are for synthetic works.',
)
_ROUNDS = flags.DEFINE_integer('rounds', 10, 'Measured rounds, after two that are not.', 1)
_SOAK_ROUNDS = flags.DEFINE_integer(
  'soak_rounds',
  0,
  'If given: also run this project in the graph engine for so many rounds of each work and report'
  ' memory after a tenth of them and at the end.',
)
_JSON = flags.DEFINE_string('json', None, 'Where to write the figures.')
_DATA_DIR = flags.DEFINE_string('data_dir', None, "Folder with TFF's files, for real works.")
_DEVICE = flags.DEFINE_enum(
  'device', 'auto', ['auto', 'cpu', 'gpu'], "As of train.py; TFF's native context is on the CPU."
)


class _Child:
  """A process that runs one variant of one work, a round at each request."""

  def __init__(self, work, variant):
    arguments = [sys.executable, '-m', 'scripts.benchmarking.child', work, variant]
    # The child's working folder is another.
    data_dir = os.path.abspath(_DATA_DIR.value) if _DATA_DIR.value else ''
    self._errors = tempfile.TemporaryFile('w+', errors='replace')  # noqa: SIM115
    self._process = subprocess.Popen(
      [*arguments, data_dir, _DEVICE.value],
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


def main(argv):
  """Runs the benchmark and prints the table; returns 1 if something failed."""
  if len(argv) > 1:
    raise app.UsageError(f'unknown arguments {argv[1:]}')
  if _JSON.value:
    folder = os.path.dirname(os.path.abspath(_JSON.value))
    if os.path.isdir(_JSON.value) or not os.path.isdir(folder):
      raise app.UsageError(f'--json={_JSON.value}: name a file in a folder that there is')
    if not os.access(folder, os.W_OK | os.X_OK):
      raise app.UsageError(f'--json={_JSON.value}: {folder} cannot be written to')
  from scripts.benchmarking import works

  unknown = [w for w in _WORKS.value if w not in works.WORKS]
  if unknown:
    raise app.UsageError(f'unknown works {unknown}; there are {", ".join(works.WORKS)}')
  for variant in _VARIANTS.value:
    try:
      works.split_variant(variant)
    except ValueError as error:
      raise app.UsageError(str(error)) from error
  results, failed = {}, False
  for work in _WORKS.value:
    variants = [
      v for v in _VARIANTS.value if v not in ('hand', 'vmap') or works.WORKS[work].task is None
    ]
    print(f'{work}: {works.WORKS[work].description} ...', file=sys.stderr, flush=True)
    results[work] = measure(work, variants, _ROUNDS.value)
    failed = failed or any('error' in figures for figures in results[work].values())
    print(table({work: results[work]}), flush=True)
    if _SOAK_ROUNDS.value:
      figures = results[work].setdefault('ours_graph', {})
      figures['memory_mb_by_round'] = memory = soak(work, _SOAK_ROUNDS.value)
      failed = failed or 'error' in memory
  if _JSON.value:
    machine = {
      'processor': platform.processor() or platform.machine(),
      'device': _DEVICE.value,
      'cores': len(os.sched_getaffinity(0)),
      'python': platform.python_version(),
      'date': time.strftime('%Y-%m-%d'),
    }
    partial = _JSON.value + '.tmp'
    with open(partial, 'w') as file:
      json.dump({'machine': machine, 'rounds': _ROUNDS.value, 'works': results}, file, indent=1)
    os.replace(partial, _JSON.value)
    print(f'written: {_JSON.value}')
  return 1 if failed else 0


def main_cli():
  """Console entry point."""
  app.run(main)


if __name__ == '__main__':
  main_cli()
