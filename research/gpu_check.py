"""Holds a GPU against the CPU: results, seconds and memory of a round.

usage: python -m research.gpu_check [--flag=value ...]

Writes OUTPUT.json and OUTPUT.md. Exit codes: 0 all results are within their bounds; 1 one is not;
2 there is no GPU. With --device=cpu logical CPUs stand in for GPUs, to try the program itself.
"""

import dataclasses
import importlib.util
import math
import os
import statistics
import sys
import timeit
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from absl import flags as absl_flags

from scripts.cli import command
from tff_adaptive._utils import atomic_files
from tff_adaptive.reports import report

from .benchmarks import machine, workloads

# Where rounding turns a ReLU's or a maximum's choice over, a gradient changes by about the square
# root of the share of such choices: a round's update may differ by so many square roots.
_ROOTS = 4
# Variant -> the rounding of its products; TF32, TensorFlow's default, is off in the others.
ROUNDING = {
  **dict.fromkeys(('single', 'together', 'two devices', 'xla'), 2.0**-24),
  **{'tf32': 2.0**-11, 'float16': 2.0**-11, 'bfloat16': 2.0**-8},
}
_NAMES = ['W2', 'W4', 'W1', 'W3', 'W5']  # Dense layers, convolutions, LSTMs, residual blocks.
_MEMORY_MB = 8000  # Of each of two logical GPUs.
_MEASURED = ('W1', 'W4')
_DRAWN_OTHERWISE = ('W1',)  # XLA's dropout has other random numbers.
_RESULT = ('workload', 'variant', 'difference', 'bound', 'is_within', 'error')
_FIGURES = ('workload', 'clients', 'seconds', 'peak_mb', 'jax_seconds', 'jax_device')
_FLAGS = absl_flags.FlagValues()
absl_flags.DEFINE_enum('device', 'gpu', ['gpu', 'cpu'], 'What is checked.', flag_values=_FLAGS)
absl_flags.DEFINE_multi_enum('workload', _NAMES, _NAMES, 'Those checked.', flag_values=_FLAGS)
absl_flags.DEFINE_list('clients', ['1', '8', '32'], 'Measured together.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('rounds', 5, 'Measured rounds.', 1, flag_values=_FLAGS)
absl_flags.DEFINE_string('output', 'results/gpu/gpu', 'Where to write.', flag_values=_FLAGS)


def logical_devices(kind: str) -> list[str]:
  """Divides the first device of a kind in two; the parts' names. ValueError if there is no GPU."""
  import tensorflow as tf

  from tff_adaptive.devices import placement

  placement.check(kind)
  parts = [tf.config.LogicalDeviceConfiguration(memory_limit=_MEMORY_MB)] * 2
  if kind == 'cpu':  # The first is the host.
    parts = [tf.config.LogicalDeviceConfiguration()] * 3
  first = tf.config.list_physical_devices(kind.upper())[0]
  tf.config.set_logical_device_configuration(first, parts)
  return [f'/{kind.upper()}:{i}' for i in range(len(parts))][-2:]


def rounds(
  workload: Any, devices: Sequence[str], together: int, options: Sequence[str] = ()
) -> Callable[[], list[Any]]:
  """FedAvg's rounds of a workload's cohort in the graph engine: a call gives the next weights."""
  import tensorflow_federated as tff

  from tff_adaptive import engine
  from tff_adaptive.client import client_arrays

  context = engine.GraphContext(device_names=devices, clients_per_step=together)
  process = workloads.build_process(workload, options)
  examples = [workloads.synthetic_client(workload, i) for i in range(workload.cohort)]
  cohort = [client_arrays(e['x'], e['y'], i) for i, e in enumerate(examples)]
  state: list[Any] = []

  def following() -> list[Any]:
    with tff.framework.get_context_stack().install(context):
      before = state[0] if state else process.initialize()
      state[:] = [process.next(before, cohort).state]
    return list(state[0].global_model_weights.trainable)

  return following


def distance(actual: Sequence[Any], expected: Sequence[Any], start: Sequence[Any]) -> float:
  """How far weights are from those expected, as a part of the update that these had."""

  def flat(weights: Sequence[Any]) -> np.ndarray:
    return np.concatenate([np.ravel(w) for w in weights])

  a = flat(actual)
  b = flat(expected)
  c = flat(start)
  return float(np.linalg.norm(a - b) / np.linalg.norm(b - c))


def compare(name: str, devices: Sequence[str]) -> list[dict[str, Any]]:
  """One round of a workload in each variant beside the CPU's: a row for each variant."""
  import tensorflow as tf

  sizes: dict[str, Any] = dict(cohort=4, examples=12, batch_size=4, epochs=1)
  workload = dataclasses.replace(workloads.WORKLOADS[name], **sizes)
  start = workloads.build_model(workload).initial_weights[0]
  wanted = rounds(workload, ['/CPU:0'], 1)()
  rows: list[dict[str, Any]] = []
  for variant, rounding in ROUNDING.items():
    if variant == 'xla' and name in _DRAWN_OTHERWISE:
      continue
    bound = _ROOTS * math.sqrt(rounding)
    row: dict[str, Any] = {'workload': name, 'variant': variant, 'bound': bound}
    tf.config.experimental.enable_tensor_float_32_execution(variant == 'tf32')
    together = {'single': 1, 'two devices': 2}.get(variant, 4)
    try:
      at = devices[:1]
      if variant == 'two devices':
        at = devices
      weights = rounds(workload, at, together, [variant])()
      row['difference'] = distance(weights, wanted, start)
    except Exception as error:  # Of whatever kind a driver or a kernel raises.
      row['error'] = f'{type(error).__name__}: {" ".join(str(error).split()):.300}'
    rows.append({**row, 'is_within': row.get('difference', math.nan) <= bound})
  return rows


def measure(name: str, device: str, clients: int, times: int) -> dict[str, Any]:
  """Seconds and the device's most memory of a round in which so many clients train together."""
  import tensorflow as tf

  workload = dataclasses.replace(workloads.WORKLOADS[name], cohort=clients, epochs=1)
  tf.config.experimental.enable_tensor_float_32_execution(True)  # As TensorFlow has it.
  if 'GPU' in device:
    tf.config.experimental.reset_memory_stats(device[1:])
  run_rounds = rounds(workload, [device], clients)
  run_rounds()  # It is traced first.
  row: dict[str, Any] = {'workload': name, 'clients': clients}
  row['seconds'] = statistics.median(timeit.repeat(run_rounds, number=1, repeat=times))
  if 'GPU' in device:  # Of CPUs TensorFlow does not count it.
    row['peak_mb'] = tf.config.experimental.get_memory_info(device[1:])['peak'] / 2**20
  if name == 'W4' and importlib.util.find_spec('jax') is not None:
    row['jax_device'], other = vmapped(workload)
    other()
    row['jax_seconds'] = statistics.median(timeit.repeat(other, number=1, repeat=times))
  return row


def vmapped(workload: workloads.Workload) -> tuple[str, Callable[[], list[Any]]]:
  """The same rounds of the perceptron W4 as JAX's `vmap` of the clients; its device, and the next.

  Batches are in order, so only clients with one batch give the numbers of `rounds`.
  """
  import jax

  examples = [workloads.synthetic_client(workload, i) for i in range(workload.cohort)]
  shape = (workload.cohort, -1, workload.batch_size)
  x = np.stack([e['x'] for e in examples])
  y = np.stack([e['y'] for e in examples])
  x, y = jax.device_put((x.reshape(*shape, x.shape[-1]), y.reshape(shape)))

  def loss(weights: Any, batch: Any) -> Any:
    h = batch[0]
    for kernel, bias in zip(weights[::2], weights[1::2]):
      if kernel is not weights[0]:
        h = jax.nn.relu(h)
      h = h @ kernel + bias
    log_p = jax.nn.log_softmax(h)
    return -jax.numpy.take_along_axis(log_p, batch[1][:, None], 1).mean()

  def train(weights: Any, batches: Any) -> Any:
    def step(weights: Any, batch: Any) -> Any:
      gradients = jax.grad(loss)(weights, batch)
      return [w - workload.rate * g for w, g in zip(weights, gradients)], None

    return jax.lax.scan(step, weights, batches)[0]

  @jax.jit
  def run_round(weights: Any) -> Any:
    return [w.mean(0) for w in jax.vmap(train, (None, 0))(weights, (x, y))]

  state = [jax.device_put(list(workloads.build_model(workload).initial_weights[0]))]

  def following() -> list[Any]:
    state[0] = run_round(state[0])
    return [np.asarray(w) for w in state[0]]

  return str(jax.devices()[0].platform), following


def table(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> str:
  """Some columns of rows in Markdown."""

  def text(cell: Any) -> str:
    if isinstance(cell, float):
      return f'{cell:.3g}'
    return str(cell)

  texts = []
  for row in rows:
    texts.append([text(row.get(column, '')) for column in columns])
  return report.Table([column.replace('_', ' ') for column in columns], texts).markdown()


@command.entry('gpu_check.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns its exit code."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  counts = [int(count) for count in _FLAGS.clients]
  os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')  # JAX leaves TensorFlow memory.
  devices = logical_devices(_FLAGS.device)
  command.check_output('output', _FLAGS.output)
  import tensorflow as tf

  physical = tf.config.list_physical_devices(_FLAGS.device.upper())[0]
  details = tf.config.experimental.get_device_details(physical)
  here = {**machine.describe(), 'tensorflow': tf.__version__, **details}
  results: list[dict[str, Any]] = []
  figures: list[dict[str, Any]] = []
  for name in _FLAGS.workload:
    command.say(f'{name}: {workloads.WORKLOADS[name].description} ...')
    results += compare(name, devices)
    if name in _MEASURED:
      figures += [measure(name, devices[0], count, _FLAGS.rounds) for count in counts]
    text = (
      f'# {details.get("device_name", _FLAGS.device)} beside the CPU\n\nBy `make gpu-check`,'
      f' TensorFlow {tf.__version__}, {here["date"]}. A difference is a share of the 2-norm of the'
      f" CPU's update.\n\n{table(results, _RESULT)}\n{table(figures, _FIGURES)}"
    )
    content = {'machine': here, 'results': results, 'figures': figures}
    atomic_files.write_json(f'{_FLAGS.output}.json', content)
    atomic_files.write_text(f'{_FLAGS.output}.md', text)
  command.show(text)
  # TensorFlow may place on the CPU what it was to place on a GPU.
  is_there = all(row.get('peak_mb', math.inf) >= 1 for row in figures)
  if is_there and all(r['is_within'] for r in results):
    return command.DONE
  return command.FAILED


if __name__ == '__main__':
  sys.exit(main())
