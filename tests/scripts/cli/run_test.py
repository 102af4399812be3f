"""Runs from the command line, in this process: a population, and what failures become."""

import json
import sys

import pytest

from scripts import train
from scripts.cli import run
from tests.helpers import fakes
from tff_adaptive import engine, runs, training
from tff_adaptive.population import rounds

FLAGS = (
  *('--task=digits', '--algorithm=scaffold', '--rounds_per_evaluation=1'),
  *('--availability=independent', '--availability_option=probability=0.2', '--dropout_rate=0.2'),
  *('--speed_sigma=0.7', '--seconds_per_step=5', '--round_deadline=15', '--stragglers=partial'),
)


def _train(folder, *arguments):
  with fakes.no_figures():
    return train.main(['train.py', *arguments, f'--output_dir={folder}'])


def test_a_run_goes_on_as_it_would_have_and_says_what_became_of_the_clients(tmp_path, capfd):
  assert _train(tmp_path / 'whole', *FLAGS, '--rounds=3', '--target=0.01') == 0
  out, err = capfd.readouterr()
  with open(tmp_path / 'whole' / 'summary.json', encoding='utf-8') as file:
    summary = json.load(file)
  found = summary['population']
  assert found['partial'] > 0 < found['dropped']
  assert found['selected'] == found['finished'] + found['partial'] + found['dropped']
  assert f'selected {found["selected"]}, finished {found["finished"]}' in out
  assert 'are available, of 10 that a round is to have' in err
  assert summary['to_target']['validation_accuracy']['round'] == 0
  for number in (2, 3):
    assert _train(tmp_path / 'parts', *FLAGS, f'--rounds={number}') == 0
  assert fakes.rows(tmp_path / 'parts') == fakes.rows(tmp_path / 'whole')
  assert set(rounds.COLUMNS) < set(fakes.rows(tmp_path / 'whole')[0])
  assert _train(tmp_path / 'parts', *FLAGS, '--rounds=7', '--dropout_rate=0.3') == 2
  assert '--dropout_rate was 0.2 and is now 0.3' in capfd.readouterr().err


def test_a_line_says_what_the_first_seconds_are_spent_on(tmp_path, capfd, monkeypatch):
  def load():
    raise ValueError('Loaded.')

  monkeypatch.delitem(sys.modules, 'tensorflow_federated')
  monkeypatch.setattr(run.tensorflow_start, 'load', load)
  assert _train(tmp_path, '--rounds=3') == 2
  assert capfd.readouterr().err == 'Loading TensorFlow ...\ntrain.py: Loaded.\n'


@pytest.mark.parametrize(
  'arguments, message',
  [
    (('--round_deadline=0.01',), 'the fastest client needs 0.64'),
    (('--availability=FILE',), "of any of the 60 clients: its first client is 'x'"),
    (('--client_profiles=FILE',), "has the columns 'client', 'from', 'until'; give client and one"),
  ],
)
def test_what_does_not_fit_the_clients_is_refused_and_nothing_written(
  tmp_path, capfd, arguments, message
):
  path = tmp_path / 'clients.csv'
  path.write_text('client,from,until\nx,0,1\n')
  arguments = [a.replace('FILE', str(path)) for a in arguments]
  assert _train(tmp_path / 'run', '--task=digits', '--algorithm=fed_avg', *arguments) == 2
  error = capfd.readouterr().err
  assert message in error
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('given, is_hidden', [((), False), (('--gpus_per_worker=0.5',), True)])
def test_the_trainer_leaves_gpus_to_the_workers(monkeypatch, tmp_path, given, is_hidden):
  pytest.importorskip('ray')
  hidden = []
  monkeypatch.setattr('tff_adaptive.devices.placement.hide_gpus', lambda: hidden.append(True))

  def refuse(*unused_arguments, **unused_options):
    raise engine.WorkerError('no cluster')

  monkeypatch.setattr(engine, 'set_ray_context', refuse)
  assert _train(tmp_path, '--task=digits', '--ray=local', *given) == 2
  assert bool(hidden) == is_hidden


@pytest.mark.parametrize(
  'has_begun, error, code',
  [
    (False, runs.StateError('client 7 is damaged'), 2),
    (True, runs.StateError('client 7 is damaged'), 1),  # No bad input: the run has begun.
    (True, engine.WorkersLost('Round 7: no worker is left'), 1),
  ],
)
def test_what_fails_while_a_run_goes_on_is_no_bad_input(
  monkeypatch, tmp_path, capfd, has_begun, error, code
):
  def fail(callbacks, **unused):
    for callback in callbacks if has_begun else ():
      callback.begin(training.RunInfo(str(tmp_path), 1, 9, print))
    raise error

  monkeypatch.setattr(training, 'train', fail)
  assert _train(tmp_path, '--task=least_squares') == code
  assert str(error) in capfd.readouterr().err


def _of_fakes(folder, until=None):
  stop = training.Stop()
  watch = run._Watch(until)
  watch.request = stop.request
  return fakes.train(folder, 9, callbacks=[watch], stop=stop, rounds_per_evaluation=2)


def test_rungs_leave_no_trace_in_a_run(tmp_path):
  """A run that ends for now at a round before its last is one that was interrupted there."""
  whole = _of_fakes(tmp_path / 'whole')
  for until, reached in ((3, 3), (2, 3), (None, 9)):
    result = _of_fakes(tmp_path / 'parts', until)
    assert (result.round_number, result.is_complete) == (reached, reached == 9)
  assert fakes.rows(tmp_path / 'parts') == fakes.rows(tmp_path / 'whole')
  (ours,), (expected,) = result.state.global_model_weights, whole.state.global_model_weights
  assert ours.tobytes() == expected.tobytes()
