"""Measures seconds per round, tracing time and memory, as ratios in one run on one machine.

usage: python -m research.benchmark [--flag=value ...]

Each way to do a round (TFF's stock process and this project's, in TFF's native context and in
the graph engine, and a loop by hand) runs in a process of its own; the rounds are interleaved, so
that a change of the machine's speed meets all alike. Examples:

  python -m research.benchmark --workloads=W1,W4 --rounds=10 --json=results/benchmark.json
  python -m research.benchmark --workloads=shakespeare_real --data_dir=FOLDER --rounds=5
  python -m research.benchmark --device=gpu --workloads=W4 --variants=ours_graph,ours_graph+xla
  python -m research.benchmark --variants=ours_graph,ours_subrounds,ours_ray1,ours_ray2
  python -m research.benchmark --workloads=W1,W4 --variants=ours_graph,pfl
"""

import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import report

from .benchmarks import children, host, names, workloads

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_list(
  'workloads', ['W1', 'W4'], ', '.join(workloads.WORKLOADS), flag_values=_FLAGS
)
absl_flags.DEFINE_list(
  'variants',
  ['stock_native', 'stock_graph', 'ours_native', 'ours_graph', 'hand'],
  f'Ways to do a round: {names.HELP}. hand is for W1, W2, W4 to W6, run for'
  ' synthetic workloads. Other toolkits run where scripts/env/setup_peers.sh has installed them (W1'
  ' to W4), and are skipped elsewhere.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_integer(
  'rounds', 10, 'Measured rounds, after two that are not.', lower_bound=1, flag_values=_FLAGS
)
absl_flags.DEFINE_string('json', None, 'Where to write the figures.', flag_values=_FLAGS)
absl_flags.DEFINE_string('data_dir', None, "Folder with TFF's files.", flag_values=_FLAGS)
absl_flags.DEFINE_enum(
  'device',
  'auto',
  ['auto', 'cpu', 'gpu'],
  "As of train.py; TFF's native context is on the CPU.",
  flag_values=_FLAGS,
)

Figures = dict[str, dict[str, Any]]  # Variant -> its figures by name.
_HEADING = ['workload', 'variant', 's/round (median)', '(min)', 'x by hand', 'tracing s', 'peak MB']
_NOT_MEASURED = {'error': 'failed', 'skipped': 'skipped'}


def measure(workload: str, variants: Sequence[str], rounds: int) -> Figures:
  """Figures of each variant of a workload."""
  # A child's working folder is another.
  data_dir = os.path.abspath(_FLAGS.data_dir) if _FLAGS.data_dir else ''
  running: dict[str, children.Child] = {}
  figures: Figures = {variant: {} for variant in variants}
  done: dict[str, list[dict[str, float]]] = {variant: [] for variant in variants}

  def ask(variant: str, times: int) -> None:
    """Has a child do rounds; one that fails is ended."""
    try:
      for _ in range(times):
        done[variant].append(running[variant].round())
    except RuntimeError as error:
      figures[variant] = {'error': str(error)}
      running.pop(variant).end()

  for variant in variants:
    if missing := names.missing(workload, variant):
      figures[variant] = {'skipped': missing}
    else:
      running[variant] = children.Child(workload, variant, data_dir, _FLAGS.device)
      ask(variant, times=2)  # They are not measured.
  for _ in range(rounds):
    for variant in list(running):
      ask(variant, times=1)
  for variant, child in running.items():
    first, _, *measured = (one['seconds'] for one in done[variant])
    median = statistics.median(measured)
    figures[variant] = {
      'seconds_first_round': first,
      'seconds_median': median,
      'seconds_min': min(measured),
      'seconds_spread': host.spread(measured),
      'seconds_tracing': max(0.0, first - median),
      'peak_memory_mb': done[variant][-1]['peak_mb'],
    }
    child.end()
  return figures


def table(results: Mapping[str, Figures]) -> str:
  """The figures as a Markdown table."""
  lines = []
  for workload, figures in results.items():
    hand = figures.get('hand', {}).get('seconds_median')
    for variant, f in figures.items():
      line = [f'{how}: {f[key]}' for key, how in _NOT_MEASURED.items() if key in f]
      if not line:
        line = [f'{f["seconds_median"]:.3f}', f'{f["seconds_min"]:.3f}']
        line += [f'{f["seconds_median"] / hand:.2f}' if hand else '']
        line += [f'{f["seconds_tracing"]:.1f}', f'{f["peak_memory_mb"]:.0f}']
      lines.append([workload, variant, *line, *[''] * (5 - len(line))])
  return report.Table(_HEADING, lines).markdown()


@command.entry('benchmark.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if something failed, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  _check_flags()
  results: dict[str, Figures] = {}
  hosts: dict[str, dict[str, Any]] = {}
  for name in _FLAGS.workloads:
    workload = workloads.WORKLOADS[name]
    variants = [v for v in _FLAGS.variants if v != 'hand' or workload.is_by_hand]
    command.say(f'{name}: {workload.description} ...')
    before = host.state_now()
    results[name] = measured = measure(name, variants, _FLAGS.rounds)
    spreads = {v: f['seconds_spread'] for v, f in measured.items() if 'seconds_spread' in f}
    command.show(table({name: measured}))
    hosts[name] = host.between(before, host.state_now(), spreads)
    for doubt in hosts[name]['not_quiet']:
      command.say(f'{name}: not quiet: {doubt}')
  if _FLAGS.json:
    _write_json(_FLAGS.json, results, hosts)
    command.show(f'written: {_FLAGS.json}\n')
  has_failed = any('error' in f for figures in results.values() for f in figures.values())
  return command.FAILED if has_failed else command.DONE


def _check_flags() -> None:
  """ValueError if a flag is bad."""
  for flag in ('workloads', 'variants'):
    if not _FLAGS[flag].value:
      raise ValueError(f'--{flag}= is empty: give one or more, or leave it out.')
  if _FLAGS.json:
    command.check_output('json', _FLAGS.json)
  unknown = [w for w in _FLAGS.workloads if w not in workloads.WORKLOADS]
  if unknown:
    raise ValueError(f'unknown workloads {unknown}; there are {", ".join(workloads.WORKLOADS)}')
  chosen = [workloads.WORKLOADS[name] for name in _FLAGS.workloads]
  without = [w.name for w in chosen if not w.has_lstm]
  for variant in _FLAGS.variants:
    _, options = names.split_variant(variant)
    if 'lstm' in options and without:
      raise ValueError(
        f'{variant} is for models with LSTMs, found {", ".join(without)}: W3 has some.'
      )
  real = [w.name for w in chosen if w.task]
  if real and not _FLAGS.data_dir:
    raise ValueError(f"--data_dir is needed for {', '.join(real)}: a folder with TFF's files.")


def _write_json(
  path: str, results: Mapping[str, Figures], hosts: Mapping[str, Mapping[str, Any]]
) -> None:
  """Writes all figures, with the machine, the peers' versions and how quiet it was."""
  measured = {
    v for figures in results.values() for v, f in figures.items() if 'seconds_median' in f
  }
  python = names.peer_python('pfl')
  peers = {name: names.peer_version(python, 'pfl') for name in measured & {*names.PEERS}}
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
