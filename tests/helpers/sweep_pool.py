"""Searches in tests: the trials are done in this process, and runs only write their files."""

import json
import os
import signal

from scripts.cli import records, search, worker
from tests.helpers import run_folders


class Runs:
  """Trains runs in place of `worker.train`.

  `result(settings)` gives the value of a run's metric, an `Answer`, or a signal to receive.
  """

  def __init__(self, result):
    self.settings = []
    self._rounds = []
    self._result = result

  def train(self, run, last_round, stop):
    """Does what `worker.train` does, but for training."""
    is_begun = not stop.requested and not worker.summary.is_complete(
      run.output.output_dir, run.training.rounds
    )
    if not is_begun:
      return worker.Answer('stopped' if stop.requested else 'done')
    self.settings.append(run)
    self._rounds.append(last_round)
    result = self._result(run)
    if isinstance(result, signal.Signals):
      os.kill(os.getpid(), result)
      while not stop.requested:
        pass
      return worker.Answer('stopped')
    if isinstance(result, worker.Answer):
      return result
    write_run(run, last_round or run.training.rounds, result)
    return worker.Answer('done')

  def ran(self):
    """Returns the folders' names and where the runs ended, in order."""
    names = [os.path.basename(run.output.output_dir) for run in self.settings]
    return [*zip(names, self._rounds)]


class Workers(search._Workers):
  """Processes of a search that are none: each trial is done when its process would start."""

  runs: Runs

  def start(self):
    name = f'worker {self._trials.count()}'
    _, _, plan = self._arguments
    try:
      search.do_next(name, self._trials, plan, self._stop, self.runs.train)
    except SystemExit:
      pass
    except ValueError as error:
      self.code = search.command.complain('sweep.py', error)

  def wait(self):
    """Does not wait, because all trials have ended."""


def install(monkeypatch, runs):
  """Makes searches do their trials in this process, with `runs`."""
  Workers.runs = runs
  monkeypatch.setattr(search, '_Workers', Workers)


def write_run(settings, rounds, value, column='validation_accuracy'):
  """Writes a run whose `column` is `value` in each round after round 0."""
  folder = settings.output.output_dir
  os.makedirs(folder, exist_ok=True)
  run_folders.write_config(folder, records.of(settings).settings)
  with open(os.path.join(folder, 'metrics.csv'), 'w') as file:
    file.write(f'round,{column},seconds_round\n')
    for t in range(rounds + 1):
      file.write(f'{t},{value if t else 0.0!r},0.5\n')
  with open(os.path.join(folder, 'summary.json'), 'w') as file:
    json.dump({'is_complete': rounds == settings.training.rounds, 'rounds': rounds}, file)
