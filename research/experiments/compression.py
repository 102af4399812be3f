"""Accuracy by the bytes that clients send: five algorithms and eight ways to compress.

usage: python -m research.experiments.compression --data_dir=DIR [--flag=value ...]

Three stages, each a share of the rows of RESULTS.csv; a row is written when it is known, and the
same command goes on:
- 'bytes': each algorithm with each compression, --rounds rounds. The client rate of each pair is
  the best of --rates with a seed that does not count. Noted are the last accuracy, the accuracy
  when clients have sent a tenth of what FedAvg sends without compression, and the megabytes.
- 'clock': virtual seconds to --target with uplinks of 1, 10 and 100 Mbit/s; the server waits for
  10 clients, or is buffered and takes a step after 2.
- 'text': DiLoCo on shakespeare_transformer with the settings of results/diloco, and SparseLoCo, in
  which error feedback with decay (top-k, 2 bits) takes the place of the server's momentum.
Writes RESULTS.csv, RESULTS.md and RESULTS.png.

  python -m research.experiments.compression --data_dir=DIR
  python -m research.experiments.compression --smoke --results=/tmp/compression
"""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags as absl_flags

from scripts.cli import command

from . import compression_tables, frame

# Title -> the task, its options, those of local training, files: one is needed.
PROBLEMS: Mapping[str, Any] = {
  'EMNIST digits by writer': (
    'emnist_cr',
    {'only_digits': True, 'model': '2nn'},
    {'batch_size': 20},
    ('emnist_all.sqlite',),
  ),
  'EMNIST letters': (
    'emnist_letters',
    {},
    {'batch_size': 45, 'epochs': 5},
    ('emnist_letters.npz',),
  ),
}
_SMOKE: Mapping[str, Any] = {'scikit-learn digits': ('digits', {}, {'batch_size': 10}, ())}
_TEXT = 'Shakespeare, transformer'
METHODS = ('FedAvg', 'FedYogi', 'SCAFFOLD', 'FedDyn', 'AdaBest')
COMPRESSIONS = (
  'none',
  'top 5 %',
  'top 5 %, EF14',
  'top 5 %, EF21',
  'rand 5 %, EF14',
  'sign, EF14',
  '8 bits',
  'top 5 % + 4 bits, EF14',
)
_OF_TEXT = ('none', 'SparseLoCo, 3 %', 'SparseLoCo, 1 %')
_RATES_OF_TEXT = (3e-3, 1e-3, 3e-4)
_WORKERS = 4
UPLINKS = (1, 10, 100)  # Mbit/s.
SERVERS = ('synchronous', 'buffered')
_KEYS = ['stage', 'problem', 'method', 'compression', 'server', 'uplink', 'rate', 'seed']
_STAGES = ('tuning', 'bytes', 'clock', 'text')
_COHORT = 10

_FLAGS = frame.flags('compression')
for _name, _values in (
  ('problems', list(PROBLEMS)),
  ('methods', list(METHODS)),
  ('compressions', list(COMPRESSIONS)),
  ('stages', ['bytes', 'clock', 'text']),
  ('rates', ['0.3', '0.1', '0.03']),
):
  absl_flags.DEFINE_list(_name, _values, 'Which.', flag_values=_FLAGS)
absl_flags.DEFINE_integer('rounds', 150, 'Of a run.', lower_bound=2, flag_values=_FLAGS)
absl_flags.DEFINE_float('target', 0.85, "Accuracy of stage 'clock'.", flag_values=_FLAGS)
absl_flags.DEFINE_boolean('smoke', False, 'Seconds on small data.', flag_values=_FLAGS)


def compressors(name: str) -> list[Any]:
  """Returns the parts of a compression by its title."""
  from tff_adaptive import corrections

  top = corrections.TopK
  parts: dict[str, list[Any]] = {
    'none': [],
    'top 5 %': [top(share=0.05)],
    'top 5 %, EF14': [top(share=0.05, feedback='ef14')],
    'top 5 %, EF21': [top(share=0.05, feedback='ef21')],
    'rand 5 %, EF14': [corrections.RandK(share=0.05, feedback='ef14')],
    'sign, EF14': [corrections.Sign(feedback='ef14')],
    '8 bits': [corrections.Quantize(bits=8)],
    'top 5 % + 4 bits, EF14': [
      top(share=0.05, feedback='ef14'),
      corrections.Quantize(bits=4, random=False),
    ],
    **{
      f'SparseLoCo, {percent} %': [
        top(share=percent / 100, of='tensor', feedback='ef14', decay=0.95),
        corrections.Quantize(bits=2, random=False),
      ]
      for percent in (3, 1)
    },
  }
  return parts[name]


class Bench:
  """A problem with its data, on which algorithms train."""

  def __init__(self, problem: str, seed: int):
    import tff_adaptive_tasks as tasks
    from tff_adaptive import models

    if problem == _TEXT:
      local = {'batch_size': 8, 'local_steps': 50, 'continue_batches': True}
      described: Any = ('shakespeare_transformer', {'workers': _WORKERS}, local, ())
    else:
      described = {**PROBLEMS, **_SMOKE}[problem]
    name, options, self._local, _ = described
    self._seed = seed
    self._task = tasks.load(name, data_dir=_FLAGS.data_dir, seed=seed, **options)
    self._model = self._task.build_model(seed)
    evaluate = models.build_evaluation(self._model)
    self._evaluate = lambda weights: evaluate(weights, self._task.validation)

  def run(self, method: str, compression: str, rate: float, **how: Any) -> dict[str, float]:
    """Trains; returns accuracies and what was sent.

    Args:
      method, compression: Titles.
      rate: The client rate.
      **how: `uplink` in Mbit/s and `is_buffered` for a run that ends at the target.
    """
    from tff_adaptive import algorithms, corrections, costs, population, runs, training

    correction, server, options = self._algorithm(method, compression, rate)
    parts = compressors(compression)
    if method == 'DiLoCo':
      parts = [corrections.Clip(1.0), *parts]
    uplink = how.get('uplink')
    is_buffered = how.get('is_buffered', False)
    size = min(_COHORT, len(self._task.train.client_ids) // 2)
    rounds = _FLAGS.rounds
    rounds_per_evaluation = max(1, rounds // 50)
    if method == 'DiLoCo':
      size = _WORKERS
      rounds_per_evaluation = max(1, rounds // 4)
    asynchrony = None
    if is_buffered:
      size = max(1, size // 5)
      asynchrony = _asynchrony(5 * size)
    counts = algorithms.counts(correction, self._model, more_parts=parts)
    steps = rounds
    if is_buffered:
      steps = 5 * rounds
    target = None
    if uplink:
      target = _FLAGS.target
    clients = None
    if uplink or is_buffered:
      speed = population.Speed(uplink=(uplink or 10) / 8, downlink=100 / 8, speed_sigma=1.0)
      clients = population.Population(speed=speed)
    config = training.TrainingConfig(
      rounds=steps,
      clients_per_round=size,
      seed=self._seed,
      rounds_per_evaluation=rounds_per_evaluation,
      rounds_per_checkpoint=rounds,
      population=clients,
      asynchrony=asynchrony,
      cost_model=costs.CostModel(
        counts,
        self._model.num_parameters,
        self._local['batch_size'],
        self._local.get('epochs', 1),
        fixed_steps=self._local.get('local_steps'),
      ),
      target=target,
      stop_at_target=target is not None,
    )
    process = algorithms.build_drift_corrected(
      self._model,
      correction,
      server,
      client_learning_rate=rate,
      more_parts=parts,
      asynchrony=asynchrony,
      **options,
    )
    rows: list[Mapping[str, Any]] = []

    class Rows(training.Callback):
      def round_end(self, row: Mapping[str, Any]) -> None:
        rows.append(dict(row))

    try:
      result = training.train(
        process, self._task.train, self._evaluate, config, callbacks=[Rows()], show_progress=False
      )
    except runs.NonFiniteWeightsError:
      return dict.fromkeys(('accuracy', 'accuracy_at_tenth', 'loss'), np.nan)
    dense = 4 * self._model.num_parameters * size * rounds / 1e6
    to_target = result.summary.get('to_target', {})
    reached = [v for k, v in to_target.items() if k != 'target' and v]
    return {
      **curve(rows, dense / 10),
      'megabytes_up': sum(row['megabytes_up'] for row in rows if 'megabytes_up' in row),
      'seconds': min((one['virtual_seconds'] for one in reached), default=np.inf),
    }

  def _algorithm(
    self, method: str, compression: str, rate: float
  ) -> tuple[Any, Any, dict[str, Any]]:
    """Returns the correction, the server optimizer and how clients train."""
    from tff_adaptive import client, corrections, optimizers

    clients = len(self._task.train.client_ids)
    arguments = {
      'SCAFFOLD': lambda: corrections.Scaffold(clients),
      'FedDyn': lambda: corrections.FedDyn(0.02, clients),
      'AdaBest': lambda: corrections.AdaBest(0.02, 0.8),
    }
    server = optimizers.build_sgdm(1.0)
    how: dict[str, Any] = {'batching': client.Batching(**self._local), 'seed': self._seed}
    if method == 'FedYogi':
      server = optimizers.build_yogi(0.03, tau=1e-3)
    if method == 'DiLoCo':
      if not compression.startswith('SparseLoCo'):
        server = optimizers.build_nesterov(0.7)
      how['optimizer'] = optimizers.build_adamw(rate, beta2=0.95, decay=0.1)
      how['optimizer_state'] = 'keep'
    training = client.ClientTraining(**how)
    return arguments.get(method, corrections.Correction)(), server, {'training': training}


def _asynchrony(concurrency: int) -> Any:
  from tff_adaptive import asynchrony

  return asynchrony.Buffered(concurrency)


def curve(rows: Sequence[Mapping[str, Any]], budget: float) -> dict[str, float]:
  """Returns the last accuracy and loss, and the accuracy when `budget` megabytes were sent.

  Accuracies are those of the model for inference if there is one, else of the global model.
  """
  sent = 0.0
  columns = {'accuracy': np.nan, 'accuracy_at_tenth': np.nan, 'loss': np.nan}
  for row in rows:
    sent += row.get('megabytes_up', 0.0)
    if 'validation_accuracy' not in row:
      continue
    accuracy = max(row['validation_accuracy'], row.get('inference_accuracy', 0.0))
    columns['accuracy'] = accuracy
    columns['loss'] = row['validation_loss']
    if sent <= budget * (1 + 1e-9):
      columns['accuracy_at_tenth'] = accuracy
  return columns


def asked(known: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
  """Yields the keys of the runs of the study in order; rates that were chosen come from `known`."""
  problems = list(_SMOKE) if _FLAGS.smoke else _FLAGS.problems
  pairs = list(itertools.product(problems, _FLAGS.methods, _FLAGS.compressions))
  seeds = [int(seed) for seed in _FLAGS.seeds]
  tuning_seed = int(_FLAGS.tuning_seed)
  rates = [float(rate) for rate in _FLAGS.rates]
  if {'bytes', 'clock'} & {*_FLAGS.stages}:
    for (problem, method, compression), rate in itertools.product(pairs, rates):
      yield _key('tuning', problem, method, compression, rate, tuning_seed)
  if 'bytes' in _FLAGS.stages:
    for (problem, method, compression), seed in itertools.product(pairs, seeds):
      rate = chosen(known, problem, method, compression)
      yield _key('bytes', problem, method, compression, rate, seed)
  if 'clock' in _FLAGS.stages:
    clocks = itertools.product(SERVERS, UPLINKS, seeds)
    for (problem, method, compression), (server, uplink, seed) in itertools.product(pairs, clocks):
      if method == 'FedAvg':
        rate = chosen(known, problem, method, compression)
        yield _key('clock', problem, method, compression, rate, seed, server, uplink)
  if 'text' in _FLAGS.stages and not _FLAGS.smoke:
    for compression, rate in itertools.product(_OF_TEXT, _RATES_OF_TEXT):
      yield _key('tuning', _TEXT, 'DiLoCo', compression, rate, tuning_seed)
    for compression, seed in itertools.product(_OF_TEXT, seeds):
      rate = chosen(known, _TEXT, 'DiLoCo', compression)
      yield _key('text', _TEXT, 'DiLoCo', compression, rate, seed)


def _key(
  stage: str,
  problem: str,
  method: str,
  compression: str,
  rate: float,
  seed: int,
  server: str = 'synchronous',
  uplink: int = 0,
) -> dict[str, Any]:
  values = (stage, problem, method, compression, server, uplink, rate, seed)
  return dict(zip(_KEYS, values))


def chosen(
  known: Sequence[Mapping[str, Any]], problem: str, method: str, compression: str
) -> float:
  """Returns the client rate whose run that does not count was the most accurate."""
  wanted = {'stage': 'tuning', 'problem': problem, 'method': method, 'compression': compression}
  tried = [row for row in known if wanted.items() <= row.items()]
  best = max(tried, key=lambda row: float(np.nan_to_num(row['accuracy'], nan=-1.0)))
  return float(best['rate'])


def train(path: str) -> None:
  """Trains what the CSV file lacks, and writes row after row."""
  known = frame.read_rows(path)
  benches: dict[Any, Bench] = {}
  for key in asked(known):
    if any(key.items() <= row.items() for row in known):
      continue
    place = key['problem'], key['seed']
    if place not in benches:
      benches = {place: Bench(*place)}  # The data of one at a time.
    how: dict[str, Any] = {}
    if key['stage'] == 'clock':
      how = {'uplink': key['uplink'], 'is_buffered': key['server'] == 'buffered'}
    row = key | benches[place].run(key['method'], key['compression'], key['rate'], **how)
    known.append(row)
    command.say(' '.join(f'{value}' for value in row.values()))
    frame.write_rows(path, known)


def report(table: pd.DataFrame) -> list[str]:
  """Returns the parts of RESULTS.md: accuracies by compression, and virtual seconds."""
  flags = f'experiments.compression --rounds={_FLAGS.rounds} --target={_FLAGS.target:g}'
  if _FLAGS.smoke:
    flags += ' --smoke'
  what = f'seeds {", ".join(_FLAGS.seeds)}, rates chosen with seed {_FLAGS.tuning_seed}'
  tables = compression_tables.parts(table, _FLAGS.target)
  rates = table[table['stage'] == 'tuning']['rate'].unique()
  introduction = _INTRODUCTION
  if (table['problem'] == _TEXT).all():
    introduction = _INTRODUCTION_OF_TEXT
  introduction = frame.paragraph(introduction.format(', '.join(f'{rate:g}' for rate in rates)))
  return [introduction, *tables, frame.made_by(flags, what)]


_INTRODUCTION = """
  Means and standard deviations over the seeds; (k/n) where n - k of n runs diverged. The client
  rate of each algorithm with each compression is one of {}, the best by the last accuracy of a run
  with another seed. 10 clients train in a round, with uniform weights. FedDyn's and AdaBest's mu
  0.02, AdaBest's beta 0.8, Yogi's rate 0.03. Algorithms count by the better of the global model and
  the mean of the client models. Stage 'clock': log-normal seconds of a local step with sigma 1,
  downlink 100 Mbit/s; a buffered server takes a step after a fifth of the clients that train.
"""
_INTRODUCTION_OF_TEXT = """
  Means and standard deviations over the seeds. The rate of the clients' AdamW is one of {}, the
  best by the accuracy of a run with another seed. Four workers take 50 steps of 8 sequences in a
  round, clip gradients at 1 and keep their optimizer's state. DiLoCo ('none') has Nesterov momentum
  at the server, rate 0.7; SparseLoCo has the mean of the updates, each of which is the given share
  of each tensor in 2 bits, with error feedback that decays by 0.95.
"""


@command.entry('compression.py')
def main(arguments: Sequence[str]) -> int:
  """Runs the command; returns the exit code, 2 for bad input."""
  if not command.read(_FLAGS, __doc__, arguments):
    return command.DONE
  files: dict[str, Any] = {}
  if _FLAGS.smoke:
    _shorten()
  else:
    files = {name: PROBLEMS[name][-1] for name in _FLAGS.problems if name in PROBLEMS}
  if 'text' in _FLAGS.stages and not _FLAGS.smoke:
    files[_TEXT] = ('shakespeare.sqlite',)
  known = {
    'problems': PROBLEMS,
    'methods': METHODS,
    'compressions': COMPRESSIONS,
    'stages': _STAGES,
  }
  frame.check(_FLAGS, known, files)
  table = frame.trained(_FLAGS, train)
  if not (table['stage'] != 'tuning').any():
    raise ValueError(f'{_FLAGS.results}.csv has no run that counts yet: the same command goes on.')
  if table['stage'].isin(['bytes', 'text']).any():
    compression_tables.draw(f'{_FLAGS.results}.png', table)
  frame.write(_FLAGS.results, report(table))
  return command.DONE


def _shorten() -> None:
  """Leaves of the study what takes seconds."""
  shorter = {
    'rounds': 2,
    'methods': ['FedAvg'],
    'compressions': ['none', 'top 5 %, EF14'],
    'seeds': ['0'],
    'rates': ['0.1'],
    'target': 0.05,
    'stages': ['bytes', 'clock'],
  }
  frame.shorten(_FLAGS, shorter)


if __name__ == '__main__':
  sys.exit(main())
