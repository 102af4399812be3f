"""Rounds are announced to the workers, and what they have done is in the round's columns."""

from tff_adaptive import training
from tff_adaptive.training import ray_callback


class _Context:
  """Counts, and says something at each announcement."""

  workers = 3

  def __init__(self):
    self.waited, self.occasions = 5.0, []

  def announce(self, occasion, report):
    self.occasions.append(occasion)
    report(f'{occasion}: a worker was lost')

  def counters(self):
    return {'seconds_waiting': self.waited}


def test_columns_are_of_the_round_and_lines_say_how_fast(monkeypatch):
  monkeypatch.setattr(ray_callback, '_SECONDS_BETWEEN_LINES', 0.0)
  context, lines = _Context(), []
  callback = training.RayCallback(context)
  callback.begin(training.RunInfo(output_dir=None, first_round=1, rounds=9, say=lines.append))
  callback.round_end({'round': 0})  # The initial model: nobody has trained.
  callback.round_begin(7)
  context.waited += 2.5
  assert callback.columns() == {'seconds_waiting': 2.5}
  callback.round_end({'round': 7, 'clients': 10, 'seconds_round': 4.0})
  callback.round_begin(8)
  assert callback.columns() == {'seconds_waiting': 0.0}
  assert context.occasions == ['round 7', 'round 8']
  assert lines == [
    'Starting 3 workers.',
    'round 7: a worker was lost',
    '3 workers, 2.5 clients/s',
    'round 8: a worker was lost',
  ]
  lines.clear()
  context.workers = 1
  callback.begin(training.RunInfo(output_dir=None, first_round=1, rounds=9, say=lines.append))
  assert lines == ['Starting 1 worker.']
