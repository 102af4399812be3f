"""What does a sweep's runs in tests: writes folders as training would, in this process."""

import json
import os

from scripts.cli import flags, records, resolve, worker
from tests.helpers import run_folders


class Hosts:
  """In place of the processes: `result` gives an answer, or the value that a run comes to."""

  def __init__(self, result):
    self.jobs, self._result = [], result

  def __call__(self):
    return _Host(self)

  def do(self, job):
    self.jobs.append(job)
    settings = resolve.resolve(flags.parse(['train.py', *job.flags]))
    answer = self._result(settings)
    if isinstance(answer, worker.Answer):
      return answer
    write_run(settings, job.last_round or settings.training.rounds, answer)
    return worker.Answer('done')

  def ran(self):
    """The folders' names and where the runs ended, in order."""
    folders = [
      resolve.resolve(flags.parse(['', *job.flags])).output.output_dir for job in self.jobs
    ]
    return [(os.path.basename(f), job.last_round) for f, job in zip(folders, self.jobs)]


class _Host:
  def __init__(self, hosts):
    self._hosts, self._job = hosts, None

  def begin(self, job):
    self._job = job

  def answer(self):
    return self._hosts.do(self._job)

  def stop(self, number):
    return bool(number)

  def close(self):
    pass


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
