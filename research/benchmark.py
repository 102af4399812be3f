"""Measures seconds per round, tracing time and memory, as ratios in one run on one machine.

usage: python -m research.benchmark [--flag=value ...]

Each way to do a round (TFF's stock process and this project's, in TFF's native context and in
the graph engine, and a loop by hand) runs in a process of its own; the rounds are interleaved, so
that a change of the machine's speed meets all alike. Examples:

  python -m research.benchmark --workloads=W1,W4 --rounds=10 --json=runs/benchmark.json
  python -m research.benchmark --device=gpu --workloads=W4 --variants=ours_graph,ours_graph+xla
  python -m research.benchmark --variants=ours_graph,ours_subrounds,ours_ray1,ours_ray2
  python -m research.benchmark --variants=ours_graph --beside=../tff-adaptive-0.2.0
"""

import multiprocessing
import statistics
import sys
from collections.abc import Collection, Mapping, Sequence
from concurrent import futures
from typing import Any

from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import report

from .benchmarks import children, machine, names, other_checkout, workloads


def _listed(known: Mapping[str, str], sign: str = '') -> str:
  return '; '.join(f'{sign}{name}: {what}' for name, what in known.items())


_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_list(
  'workloads', ['W1', 'W4'], ', '.join(workloads.WORKLOADS), flag_values=_FLAGS
)
absl_flags.DEFINE_list(
  'variants',
  ['stock_native', 'stock_graph', 'ours_native', 'ours_graph', 'hand'],
  f'Ways to do a round. {_listed(names.VARIANTS)}; ours_graph also {_listed(names.OPTIONS, "+")}.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_integer(
  'rounds', 10, 'Measured rounds, after two that are not.', lower_bound=1, flag_values=_FLAGS
)
absl_flags.DEFINE_string('json', None, 'Where to write the figures.', flag_values=_FLAGS)
absl_flags.DEFINE_string(
  'beside',
  None,
  'A checkout of another version, with its .venv: each variant is measured there too, in turn.',
  flag_values=_FLAGS,
)
absl_flags.DEFINE_enum(
  'device',
  'auto',
  ['auto', 'cpu', 'gpu'],
  "As of train.py; TFF's native context is on the CPU.",
  flag_values=_FLAGS,
)

Figures = dict[str, dict[str, Any]]  # Variant -> its figures by name.
_BESIDE = ' beside'  # After the name of a variant of the other checkout.
_HEADING = [
  'workload',
  'variant',
  's/round (median)',
  '(min)',
  'x by hand',
  'x beside',
  'tracing s',
  'peak MB',
]


def process() -> futures.Executor:
  """A process of its own."""
  return futures.ProcessPoolExecutor(1, multiprocessing.get_context('spawn'))


def measure(workload: str, variants: Sequence[str], rounds: int) -> Figures:
  """Figures of each variant of a workload, and of the other checkout's if there is one."""
  running: dict[str, Any] = {}
  for variant in variants:
    running[variant] = process()
    if _FLAGS.beside:
      running[variant + _BESIDE] = other_checkout.OtherCheckout(_FLAGS.beside)
  figures: Figures = {variant: {} for variant in running}
  done: dict[str, list[dict[str, float]]] = {variant: [] for variant in running}

  for r in range(2 + rounds):
    for variant, executor in list(running.items()):
      name = variant.removesuffix(_BESIDE)
      try:
        asked = executor.submit(children.do_round, workload, name, _FLAGS.device, r)
        done[variant].append(asked.result())
      except Exception as error:  # Of whatever kind a round raises, or that it ended.
        figures[variant] = {'error': f'{type(error).__name__}: {error}'}
        running.pop(variant).shutdown()
  for variant, executor in running.items():
    first, _, *measured = (one['seconds'] for one in done[variant])
    median = statistics.median(measured)
    figures[variant] = {
      'seconds_first_round': first,
      'seconds_median': median,
      'seconds_min': min(measured),
      'seconds_of_each': measured,
      'seconds_tracing': max(0.0, first - median),
      'peak_memory_mb': done[variant][-1]['peak_mb'],
    }
    executor.shutdown()
  return figures


def table(workload: str, figures: Figures) -> str:
  """The figures as a Markdown table."""
  lines = []
  for variant, of_variant in figures.items():
    if 'error' in of_variant:
      line = [f'failed: {of_variant["error"]}', '', '', '', '', '']
    else:
      line = [
        f'{of_variant["seconds_median"]:.3f}',
        f'{of_variant["seconds_min"]:.3f}',
        _ratio(figures, variant, 'hand'),
        _ratio(figures, variant, variant + _BESIDE),
        f'{of_variant["seconds_tracing"]:.1f}',
        f'{of_variant["peak_memory_mb"]:.0f}',
      ]
    lines.append([workload, variant, *line])
  return report.Table(_HEADING, lines).markdown()


def _ratio(figures: Figures, variant: str, other: str) -> str:
  """The ratio of the medians of two variants, or nothing if the other was not measured."""
  seconds = figures.get(other, {}).get('seconds_median')
  if seconds is None:
    return ''
  return f'{figures[variant]["seconds_median"] / seconds:.2f}'


@command.entry('benchmark.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns 0, 1 if something failed, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  choices: dict[str, Collection[str]] = {
    'workloads': workloads.WORKLOADS,
    'variants': names.VARIANTS,
  }
  for flag, known in choices.items():
    if not _FLAGS[flag].value:
      raise ValueError(f'--{flag}= is empty: give some of {", ".join(known)}.')
  unknown = [name for name in _FLAGS.workloads if name not in workloads.WORKLOADS]
  if unknown:
    raise ValueError(f'unknown workloads {unknown}; there are {", ".join(workloads.WORKLOADS)}')
  for variant in _FLAGS.variants:
    _, options = names.split_variant(variant)
    if 'lstm' in options and _FLAGS.workloads != ['W3']:
      raise ValueError(f'{variant} is for --workloads=W3 alone, whose model has LSTMs.')
  if _FLAGS.beside:
    other_checkout.python(_FLAGS.beside)
  if _FLAGS.json:
    command.check_output('json', _FLAGS.json)
  results: dict[str, Figures] = {}
  for name in _FLAGS.workloads:
    command.say(f'{name}: {workloads.WORKLOADS[name].description} ...')
    results[name] = measure(name, _FLAGS.variants, _FLAGS.rounds)
    command.show(table(name, results[name]))
  if _FLAGS.json:
    document = {
      'machine': {**machine.describe(), 'device': _FLAGS.device},
      'rounds': _FLAGS.rounds,
      'workloads': results,
    }
    atomic_files.write_json(_FLAGS.json, document)
    command.show(f'written: {_FLAGS.json}\n')
  for figures in results.values():
    if any('error' in of_variant for of_variant in figures.values()):
      return command.FAILED
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
