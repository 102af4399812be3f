"""Callbacks: when each method is called, and that an error in one loses no round."""

import pytest

from tests.helpers import fakes
from tff_adaptive import training
from tff_adaptive.runs import state_store
from tff_adaptive.training import callbacks

CONFIG = {'clients_per_round': 5, 'seed': 3, 'rounds_per_evaluation': 2, 'rounds_per_checkpoint': 2}


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
  return training.train(
    fakes.StatefulProcess(),
    fakes.Clients(),
    fakes.evaluate,
    training.TrainingConfig(rounds=rounds, **CONFIG),
    output_dir=None if folder is None else str(folder),
    callbacks=audience,
    show_progress=False,
  )


def _saved(folder):
  process = fakes.StatefulProcess()
  path = str(folder / 'checkpoints' / 'state.sqlite')
  with state_store.ClientStateStore(path, process.initial_client_state) as store:
    return store.restore(process.initialize()).round_number


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
  lines = (tmp_path / 'metrics.csv').read_text().splitlines()
  assert lines[0].split(',').count('mine') == 1
  assert [dict(zip(lines[0].split(','), line.split(',')))['mine'] for line in lines[1:]] == [
    '',
    '5.1',
    '8.1',
    '12.1',
  ]
  _train(tmp_path, 4, second)
  assert second.calls[:3] == [('begin', True, 4, 4), ('round_begin', 4), ('columns',)]


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
  assert _saved(tmp_path) == saved
  assert failing.calls[-1] == recorder.calls[-1] == ('close',)
  assert not any(call[0] == 'end' for call in recorder.calls)


def test_a_run_without_a_folder_makes_no_checkpoints():
  recorder = _Recorder()
  _train(None, 2, recorder)
  assert recorder.calls[0] == ('begin', False, 0, 2)
  assert not any(call[0] == 'checkpoint' for call in recorder.calls)
