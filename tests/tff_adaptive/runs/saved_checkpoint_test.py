"""Checkpoints read without their process."""

import json
import sqlite3

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
  np.testing.assert_array_equal(found.arrays[0], STATE[0] + 1)
  assert found.arrays[1] == 4


def test_the_format_before_is_read_too(tmp_path):
  path = str(tmp_path / 'state.sqlite')
  file = sqlite3.connect(path)
  file.execute('CREATE TABLE run (key TEXT PRIMARY KEY, value TEXT NOT NULL)')
  file.execute('CREATE TABLE server (position INTEGER, dtype TEXT, shape TEXT, data BLOB)')
  file.execute("INSERT INTO run VALUES ('format', 'tff-adaptive-1')")
  file.commit()
  with pytest.raises(runs.StateError, match='holds no checkpoint yet'):
    saved_checkpoint.read(path)
  file.execute("INSERT INTO run VALUES ('round', '7')")
  for position in (1, 0):
    leaf = np.asarray(STATE[position])
    values = (position, leaf.dtype.str, json.dumps(leaf.shape), leaf.tobytes())
    file.execute('INSERT INTO server VALUES (?, ?, ?, ?)', values)
  file.commit()
  file.close()
  found = saved_checkpoint.read(path)
  assert found.round_number == 7
  np.testing.assert_array_equal(found.arrays[0], STATE[0])


def test_a_run_that_is_going_on_is_named(tmp_path):
  path = str(tmp_path / 'state.sqlite')
  store = runs.ClientStateStore(path, ())
  with pytest.raises(runs.StateError, match='the run is going on'):
    saved_checkpoint.read(path)
  store.close()
