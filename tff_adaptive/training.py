"""The round loop: sample, train, evaluate, checkpoint, resume."""

import contextlib
import dataclasses
import json
import os
import resource
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Optional

import numpy as np

from tff_adaptive import (
  client_states,
  cohorts,
  event_log,
  files,
  interrupts,
  metrics_log,
  run_summary,
)
from tff_adaptive import progress as progress_lib
from tff_adaptive.reports import figures
from tff_adaptive.training_config import TrainingConfig

__all__ = ['NonFiniteWeightsError', 'ResumeError', 'TrainingConfig', 'TrainingResult', 'train']

EvaluateFn = Callable[[Any], Mapping[str, float]]


class ResumeError(ValueError):
  """A run that cannot be resumed as asked."""


class NonFiniteWeightsError(ArithmeticError):
  """The global model has weights that are not finite; no checkpoint holds them."""


@dataclasses.dataclass(frozen=True)
class TrainingResult:
  """What `train` leaves behind, beside the files.

  Attributes:
    state: The server state after `round_number` rounds.
    round_number: Rounds finished.
    is_complete: Whether these are all rounds; False after Ctrl-C or SIGTERM.
    summary: The content of summary.json.
  """

  state: Any
  round_number: int
  is_complete: bool
  summary: Mapping[str, Any]


def train(
  process: Any,
  clients: Any,
  evaluate_fn: EvaluateFn,
  config: TrainingConfig,
  *,
  output_dir: Optional[str] = None,
  run_id: str = '',
  on_open: Optional[Callable[[], None]] = None,
  stop: Optional[interrupts.StopGuard] = None,
  test_fn: Optional[EvaluateFn] = None,
  workers: Any = None,
  show_progress: bool = True,
) -> TrainingResult:
  """Trains to the end, resuming from the last checkpoint in `output_dir` if there is one.

  Two runs with the same arguments give the same rows but for the columns `seconds_*`, and
  so does a run that was interrupted, at any instant, and resumed.

  Args:
    process: A `tff.learning.templates.LearningProcess`, or a stateful process:
      `next(server_state, client_states, cohort) -> (server_state, client_states, metrics)`
      with `initial_client_state`, one client's state before its first round. Server states
      have `global_model_weights`, stateful ones `inference_weights` too.
    clients: Has `client_ids` (sorted list of str) and `load(client_id)`, which gives
      `OrderedDict(x=array[n, ...], y=array[n, ...])`.
    evaluate_fn: Trainable weights (a sequence of tensors) -> metric name -> float.
    config: How to train.
    output_dir: The run's folder: metrics.csv, tensorboard/, checkpoints/, curves.png and
      summary.json go there. None writes nothing.
    run_id: Kept in the checkpoint; a checkpoint with another one is refused.
    on_open: Called once the checkpoint file is held and the run can go on: what is said of the run
      elsewhere may be changed then.
    stop: Whether to end early; by default SIGINT and SIGTERM say so.
    test_fn: Like `evaluate_fn`, on data that nothing is chosen by; used once, at the end, for
      `test` in the summary.
    workers: The `execution.RemoteContext` that runs the rounds, if one does: it is told the
      round, and the user what it tells.
    show_progress: Whether to write progress to the standard error.

  Returns:
    A `TrainingResult`.

  Raises:
    NonFiniteWeightsError: If the model diverged; the last checkpoint is kept.
    client_states.StateError: If the checkpoint is damaged, in use or of another run.
    ResumeError: If the run is past `config.rounds`, or its rows or its checkpoint were lost.
    ValueError: If there are fewer clients than `config.clients_per_round`.


    ResumeError: If the run is past `config.rounds` or rows of it were lost.
    ValueError: If there are fewer clients than `config.clients_per_round`, or the process was built
      without `batching`.
  """
  _check_takes_arrays(process)
  with contextlib.ExitStack() as stack:
    if stop is None:
      stop = stack.enter_context(interrupts.StopGuard())
    run = _Run(process, clients, evaluate_fn, config, output_dir, run_id, stack)
    run.workers = workers
    if on_open is not None:
      on_open()
    if show_progress:
      run.show(stop)
    try:
      return run.to_the_end(stop, test_fn)
    finally:
      run.hide()


class _Run:
  """The state of one call of `train`."""

  def __init__(self, process, clients, evaluate_fn, config, output_dir, run_id, stack):
    self._process, self._evaluate_fn, self._config = process, evaluate_fn, config
    self._output_dir, self._run_id = output_dir, run_id
    self.workers: Any = None
    self._progress = None
    self._warned = False
    self._saved = -1
    self._is_stateful = hasattr(process, 'initial_client_state')
    initial = process.initial_client_state if self._is_stateful else ()
    self._state = process.initialize()
    self._loader = cohorts.CohortLoader(
      clients,
      seed=config.seed,
      cohort_size=config.clients_per_round,
      last_round=config.rounds,
      max_examples=config.max_examples_per_client,
    )
    stack.callback(self._loader.close)
    if output_dir is None:
      self._store = client_states.ClientStateStore(None, initial)
      self._log, self._events = metrics_log.MetricsLog(None), None
      self.round = 0
      return
    path = config.checkpoint_path(output_dir)
    for folder in (output_dir, os.path.dirname(path)):
      os.makedirs(folder, exist_ok=True)
    cache_bytes = config.client_state_cache_bytes if config.client_state_store == 'disk' else None
    self._store = client_states.ClientStateStore(path, initial, cache_bytes=cache_bytes)
    stack.callback(self._store.close)
    checkpoint = self._store.restore(self._state)
    if checkpoint is not None and checkpoint.metadata.get('run_id', '') != run_id:
      raise client_states.StateError(f'{path} holds the checkpoint of another run.')
    self.round = 0
    if checkpoint is not None:
      self._state, self.round = checkpoint.server_state, checkpoint.round_number
      self._saved = self.round
    elif done := _rounds_in_summary(output_dir):
      raise ResumeError(
        f'{output_dir} has the results of {done} rounds, but their checkpoint, {path}, is gone:'
        ' bring it back, or start in a new folder.'
      )
    if self.round > config.rounds:
      raise ResumeError(
        f'The run in {output_dir} has done {self.round} rounds already, rounds is {config.rounds}:'
        f' give at least {self.round}, or start in a new folder.'
      )
    try:
      self._log = metrics_log.MetricsLog(
        os.path.join(output_dir, 'metrics.csv'),
        last_round=None if checkpoint is None else self.round,
      )
    except ValueError as error:
      raise ResumeError(str(error)) from None
    stack.callback(self._log.close)
    # Also a run that died before its first checkpoint left events behind.
    purge_step = 0 if checkpoint is None else self.round + 1
    self._events = event_log.EventLog(
      os.path.join(output_dir, 'tensorboard'), purge_step=purge_step
    )
    stack.callback(self._events.close)

  def show(self, stop: interrupts.StopGuard) -> None:
    self._progress = progress_lib.Progress(
      self._config.rounds, start=self.round, metric=self._config.metric
    )
    stop.announce = self._progress.message
    stop.on_abort.append(self._progress.close)  # A terminal's cursor is shown again.
    if self.round:
      self._progress.message(f'Resumed after round {self.round}.')

  def hide(self) -> None:
    if self._progress is not None:
      self._progress.close()

  def to_the_end(self, stop: interrupts.StopGuard, test_fn: Optional[EvaluateFn]) -> TrainingResult:
    config = self._config
    if not self._log.columns:
      self._record({'round': 0, **self._evaluation(self._state)})
    while self.round < config.rounds and not stop.requested:
      number = self.round + 1
      try:
        new_state, row, put = self._step(number)
        self._check(new_state, row)
        if number % config.rounds_per_evaluation == 0 or number == config.rounds:
          row.update(self._evaluation(new_state))
      except (client_states.StateError, NonFiniteWeightsError):
        raise  # There is no saving, or nothing worth it.
      except Exception:
        self._save()  # Of the last whole round.
        if stop.requested:  # A signal may have ended TFF's worker too.
          break
        raise
      put()
      self._state, self.round = new_state, number
      self._record(row)
      if self.round % config.rounds_per_checkpoint == 0:
        self._save()
    self._save()
    rows = self._log.rows()
    is_complete = self.round >= config.rounds
    summary = run_summary.summarize(rows, is_complete)
    # Of this process since it began: kilobytes, on Linux.
    summary['peak_memory_mb'] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if test_fn is not None and is_complete:
      summary['test'] = _evaluated('test', 'test_inference', test_fn, self._state)
    if self._output_dir is not None:
      files.write_json(os.path.join(self._output_dir, 'summary.json'), summary)
      figures.draw_run(os.path.join(self._output_dir, 'curves.png'), rows)
    return TrainingResult(self._state, self.round, is_complete, summary)

  def _step(self, round_number):
    began = time.perf_counter()
    cohort = self._loader.take(round_number)
    loaded = time.perf_counter()
    put, model = _nothing, self._config.cost_model
    if self.workers is not None:
      self.workers.announce(f'round {round_number}', self._say)
    if self._is_stateful:
      before = self._store.get(cohort.client_ids)
      state, after, metrics = self._process.next(self._state, before, cohort.data)
      after = list(after)

      def put():
        self._store.put(cohort.client_ids, after)
    else:
      output = self._process.next(self._state, cohort.data)
      state, metrics = output.state, output.metrics
    measured = metrics_log.flatten(metrics)
    if measured.get('non_finite_clients', 0) >= len(cohort.client_ids):
      # Sums over no client: a loss of 0 would look like a success.
      measured = {k: v for k, v in measured.items() if not k.startswith('train_')}
    row = {
      'round': round_number,
      'clients': len(cohort.client_ids),
      'examples': cohort.num_examples,
      **(model.round(cohort.client_examples).columns() if model else {}),
      **measured,
      'seconds_data': loaded - began,
      'seconds_round': time.perf_counter() - loaded,
    }
    return state, row, put

  def _check(self, state, row):
    loss, lost = row.get('train_loss', 0.0), row.get('non_finite_clients', 0)
    if (lost or not np.isfinite(loss)) and not self._warned:
      self._warned = True
      told = f' (training loss {loss})' if 'train_loss' in row else ''
      self._say(
        f'Some clients diverge: in round {row["round"]}, {lost:.0f} of {row["clients"]} updates'
        f' are not finite and left out{told}. A lower client rate, or gradient clipping, would'
        ' help. This is told once; the summary counts them.'
      )
    weights = _trainable(state.global_model_weights)
    if not all(np.isfinite(np.asarray(w)).all() for w in weights):
      kept = f'the checkpoint of round {self._saved}' if self._saved >= 0 else 'no checkpoint'
      raise NonFiniteWeightsError(
        f'The global model is no longer finite after round {row["round"]} (training loss'
        f' {loss}). Lower the server or the client learning rate, or raise tau; {kept} is kept.'
      )

  def _evaluation(self, state) -> dict[str, float]:
    began = time.perf_counter()
    result = _evaluated('validation', 'inference', self._evaluate_fn, state)
    result['seconds_evaluation'] = time.perf_counter() - began
    return result

  def _record(self, row):
    self._log.append(row)
    if self._events is not None:
      self._events.append(row)
    if self._progress is not None:
      self._progress.update(row)

  def _save(self):
    if self._output_dir is None or self._saved == self.round or self.round == 0:
      return
    self._log.sync()  # The checkpoint relies on the rows behind it.
    self._store.commit(self.round, self._state, {'run_id': self._run_id})
    self._saved = self.round

  def _say(self, line):
    if self._progress is not None:
      self._progress.message(line)
    else:
      warnings.warn(line, stacklevel=2)


def _rounds_in_summary(folder: str) -> int:
  """The rounds of the run that left its summary in a folder; 0 without one."""
  try:
    with open(os.path.join(folder, 'summary.json'), encoding='utf-8') as file:
      return int(json.load(file)['rounds'])
  except (OSError, ValueError, KeyError):
    return 0


def _check_takes_arrays(process: Any) -> None:
  """Raises ValueError for a process that takes datasets of batches, where its types tell."""
  signature = getattr(process.next, 'type_signature', None)
  if signature is None:
    return
  data_type = signature.parameter[len(signature.parameter) - 1]
  element = getattr(getattr(data_type, 'member', None), 'element', None)
  if element is not None and not hasattr(element, 'client'):
    raise ValueError(
      f'the process takes batched datasets (of {element}), the training loop gives whole arrays: '
      'build it with batching=tff_adaptive.Batching(20), say'
    )


def _nothing() -> None:
  """Stands for the storing of client states where there are none."""


def _evaluated(
  model_name: str, inference_name: str, evaluate_fn: EvaluateFn, state: Any
) -> dict[str, float]:
  """Metrics of the global model, and of the weights for inference where a state has them."""
  models = {model_name: state.global_model_weights}
  if hasattr(state, 'inference_weights'):
    models[inference_name] = state.inference_weights
  return {
    f'{name}_{metric}': float(value)
    for name, weights in models.items()
    for metric, value in evaluate_fn(_trainable(weights)).items()
  }


def _trainable(weights: Any) -> Any:
  """Returns the trainable weights of a `ModelWeights`, or `weights` if it is none."""
  return getattr(weights, 'trainable', weights)
