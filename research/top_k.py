"""Measures the exact selection of the largest numbers of a vector, beside other ways to do it.

usage: python -m research.top_k [--flag=value ...]

The ways are in one process and take turns: this project's histograms, the same in a compiled
operation, `tf.math.top_k`, and `np.argpartition`. The first two keep the numbers, the others return
which are largest; they are compared first. Examples:

  python -m research.top_k
  python -m research.top_k --sizes=100000 --shares=0.01 --repeats=3 --threads=1
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive.reports import report

_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_list('sizes', ['5000000'], 'Numbers of a vector.', flag_values=_FLAGS)
absl_flags.DEFINE_list('shares', ['0.01', '0.05', '0.2'], 'Selected.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('repeats', 9, 'Of each.', lower_bound=1, flag_values=_FLAGS)
absl_flags.DEFINE_integer(
  'threads', 1, "Of an operation, 1 in rounds; 0 for TensorFlow's choice.", flag_values=_FLAGS
)


def ways(k: int) -> Mapping[str, Callable[[Any], Any]]:
  """Returns functions from a vector to its k largest magnitudes or a mask of them, by name."""
  import tensorflow as tf

  from tff_adaptive.compression import selection
  from tff_adaptive.kernels import library

  @tf.function(autograph=False)
  def by_histograms(values: Any) -> Any:
    return selection.keep_largest([values], k)[0]

  @tf.function(autograph=False)
  def by_operation(values: Any) -> Any:
    return library.load().tff_adaptive_keep_largest(values=[values], k=k)[0]

  @tf.function(autograph=False)
  def by_top_k(values: Any) -> Any:
    _, positions = tf.math.top_k(tf.abs(values), k, sorted=False)
    trues = tf.ones([k], tf.bool)
    return tf.tensor_scatter_nd_update(tf.zeros(values.shape, tf.bool), positions[:, None], trues)

  def by_numpy(values: Any) -> Any:
    array = values.numpy()
    positions = np.argpartition(-np.abs(array), k)[:k]
    mask = np.zeros(array.shape, bool)
    mask[positions] = True
    return mask

  return {
    'histograms': by_histograms,
    'compiled': by_operation,
    'tf.math.top_k': by_top_k,
    'np.argpartition': by_numpy,
  }


def measure(size: int, share: float, repeats: int) -> dict[str, list[float]]:
  """Returns the seconds of each way to select a share of `size` normal numbers."""
  import tensorflow as tf

  from tff_adaptive.compression import selection

  values = tf.constant(np.random.default_rng(0).standard_normal(size), tf.float32)
  functions = ways(selection.num_kept(size, share))
  masks = [np.asarray(function(values)) != 0 for function in functions.values()]
  for name, mask in zip(functions, masks):
    if not np.array_equal(mask, masks[0]):
      raise AssertionError(f'{name} selects other numbers')
  seconds: dict[str, list[float]] = {name: [] for name in functions}
  for _ in range(repeats):
    for name, function in functions.items():
      begun = time.perf_counter()
      np.asarray(function(values))
      seconds[name].append(time.perf_counter() - begun)
  return seconds


@command.entry('top_k.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  for size in _FLAGS.sizes:
    if not size.isdecimal() or not int(size):
      raise ValueError(f'--sizes={size}: give whole numbers from 1 on, 5000000 say.')
  shares = [float(share) for share in _FLAGS.shares]
  if not all(0 < share < 1 for share in shares):
    raise ValueError(f'--shares={",".join(_FLAGS.shares)}: give numbers in (0, 1), 0.05 say.')
  import tensorflow as tf

  if _FLAGS.threads:
    tf.config.threading.set_intra_op_parallelism_threads(_FLAGS.threads)
  rows = []
  for size in map(int, _FLAGS.sizes):
    for share in shares:
      for name, seconds in measure(size, share, _FLAGS.repeats).items():
        median = f'{statistics.median(seconds):.4f}'
        rows.append([f'{size:,}', f'{share:g}', name, median, f'{min(seconds):.4f}'])
  command.show(report.Table(['size', 'share', 'way', 'median s', 'min s'], rows).markdown())
  return command.DONE


if __name__ == '__main__':
  sys.exit(main())
