"""Checkpoints read without their process."""

import numpy as np
import pytest

from tff_adaptive import runs
from tff_adaptive.runs import saved_checkpoint

STATE = (np.arange(6, dtype=np.float32).reshape(2, 3), np.int32(4))


def test_the_last_checkpoint_counts(tmp_path):
  path = str(tmp_path / 'state.sqlite')
  store = runs.ClientStateStore(path, ())
  store.restore(STATE)
  store.commit(2, STATE)
  store.commit(5, (STATE[0] + 1, STATE[1]))
  store.close()
  found = saved_checkpoint.read(path)
  assert found.round_number == 5
  assert list(found.leaves) == ['0', '1']
  np.testing.assert_array_equal(found.leaves['0'], STATE[0] + 1)
  assert found.leaves['1'] == 4


def test_weights_are_found_by_their_names(tmp_path):
  path = str(tmp_path / 'state.sqlite')
  weights = [np.full(i, i, np.float32) for i in range(12)]  # '10' is not behind '1'.
  state = {
    'a_first_leaf': np.zeros(3),
    'global_model_weights': {'trainable': weights, 'non_trainable': [np.ones(2)]},
    'inference_weights': (STATE[0],),
  }
  with runs.ClientStateStore(path, ()) as store:
    store.commit(1, state)
  found = saved_checkpoint.read(path)
  np.testing.assert_equal(found.trainable('global_model_weights'), tuple(weights))
  np.testing.assert_equal(found.trainable('inference_weights'), (STATE[0],))
  assert found.trainable('inference') == ()


def test_a_file_without_a_checkpoint_and_no_file_are_named(tmp_path):
  path = str(tmp_path / 'state.sqlite')
  with pytest.raises(runs.StateError, match='there is no checkpoint'):
    saved_checkpoint.read(path)
  runs.ClientStateStore(path, ()).close()
  with pytest.raises(runs.StateError, match='holds no checkpoint yet'):
    saved_checkpoint.read(path)


def test_a_run_that_is_going_on_is_named(tmp_path):
  path = str(tmp_path / 'state.sqlite')
  store = runs.ClientStateStore(path, ())
  with pytest.raises(runs.StateError, match='another process is using it'):
    saved_checkpoint.read(path)
  store.close()
