"""Callbacks: when each method is called, that an error in one loses no round; the project's own."""

import pytest

from tests.helpers import fakes
from tff_adaptive import training
from tff_adaptive.aggregation import SampledGaussian
from tff_adaptive.training import callbacks


class _Recorder(callbacks.Callback):
  def __init__(self):
    self.calls = []

  def begin(self, run):
    self.calls.append(('begin', run.output_dir is not None, run.first_round, run.rounds))

  def round_begin(self, number):
    self.calls.append(('round_begin', number))

  def columns(self):
    self.calls.append(('columns',))
    return {'mine': 0.1 + len(self.calls)}

  def round_end(self, row):
    self.calls.append(('round_end', row['round'], 'validation_loss' in row))

  def checkpoint(self, round_number):
    self.calls.append(('checkpoint', round_number))

  def end(self, result):
    self.calls.append(('end', result.round_number))

  def close(self):
    self.calls.append(('close',))


def _train(folder, rounds, *audience):
  every = {'rounds_per_evaluation': 2, 'rounds_per_checkpoint': 2}
  return fakes.train(folder, rounds, callbacks=audience, **every)


def test_each_method_is_called_in_its_place(tmp_path):
  first, second = _Recorder(), _Recorder()
  _train(tmp_path, 3, first)
  assert first.calls == [
    ('begin', True, 0, 3),
    ('checkpoint', 0),
    ('round_end', 0, True),
    ('round_begin', 1),
    ('columns',),
    ('round_end', 1, False),
    ('round_begin', 2),
    ('columns',),
    ('round_end', 2, True),
    ('checkpoint', 2),
    ('round_begin', 3),
    ('columns',),
    ('round_end', 3, True),
    ('checkpoint', 3),
    ('end', 3),
    ('close',),
  ]
  assert [row['mine'] for row in fakes.rows(tmp_path)] == ['', '5.1', '8.1', '12.1']
  _train(tmp_path, 4, second)
  assert second.calls[:3] == [('begin', True, 4, 4), ('round_begin', 4), ('columns',)]
  nowhere = _Recorder()
  _train(None, 2, nowhere)
  assert nowhere.calls[0] == ('begin', False, 0, 2)
  assert not any(call[0] == 'checkpoint' for call in nowhere.calls)


@pytest.mark.parametrize(
  'method, fails_at, saved',
  [('round_begin', 4, 3), ('columns', 4, 3), ('round_end', 3, 3), ('checkpoint', 4, 4)],
)
def test_an_error_in_a_callback_ends_the_run_and_loses_no_round(tmp_path, method, fails_at, saved):
  class Failing(_Recorder):
    pass

  def fail(self, *arguments):
    del self
    number = (arguments or [0])[0]
    number = number['round'] if method == 'round_end' else number
    if number >= fails_at or (method == 'columns' and ('round_begin', fails_at) in recorder.calls):
      raise RuntimeError('no luck')
    return {}

  setattr(Failing, method, fail)
  failing, recorder = Failing(), _Recorder()
  with pytest.raises(RuntimeError, match='no luck'):
    _train(tmp_path, 10, recorder, failing)
  assert fakes.saved(tmp_path)[0] == saved
  assert failing.calls[-1] == recorder.calls[-1] == ('close',)
  assert not any(call[0] == 'end' for call in recorder.calls)


@pytest.mark.parametrize(
  'rounds, seed, noise', [(7, None, 'drawn from a secret'), (9, 0, 'protects nobody who knows')]
)
def test_epsilon_stands_in_evaluated_rounds_and_in_the_summary(tmp_path, rounds, seed, noise):
  accountant = SampledGaussian(20, 5, 1.5)
  audience = [training.PrivacyCallback(accountant, 1e-3, 3, seed)]
  result = fakes.train(tmp_path, rounds, callbacks=audience)
  found = {int(r['round']): r['epsilon'] for r in fakes.rows(tmp_path) if r['epsilon']}
  assert list(found) == [3, 6, rounds]
  for number, value in found.items():
    assert float(value) == accountant.epsilon(number, 1e-3)
  privacy = dict(result.summary['privacy'])
  assert noise in privacy.pop('noise')
  assert privacy.pop('accountant') == accountant.method
  assert privacy == {
    'neighbours': 'one client is replaced',
    'noise_multiplier': 1.5,
    'delta': 1e-3,
    **accountant.epsilons(rounds, 1e-3),
  }


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
  monkeypatch.setattr(callbacks, '_SECONDS_BETWEEN_LINES', 0.0)
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
