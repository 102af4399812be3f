"""The round loop, which samples clients, trains, evaluates, saves checkpoints and resumes runs."""

import contextlib
import dataclasses
import hashlib
import math
import os
import resource
import sys
import time
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive._utils import atomic_files, client_references, value_text
from tff_adaptive.asynchrony import older_models
from tff_adaptive.reports import figures
from tff_adaptive.runs import (
  config as config_file,
  ledger as ledger_lib,
  run_files,
  state_file,
  summary as summary_lib,
)
from tff_adaptive.runs.errors import NonFiniteWeightsError, saving
from tff_adaptive.training import (
  callbacks as callbacks_lib,
  client_evaluation as client_evaluation_lib,
  client_losses as client_losses_lib,
  cohorts,
  progress as progress_lib,
  protocols,
  replay,
  rounds,
  stopping,
  tensorboard_log,
)
from tff_adaptive.training.config import TrainingConfig

_NO_STATES: Mapping[str, Any] = types.MappingProxyType({})
_MOST_COUNTED = 100_000  # With more clients it would take long to add up their examples.


def train(
  process: protocols.Process,
  clients: protocols.ClientData,
  evaluate_fn: protocols.EvaluateFn,
  config: TrainingConfig,
  *,
  output_dir: str | None = None,
  run_id: str = '',
  callbacks: Sequence[callbacks_lib.Callback] = (),
  stop: protocols.Stop | None = None,
  test_fn: protocols.EvaluateFn | None = None,
  client_evaluation: client_evaluation_lib.ClientEvaluation | None = None,
  client_losses: client_losses_lib.ClientLosses | None = None,
  show_progress: bool = True,
  resume_from: run_files.ResumeFrom = 'latest',
  accept_lost_rows: bool = False,
  settings: Mapping[str, Any] | config_file.Record | None = None,
) -> protocols.TrainingResult:
  """Trains a run to the end; resumes it if `output_dir` has a checkpoint.

  Two runs with the same arguments write the same rows to metrics.csv, except for the columns
  `seconds_*`. So does a run that was interrupted at any time and resumed.

  Args:
    process: A `tff.learning.templates.LearningProcess`, or a process whose clients keep a state:
      `next(server_state, client_states, cohort) -> (server_state, client_states, metrics)`, with
      `initial_client_state`, the state of a client before its first round. A server state has
      `global_model_weights`, and may have `inference_weights`, which are evaluated too. A process
      with `has_client_models` and `client_model(server_state, client_state)`, which returns
      trainable weights, also has the models of the clients evaluated by `client_evaluation`.
    clients: An object with `client_ids` (sorted list of str), `num_examples(client_id)` and
      `load(client_id)`, which returns `OrderedDict(x=array[n, ...], y=array[n, ...])`.
    evaluate_fn: A function from trainable weights (arrays or tensors) to floats by metric name.
    config: The run's configuration.
    output_dir: The run's folder: config.json, metrics.csv, tensorboard/, checkpoints/, curves.png
      and summary.json go there. None writes nothing.
    run_id: An id that is stored in the checkpoint. A checkpoint with another id is refused.
    callbacks: The callbacks, whose methods are called in this order; see `Callback`.
    stop: An object by which another thread or a signal ends the run early, between rounds. With
      None, Ctrl-C raises KeyboardInterrupt after the last whole round has been saved.
    test_fn: Like `evaluate_fn`, on test data, for `test` in the summary of a complete run.
    client_evaluation: An object that evaluates the models on each client and adds columns to the
      rows. The clients' values are written to a file for each evaluation.
    client_losses: A function that evaluates the losses of clients, from `build_client_losses`, for
      a rule of `config.cohort` that needs them. It takes weights and an iterable of examples.
    show_progress: Whether to write progress to standard error.
    resume_from: The checkpoint to resume from, 'latest' or, if that is damaged, 'previous'. The
      rounds after the checkpoint are dropped.
    accept_lost_rows: Whether to resume a run whose metrics.csv lacks rounds before the checkpoint,
      because it was deleted for example. The model is that of the whole run; the rows are lost.
    settings: Settings that config.json records in addition to `config`: name -> number, string,
      bool or list, such as algorithm='fed_yogi' or client_learning_rate=0.03. Reports name and
      group runs by them; a run is resumed only with the same ones. A `runs.config.Record` replaces
      `config` and these settings in config.json.

  Raises:
    NonFiniteWeightsError: If the model diverged. The last checkpoint is kept.
    ResumeError: If the run in `output_dir` has done more than `config.rounds` rounds, has other
      settings, or has lost its rows or its checkpoint.
    SaveError: If a file of the run can no longer be written. Earlier saved rounds are kept.
    StateError: If the checkpoint is damaged, in use or of another run.
    ValueError: If there are too few clients for `config` or an id occurs twice, the population does
      not fit them, a setting cannot be recorded, the data of a diverged client are not finite, the
      process has no `batching` or does not fit `config`, a population or a rule for cohorts has a
      `PrivacyCallback`, or that rule needs what is not given, or chooses what it cannot.
    TypeError: If `clients` lacks `client_ids` or one of the methods.
  """
  rounds.check_takes_arrays(process, config)
  is_private = any(isinstance(c, callbacks_lib.PrivacyCallback) for c in callbacks)
  for name, whose in (('population', 'a population'), ('cohort', 'a rule')):
    if is_private and getattr(config, name) is not None:
      raise ValueError(
        'PrivacyCallback reports an epsilon that assumes cohorts drawn from all clients, which'
        f' those of {whose} are not: leave out the callback, or give {name}=None.'
      )
  rounds.check_client_data(clients)
  if config.trace_client is not None:
    replay.clients_of(process)  # Refuses what cannot be followed, before anything is written.
  loader = cohorts.CohortLoader(clients, config, client_losses)
  record = settings
  if not isinstance(record, config_file.Record):
    record = config.record(record)
  data = {}
  if output_dir is not None:
    data = _described(clients)
    # What can be refused is refused before anything is written. `_write_config` checks again once
    # the state file is locked: another process may have resumed the run in between.
    check_same(output_dir, record, clients, run_id)
  with contextlib.ExitStack() as stack:
    stack.callback(loader.close)
    stop = stop or protocols.Stop()
    client_state = ()
    if isinstance(process, protocols.StatefulProcess):
      client_state = process.initial_client_state
    workers = client_references.workers()
    num_older_models = cohorts.most_older_models(loader.simulation, config.rounds)
    files = run_files.RunFiles(
      config,
      output_dir,
      run_id,
      process.initialize(),
      client_state,
      resume_from,
      accept_lost_rows=accept_lost_rows,
    )
    stack.callback(files.close)
    if num_older_models:
      files.state = older_models.in_slots(files.state, num_older_models)
    loader.restore(files.metadata, files.round_number)
    if not callbacks_lib.let_load_ahead(callbacks):
      loader.loads_ahead = False
    # Workers have a copy of the clients' data, which no callback can change.
    if workers is not None and callbacks_lib.let_load_ahead(callbacks):
      loader.by_reference = workers.accepts(loader.source)
    if output_dir is not None:
      _write_config(output_dir, record, run_id, data, files.state.global_model_weights)
    audience: list[callbacks_lib.Callback] = list(callbacks)
    say: Any = warnings.warn
    if output_dir is not None:
      audience.append(tensorboard_log.EventLog(os.path.join(output_dir, 'tensorboard')))
    if show_progress:
      progress = progress_lib.Progress(metric=config.metric)
      say = stop.announce = progress.message
      stop.on_abort.append(progress.close)  # It shows the terminal's cursor again.
      audience.append(progress)
    trainer = rounds.Trainer(process, loader, files.store, config, say)
    run = _Run(process, trainer, loader, files, evaluate_fn, config, audience, client_evaluation)
    run.begin(stack, say)
    if num_older_models and config.cost_model is not None and show_progress:
      megabytes = num_older_models * config.cost_model.bytes_of_client[0] / 1e6
      say(
        f'At most {num_older_models} older models, {megabytes:,.1f} MB, are in memory and in each'
        ' checkpoint.'
      )
    if loader.simulation is not None and loader.simulation.note is not None:
      say(loader.simulation.note)
    result = run.to_the_end(stop, test_fn)
  return result


@dataclasses.dataclass
class _Run:
  """The state of one call of `train`."""

  _process: protocols.Process
  _trainer: rounds.Trainer
  _loader: cohorts.CohortLoader
  _files: run_files.RunFiles
  _evaluate_fn: protocols.EvaluateFn
  _config: TrainingConfig
  _callbacks: Sequence[callbacks_lib.Callback]
  _client_evaluation: client_evaluation_lib.ClientEvaluation | None

  def __post_init__(self) -> None:
    rows = self._files.log.rows()
    self._stopping = stopping.Stopping(self._config, rows)
    self._ledger: ledger_lib.Ledger | None = None
    if self._config.ledger and self._files.output_dir is not None:
      self._ledger = ledger_lib.Ledger(self._files.output_dir, self._files.round_number)
    self._trace: ledger_lib.Ledger | None = None
    if self._config.trace_client is not None and self._files.output_dir is not None:
      done = self._files.round_number
      self._trace = ledger_lib.Ledger(self._files.output_dir, done, ledger_lib.TRACE)
    self._best: stopping.BestWeights | None = None
    if self._config.keep_best:
      folder = None
      if self._files.output_dir is not None:
        folder = os.path.dirname(state_file.path(self._files.output_dir))
      metric = self._config.early_stop or self._config.metric
      self._best = stopping.BestWeights(metric, folder, rows)

  def begin(self, stack: contextlib.ExitStack, say: Any) -> None:
    """Calls `begin` of each callback, and makes `stack` call each `close`."""
    done = self._files.round_number
    # Round 0 is to be recorded too, unless metrics.csv has rows already.
    first = done
    if self._files.log.columns:
      first = done + 1
    info = callbacks_lib.RunInfo(self._files.output_dir, first, self._config.rounds, say)
    for callback in self._callbacks:
      stack.callback(callback.close)
      callback.begin(info)

  def to_the_end(
    self, stop: protocols.Stop, test_fn: protocols.EvaluateFn | None
  ) -> protocols.TrainingResult:
    files = self._files
    config = self._config
    self._save()  # Before the row of round 0: a run with rows but no checkpoint is refused.
    if not files.log.columns:  # A new run, or one that has lost its rows.
      row = {'round': files.round_number, **self._evaluation(files.state)}
      row.update(self._of_clients(files.state, files.round_number))
      self._keep_best(row, files.state)
      files.log.append(row)
      self._stopping.add(row)
      self._report(row)
    while files.round_number < config.rounds and not stop.requested and not self._stopping.reason:
      try:
        finished = self._train_round(files.round_number + 1)
      except NonFiniteWeightsError as error:
        # By this row reports and searches see that the run diverged. A resumed run drops it, since
        # it is after the checkpoint.
        files.log.append({'round': files.round_number + 1, 'validation_loss': math.nan})
        self._save_records()  # They show which clients led there; a resumed run drops them too.
        checkpoint = 'there is no checkpoint.'
        if files.saved_round >= 0:
          checkpoint = f'the checkpoint of round {files.saved_round} is kept.'
        raise NonFiniteWeightsError(f'{error}; {checkpoint}') from None
      except (Exception, KeyboardInterrupt):
        self._save()  # The state is that of the last whole round.
        if stop.exit_code:  # The signal may have ended TFF's worker too, hence the error.
          break
        raise
      # Until here an error leaves the state of the last whole round, which `_save` saves.
      if finished.client_states is not None:
        files.store.put(finished.client_ids, finished.client_states, files.round_number + 1)
      files.state = finished.server_state
      files.round_number += 1
      self._loader.commit()
      if self._ledger is not None:
        self._ledger.add(finished.ledger)
      if self._trace is not None:
        self._trace.add(finished.trace)
      self._stopping.add(finished.row)
      self._report(finished.row)
      if files.round_number % config.rounds_per_checkpoint == 0:
        self._save()
    self._save()
    if self._stopping.lacks_column and files.round_number == config.rounds:
      warnings.warn(
        f'early_stop={config.early_stop!r} had no effect: no round has such a metric or column',
        stacklevel=2,
      )
    self._files.verify()  # Before summary.json says that the run is complete.
    if self._best is not None:
      self._best.verify()
    result = self._summarize(test_fn)
    for callback in self._callbacks:
      callback.end(result)
    return result

  def _train_round(self, number: int) -> rounds.Round:
    """Trains a round and records its row. The caller stores the new states."""
    for callback in self._callbacks:
      callback.round_begin(number)
    finished = self._trainer.run(number, self._files.state)
    row = finished.row
    for callback in self._callbacks:
      row.update({**callback.columns(), 'round': number})
    is_due = number % self._config.rounds_per_evaluation == 0
    if self._config.virtual_seconds_per_evaluation is not None:
      is_due = finished.passes
    is_last = number == self._config.rounds or self._stopping.exhausts(row) is not None
    if is_due or is_last:
      row.update(self._evaluation(finished.server_state))
    # The store has these states only after the round is recorded.
    changed = dict(zip(finished.client_ids, finished.client_states or ()))
    row.update(self._of_clients(finished.server_state, number, changed, is_last=is_last))
    self._keep_best(row, finished.server_state)
    self._files.log.append(row)
    return finished

  def _evaluation(self, state: Any) -> dict[str, float]:
    began = time.perf_counter()
    result = rounds.evaluated('validation', 'inference', self._evaluate_fn, state)
    result['seconds_evaluation'] = time.perf_counter() - began
    return result

  def _keep_best(self, row: Mapping[str, Any], state: Any) -> None:
    """Keeps the weights of an evaluation that is the best so far."""
    if self._best is not None:
      self._best.add(row, state)

  def _of_clients(
    self,
    state: Any,
    number: int,
    changed: Mapping[str, Any] = _NO_STATES,
    *,
    is_last: bool = False,
  ) -> dict[str, float]:
    """Evaluates on each client and writes a file. Returns the columns; {} if this is not due.

    `changed` has the client states of the round, by id, which the store does not have yet.
    """
    evaluation = self._client_evaluation
    if evaluation is None:
      return {}
    if not is_last and not evaluation.is_due(number, self._config.rounds):
      return {}
    began = time.perf_counter()
    own_models = rounds.own_models(self._process, self._files.store, state, changed)
    report = evaluation.evaluate(state, number, own_models)
    if self._files.output_dir is not None:
      folder = os.path.join(self._files.output_dir, client_evaluation_lib.FOLDER)
      path = os.path.join(folder, f'round_{number:06d}.csv')
      with saving(path):
        os.makedirs(folder, exist_ok=True)
        atomic_files.write_text(path, report.table)
    return {**report.columns, 'seconds_client_evaluation': time.perf_counter() - began}

  def _report(self, row: Mapping[str, Any]) -> None:
    try:
      for callback in self._callbacks:
        callback.round_end(row)
    except (Exception, KeyboardInterrupt):
      self._save()  # The round is not lost because a callback fails.
      raise

  def _save_records(self) -> None:
    """Writes the rows of the ledger and of the trace."""
    if self._ledger is not None:
      self._ledger.save()
    if self._trace is not None:
      self._trace.save()

  def _save(self) -> None:
    self._save_records()  # Before the checkpoint, which requires the rows up to its round.
    if self._files.save(self._loader.record()):
      for callback in self._callbacks:
        callback.checkpoint(self._files.round_number)

  def _summarize(self, test_fn: protocols.EvaluateFn | None) -> protocols.TrainingResult:
    files = self._files
    rows = files.log.rows()
    reason = self._stopping.reason
    is_complete = reason is not None or files.round_number >= self._config.rounds
    summary = summary_lib.summarize(rows, is_complete)
    if reason == 'target':
      summary['stopped_at_target'] = True
    elif reason is not None and files.round_number < self._config.rounds:
      summary['stopped_early'] = reason
    if self._best is not None:
      summary.update(self._best.summary())
    if self._config.target is not None:
      summary['to_target'] = summary_lib.reached(rows, self._config.metric, self._config.target)
    if self._config.population is not None:
      summary['population'] = summary_lib.of_population(rows, self._config.clients_per_round)
    # The peak of this process since it began. Linux gives it in kilobytes, macOS in bytes.
    unit = 1024
    if sys.platform == 'darwin':
      unit = 1024**2
    summary['peak_memory_mb'] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    summary['state_megabytes'] = self._trainer.state_megabytes(files.state)
    costs = self._config.cost_model
    if costs is not None and costs.counts.uncounted:
      # Parts whose messages may be smaller than the columns of megabytes say.
      summary['megabytes_uncounted'] = list(costs.counts.uncounted)
    if test_fn is not None and is_complete:
      summary['test'] = rounds.evaluated('test', 'test_inference', test_fn, files.state)
    for callback in self._callbacks:
      summary.update(callback.summary(files.round_number))
    if files.output_dir is not None:
      summary_lib.write(files.output_dir, summary)
      path = os.path.join(files.output_dir, run_files.CURVES)
      with saving(path):
        title = figures.run_title(files.output_dir, config_file.read(files.output_dir))
        figures.draw_run(path, rows, title)
    state = files.state
    if self._config.asynchrony is not None:
      # Callers get a state that the process takes.
      state = older_models.as_stack(state)
    best_weights = None if self._best is None else self._best.weights
    return protocols.TrainingResult(
      state, files.round_number, is_complete, summary, best_weights, rows
    )


def check_same(
  folder: str, record: config_file.Record, clients: protocols.ClientData, run_id: str | None = None
) -> None:
  """Raises ResumeError if the run in a folder, if there is one, has other settings or data."""
  earlier = record.check(folder, run_id)
  if earlier is not None:
    record.open(folder, {**earlier['data'], **_described(clients)}, 0, run_id)


def _described(clients: protocols.ClientData) -> dict[str, Any]:
  """Returns the numbers of clients and examples, and a digest of the ids, for config.json."""
  ids = clients.client_ids
  data: dict[str, Any] = {'clients': len(ids)}
  if len(ids) <= _MOST_COUNTED:
    data['examples'] = sum(int(clients.num_examples(name)) for name in ids)
    # The order counts, because cohorts are positions: that of a set may differ in each process.
    text = value_text.in_text(list(ids))
    data['client_ids'] = hashlib.sha256(text.encode(errors='replace')).hexdigest()
  return data


def _write_config(
  folder: str, record: config_file.Record, run_id: str, data: dict[str, Any], model: Any
) -> None:
  """Writes config.json, or notes in it what a resumed run changes. Needs the checkpoint's lock."""
  if os.path.exists(os.path.join(folder, config_file.FILE)):
    record.note_changes(folder)
    return
  weights = rounds.trainable(model)
  size = sum(math.prod(weight.shape) for weight in weights)
  record.open(folder, data, size, run_id)
