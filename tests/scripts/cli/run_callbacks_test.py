"""A run that ends for now at a round before its last is one that was interrupted there."""

from scripts.cli import run_callbacks, signals
from tests.helpers import fakes
from tff_adaptive import training


def _train(folder, until=None):
  config = training.TrainingConfig(
    rounds=9, clients_per_round=5, seed=3, rounds_per_evaluation=2, rounds_per_checkpoint=4
  )
  with signals.StopGuard() as stop:
    audience = [] if until is None else [run_callbacks.StopAt(until, stop.request)]
    result = training.train(
      fakes.StatefulProcess(),
      fakes.Clients(),
      fakes.evaluate,
      config,
      output_dir=str(folder),
      callbacks=audience,
      stop=stop,
      show_progress=False,
    )
    assert stop.exit_code == 0
  return result


def _rows(folder):
  text = (folder / 'metrics.csv').read_text()
  lines = [line.split(',') for line in text.splitlines()]
  kept = [i for i, name in enumerate(lines[0]) if not name.startswith('seconds_')]
  return [[line[i] for i in kept] for line in lines]


def test_rungs_leave_no_trace_in_a_run(tmp_path):
  whole = _train(tmp_path / 'whole')
  for until, reached in ((3, 3), (3, 3), (2, 3), (6, 6), (None, 9)):
    result = _train(tmp_path / 'parts', until)
    assert (result.round_number, result.is_complete) == (reached, reached == 9)
  assert _rows(tmp_path / 'parts') == _rows(tmp_path / 'whole')
  (ours,), (expected,) = result.state.global_model_weights, whole.state.global_model_weights
  assert ours.tobytes() == expected.tobytes()
