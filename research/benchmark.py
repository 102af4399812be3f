"""Measures seconds per round, tracing time and memory, as ratios in one run on one machine.

usage: python -m research.benchmark [--flag=value ...]

Each way to do a round (TFF's stock process and this project's, in TFF's native context and in
the graph engine, and a loop by hand) runs in a process of its own; the rounds are interleaved, so
that a change of the machine's speed meets all alike. Examples:

  python -m research.benchmark --workloads=W1,W4 --rounds=10 --json=results/benchmark.json
  python -m research.benchmark --workloads=shakespeare_real --data_dir=FOLDER --rounds=5
  python -m research.benchmark --device=gpu --workloads=W4 --variants=ours_graph,ours_graph+xla
  python -m research.benchmark --variants=ours_graph,ours_subrounds,ours_ray1,ours_ray2
  python -m research.benchmark --workloads=W1,W3,W4 --variants=ours_graph,pfl,fedjax,flower
"""

import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive._utils import atomic_files

from .benchmarks import children, host, peer_environments, variant_names, workloads

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_list(
  'workloads',
  ['W1', 'W4'],
  'W1, W1s, W2, W3, W4, W5, tutorial, tutorial_sampled (synthetic); digits_real, emnist_real,'
  ' shakespeare_real; cifar10_iid, of a cifar10.npz.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_list(
  'variants',
  ['stock_native', 'stock_graph', 'ours_native', 'ours_graph', 'hand'],
  'Ways to do a round; also ours_subrounds: the cohort in four parts; ours_ray1, ours_ray2,'
  ' ours_ray4: they are trained by so many Ray workers on this machine;'
  ' ours_graph+xla, +bfloat16, +float16, +single (clients one by one),'
  ' +together (the cohort in batched operations). hand is for W1 to W5.'
  ' Other toolkits, where scripts/env/setup_peers.sh has installed them (W1 to W4; skipped'
  ' elsewhere): pfl, pfl1, fedjax, flower.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_integer(
  'rounds', 10, 'Measured rounds, after two that are not.', lower_bound=1, flag_values=_FLAGS
)
absl_flags.DEFINE_integer(
  'soak_rounds',
  0,
  'If given: also run this project in the graph engine for so many rounds a workload and report'
  ' memory after a tenth of them and at the end.',
  lower_bound=0,
  flag_values=_FLAGS,
)
absl_flags.DEFINE_string('json', None, 'Where to write the figures.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'data_dir', None, "Folder with TFF's files, for real workloads.", flag_values=_FLAGS
)
absl_flags.DEFINE_enum(
  'device',
  'auto',
  ['auto', 'cpu', 'gpu'],
  "As of train.py; TFF's native context is on the CPU.",
  flag_values=_FLAGS,
)


Figures = dict[str, dict[str, Any]]  # Variant -> its figures by name.


def _data_dir() -> str:
  """The folder of real data; a child's working folder is another."""
  return os.path.abspath(_FLAGS.data_dir) if _FLAGS.data_dir else ''


def measure(workload: str, variants: Sequence[str], rounds: int) -> Figures:
  """Figures of each variant of a workload."""
  running: dict[str, children.Child] = {}
  figures: Figures = {}
  times: dict[str, list[float]] = {}
  for variant in variants:
    peer = peer_environments.PEERS.get(variant)
    missing = peer.missing(workload) if peer else None
    if missing:
      figures[variant] = {'skipped': missing}
      continue
    child = children.Child(workload, variant, _data_dir(), _FLAGS.device)
    try:
      first = child.ask('round')
      child.ask('round')
    except RuntimeError as error:
      figures[variant] = {'error': str(error)}
      child.end()
      continue
    running[variant], times[variant] = child, []
    figures[variant] = {'seconds_first_round': first['seconds']}
  for r in range(rounds + 1):  # After the last round, the memory.
    for variant, child in list(running.items()):
      try:
        if r < rounds:
          times[variant].append(child.ask('round')['seconds'])
        else:
          figures[variant]['peak_memory_mb'] = child.ask('memory')['peak_mb']
      except RuntimeError as error:
        figures[variant] = {'error': str(error)}
        running.pop(variant).end()
  for variant, child in running.items():
    median = statistics.median(times[variant])
    figures[variant].update(
      seconds_median=median,
      seconds_min=min(times[variant]),
      seconds_spread=host.spread(times[variant]),
      seconds_tracing=max(0.0, figures[variant]['seconds_first_round'] - median),
    )
    child.end()
  return figures


def soak(workload: str, rounds: int) -> dict[Any, Any]:
  """Memory of this project in the graph engine over many rounds, in MB."""
  child, memory = (
    children.Child(workload, 'ours_graph', _data_dir(), _FLAGS.device),
    dict[Any, Any](),
  )
  try:
    for r in range(1, rounds + 1):
      child.ask('round')
      if r in (max(1, rounds // 10), rounds):
        memory[r] = child.ask('memory')['now_mb']
  except RuntimeError as error:
    print(f'{workload}: {error}', file=sys.stderr, flush=True)
    return {'error': str(error)}
  finally:
    child.end()
  (early, before), (late, after) = min(memory.items()), max(memory.items())
  print(
    f'{workload}: {before:.0f} MB after {early} rounds, {after:.0f} MB after {late}', flush=True
  )
  return memory


_NOT_MEASURED = {'error': 'failed', 'skipped': 'skipped'}


def table(results: Mapping[str, Figures]) -> str:
  """The figures as a Markdown table."""
  lines = [
    '| workload | variant | s/round (median) | (min) | x by hand | tracing s | peak MB |',
    '|---|---|---|---|---|---|---|',
  ]
  for workload, figures in results.items():
    hand = figures.get('hand', {}).get('seconds_median')
    for variant, f in figures.items():
      failed = next((f'{how}: {f[key]}' for key, how in _NOT_MEASURED.items() if key in f), None)
      if failed:
        lines.append(f'| {workload} | {variant} | {failed.replace("|", " ")} | | | | |')
        continue
      ratio = f'{f["seconds_median"] / hand:.2f}' if hand else ''
      lines.append(
        f'| {workload} | {variant} | {f["seconds_median"]:.3f} | {f["seconds_min"]:.3f} | {ratio} '
        f'| {f["seconds_tracing"]:.1f} | {f["peak_memory_mb"]:.0f} |'
      )
  return '\n'.join(lines)


@command.entry('benchmark.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if something failed, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  _check_flags()
  return _run()


def _check_flags() -> None:
  """ValueError if a flag is bad."""
  for flag in ('workloads', 'variants'):
    if not _FLAGS[flag].value:
      raise ValueError(f'--{flag}= is empty: give one or more, or leave it out.')
  if _FLAGS.json:
    folder = os.path.dirname(os.path.abspath(_FLAGS.json))
    if os.path.isdir(_FLAGS.json) or not os.path.isdir(folder):
      raise ValueError(f'--json={_FLAGS.json}: name a file in a folder that there is.')
    if not os.access(folder, os.W_OK | os.X_OK):
      raise ValueError(f'--json={_FLAGS.json}: {folder} cannot be written to.')
  unknown = [w for w in _FLAGS.workloads if w not in workloads.WORKLOADS]
  if unknown:
    raise ValueError(f'unknown workloads {unknown}; there are {", ".join(workloads.WORKLOADS)}')
  without = [w for w in _FLAGS.workloads if not workloads.WORKLOADS[w].has_lstm]
  for variant in _FLAGS.variants:
    _, options = variant_names.split_variant(variant)
    if 'lstm' in options and without:
      raise ValueError(
        f'{variant} is for models with LSTMs, found {", ".join(without)}: W3 has some.'
      )
  real = [w for w in _FLAGS.workloads if workloads.WORKLOADS[w].is_real]
  if real and not _FLAGS.data_dir:
    raise ValueError(f"--data_dir is needed for {', '.join(real)}: a folder with TFF's files.")


def _run() -> int:
  results: dict[str, Figures] = {}
  hosts: dict[str, dict[str, Any]] = {}
  failed = False
  for workload in _FLAGS.workloads:
    variants = [
      v for v in _FLAGS.variants if v != 'hand' or workloads.WORKLOADS[workload].is_by_hand
    ]
    print(
      f'{workload}: {workloads.WORKLOADS[workload].description} ...', file=sys.stderr, flush=True
    )
    before = host.state_now()
    results[workload] = measured = measure(workload, variants, _FLAGS.rounds)
    spreads = {v: f['seconds_spread'] for v, f in measured.items() if 'seconds_spread' in f}
    failed = failed or any('error' in figures for figures in measured.values())
    print(table({workload: measured}), flush=True)
    hosts[workload] = host.between(before, host.state_now(), spreads)
    for doubt in hosts[workload]['not_quiet']:
      print(f'{workload}: not quiet: {doubt}', file=sys.stderr, flush=True)
    if _FLAGS.soak_rounds:
      figures = results[workload].setdefault('ours_graph', {})
      figures['memory_mb_by_round'] = memory = soak(workload, _FLAGS.soak_rounds)
      failed = failed or 'error' in memory
  if _FLAGS.json:
    _write_json(_FLAGS.json, results, hosts)
    print(f'written: {_FLAGS.json}')
  return 1 if failed else 0


def _write_json(
  path: str, results: Mapping[str, Figures], hosts: Mapping[str, Mapping[str, Any]]
) -> None:
  """Writes all figures, with the machine, the peers' versions and how quiet it was."""
  peers = {
    name: peer.version()
    for name, peer in peer_environments.PEERS.items()
    if any('seconds_median' in figures.get(name, {}) for figures in results.values())
  }
  found = {
    'machine': {**host.describe(), 'device': _FLAGS.device},
    'peers': peers,
    'host': hosts,
    'rounds': _FLAGS.rounds,
    'workloads': results,
  }
  atomic_files.write_json(path, found)


if __name__ == '__main__':
  sys.exit(main())
