"""What does a sweep's runs in tests: writes folders as training would, in this process."""

import json
import os
import signal

from scripts.cli import records, worker
from tests.helpers import run_folders


class Runs:
  """In place of `worker.in_process`: `result` gives a value, an answer, or a signal to die of."""

  def __init__(self, result):
    self.settings, self._rounds, self._result = [], [], result

  def __call__(self, run, last_round, stop):
    self.settings.append(run)
    self._rounds.append(last_round)
    answer = self._result(run)
    if isinstance(answer, signal.Signals):
      os.kill(os.getpid(), answer)
      while not stop.requested:
        pass
      return worker.Answer('failed', 'its process ended with exit code 130.')
    if isinstance(answer, worker.Answer):
      return answer
    write_run(run, last_round or run.training.rounds, answer)
    return worker.Answer('done')

  def ran(self):
    """The folders' names and where the runs ended, in order."""
    names = [os.path.basename(run.output.output_dir) for run in self.settings]
    return [*zip(names, self._rounds)]


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
