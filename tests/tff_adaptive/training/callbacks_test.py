"""Callbacks: when each method is called, that an error in one loses no round; the project's own."""

import copy
import typing
from unittest import mock

import numpy as np
import pytest

from tests.helpers import fakes
from tff_adaptive import training
from tff_adaptive._utils import client_references
from tff_adaptive.aggregation import SampledGaussian
from tff_adaptive.training import callbacks


def _recorder():
  """Notes all calls in `method_calls`."""
  recorder = mock.Mock(spec=callbacks.Callback())
  recorder.columns.return_value = {'mine': 0.5}
  recorder.summary.return_value = {}
  return recorder


def _train(folder, rounds, *audience):
  every = {'rounds_per_evaluation': 2, 'rounds_per_checkpoint': 2}
  return fakes.train(folder, rounds, callbacks=audience, **every)


def _begun(recorder):
  (run,) = recorder.begin.call_args.args
  return run.output_dir is not None, run.first_round, run.rounds


def test_each_method_is_called_in_its_place(tmp_path):
  first = _recorder()
  second = _recorder()
  nowhere = _recorder()
  _train(tmp_path, 3, first)
  each = 'round_begin columns round_end'
  called = (
    f'begin checkpoint round_end {each} {each} checkpoint {each} checkpoint summary end close'
  )
  assert ' '.join(name for name, _, _ in first.method_calls) == called
  assert _begun(first) == (True, 0, 3)
  assert first.round_begin.call_args_list == [mock.call(t) for t in (1, 2, 3)]
  assert first.checkpoint.call_args_list == [mock.call(t) for t in (0, 2, 3)]
  rows = [call.args[0] for call in first.round_end.call_args_list]
  assert [row['round'] for row in rows if 'validation_loss' in row] == [0, 2, 3]
  assert [row['mine'] for row in fakes.rows(tmp_path)] == ['', '0.5', '0.5', '0.5']
  assert first.end.call_args.args[0].round_number == 3
  _train(tmp_path, 4, second)
  assert _begun(second) == (True, 4, 4)
  assert [name for name, _, _ in second.method_calls[1:3]] == ['round_begin', 'columns']
  _train(None, 2, nowhere)
  assert _begun(nowhere) == (False, 0, 2)
  assert not nowhere.checkpoint.called


class Failure(typing.NamedTuple):
  """A callback's method that fails at a call, and the round that is saved then."""

  method: str
  error: type = RuntimeError
  call: int = 4
  saved: int = 3


@pytest.mark.parametrize(
  'failure',
  [
    Failure('round_begin'),
    Failure('columns'),
    Failure('round_end'),
    Failure('round_end', KeyboardInterrupt),
    Failure('checkpoint', call=3, saved=4),
  ],
)
def test_an_error_in_a_callback_ends_the_run_and_loses_no_round(tmp_path, failure):
  failing = _recorder()
  recorder = _recorder()
  effects = [*[{}] * (failure.call - 1), failure.error]
  getattr(failing, failure.method).side_effect = effects
  with pytest.raises(failure.error):
    _train(tmp_path, 10, recorder, failing)
  assert fakes.saved(tmp_path)[0] == failure.saved
  assert failing.method_calls[-1] == recorder.method_calls[-1] == mock.call.close()
  assert not recorder.end.called


@pytest.mark.parametrize(
  'rounds, seed, noise', [(7, None, 'drawn from a secret'), (9, 0, 'protects nobody who knows')]
)
def test_epsilon_stands_in_evaluated_rounds_and_in_the_summary(tmp_path, rounds, seed, noise):
  accountant = SampledGaussian(20, 5, 1.5)
  audience = [training.PrivacyCallback(accountant, 1e-3, 3, seed)]
  result = fakes.train(tmp_path, rounds, callbacks=audience)
  epsilons = {int(r['round']): r['epsilon'] for r in fakes.rows(tmp_path) if r['epsilon']}
  assert list(epsilons) == [3, 6, rounds]
  for number, value in epsilons.items():
    assert float(value) == accountant.epsilon(number, 1e-3)
  privacy = dict(result.summary['privacy'])
  assert noise in privacy.pop('noise')
  assert privacy.pop('accountant') == accountant.method
  assert privacy == {
    'neighbours': 'one client is replaced',
    'noise_multiplier': 1.5,
    'delta': 1e-3,
    'epsilon': accountant.epsilon(rounds, 1e-3),
  }


def test_columns_are_of_the_round_and_what_happens_to_workers_is_said():
  context = mock.Mock(workers=3)
  lines = []
  context.announce.side_effect = lambda occasion, report: report(f'{occasion}: a worker was lost')
  context.counters.side_effect = [{'seconds_waiting': waited} for waited in (5.0, 7.5)]
  callback = training.RayCallback(context)
  run = training.RunInfo(output_dir=None, first_round=1, rounds=9, say=lines.append)
  callback.begin(run)
  callback.round_begin(7)
  assert callback.columns() == {'seconds_waiting': 2.5}
  assert lines == ['Starting 3 workers.', 'round 7: a worker was lost']
  lines.clear()
  context.workers = 1
  callback.begin(run)
  assert lines == ['Starting 1 worker.']


class _Drift(callbacks.Callback):
  """Moves all clients' examples by the number of the round."""

  def __init__(self, clients):
    self._clients = clients

  def round_begin(self, number):
    self._clients.number = number


class _DriftingClients(fakes.Clients):
  """Clients whose examples in round t all are t."""

  number = 0

  def load(self, client_id):
    arrays = super().load(client_id)
    arrays['x'] = np.full_like(arrays['x'], self.number)
    return arrays


def test_round_begin_can_change_the_data_of_its_own_round(tmp_path):
  # theta_t = theta_{t-1} + 0.3 (t - theta_{t-1}), as the clients' memories are 0 with this process.
  expected = [0.0]
  for t in range(1, 8):
    expected.append(expected[-1] + 0.3 * (t - expected[-1]))
  clients = _DriftingClients()
  process = fakes.StatelessProcess()
  whole = fakes.train(None, 7, process=process, clients=clients, callbacks=[_Drift(clients)])
  np.testing.assert_allclose(whole.state.global_model_weights[0], [expected[-1]] * 3, rtol=1e-6)
  for rounds in (3, 7):  # The second run resumes the first.
    clients = _DriftingClients()
    resumed = fakes.train(
      tmp_path, rounds, process=process, clients=clients, callbacks=[_Drift(clients)]
    )
  np.testing.assert_array_equal(
    resumed.state.global_model_weights[0], whole.state.global_model_weights[0]
  )


def test_clients_are_loaded_ahead_unless_a_callback_may_change_them():
  class Logger(callbacks.Callback):
    may_load_ahead = True

    def round_begin(self, number):
      pass

  assert callbacks.let_load_ahead([callbacks.Callback(), Logger()])
  assert callbacks.let_load_ahead([callbacks.RayCallback(None)])
  assert not callbacks.let_load_ahead([callbacks.Callback(), _Drift(None)])
  assigned = callbacks.Callback()
  assigned.round_begin = lambda number: None
  assert not callbacks.let_load_ahead([assigned])


class _Workers(fakes.StatelessProcess):
  """A process whose workers have a copy of the clients' data, which they load references from."""

  def __init__(self):
    super().__init__()
    self.were_referenced = []

  def accepts(self, source):
    self._copy = copy.deepcopy(source)
    return True

  def next(self, state, cohort):
    is_referenced = client_references.is_referenced(cohort)
    self.were_referenced.append(is_referenced)
    if is_referenced:
      cohort = self._copy.load([reference.key for reference in cohort])
    return super().next(state, cohort)


def test_workers_load_clients_themselves_unless_a_callback_may_change_the_data(monkeypatch):
  for drifts in (False, True):
    clients = _DriftingClients()
    workers = _Workers()
    monkeypatch.setattr(client_references, 'workers', lambda workers=workers: workers)
    audience = []
    expected = 0.0
    if drifts:
      audience.append(_Drift(clients))
      expected = 0.3 * (1 - 0.3) + 0.3 * 2  # As above, after two rounds.
    result = fakes.train(None, 2, process=workers, clients=clients, callbacks=audience)
    assert workers.were_referenced == [not drifts] * 2
    weights = result.state.global_model_weights[0]
    np.testing.assert_allclose(weights, [expected] * 3, rtol=1e-6)
