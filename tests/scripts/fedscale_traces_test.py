"""scripts/fedscale_traces.py, on small traces made by hand in FedScale's form."""

import os
import pickle

import pytest

from scripts import fedscale_traces
from tff_adaptive import population

CAPACITY = {
  1: {'computation': 100.0, 'communication': 8000.0},
  2: {'computation': 50, 'communication': 500},
}
BEHAVIOUR = {
  7: {'active': [10, 60], 'inactive': [20, 100], 'finish_time': 100, 'model': 'a', 'duration': 50},
  9: {'active': [40], 'inactive': [5], 'finish_time': 50, 'model': 'b', 'duration': 15},
}


def write(path, value):
  path.write_bytes(pickle.dumps(value))
  return str(path)


def test_the_files_that_train_takes(tmp_path, capsys):
  output = str(tmp_path / 'phones')
  flags = ['--task=least_squares', f'--output={output}', '--batch_size=10']
  flags.append(f'--capacity={write(tmp_path / "c", CAPACITY)}')
  flags.append(f'--behaviour={write(tmp_path / "b", BEHAVIOUR)}')
  assert fedscale_traces.main(['x', *flags]) == 0
  assert 'availability.csv: 5 clients, 2 devices' in capsys.readouterr().out
  found = population.read_profiles(f'{output}.profiles.csv')
  ids = [*found['uplink']]
  assert len(ids) == 5
  # Three inferences of ten examples of 100 ms; 8,000 kilobits of 128 bytes.
  assert [found['seconds_per_step'][i] for i in ids] == [3.0, 1.5, 3.0, 1.5, 3.0]
  assert [found['downlink'][i] for i in ids] == [1.024, 0.064, 1.024, 0.064, 1.024]
  assert found['uplink'] == found['downlink']
  trace = population.read_trace(f'{output}.availability.csv')
  assert trace[ids[0]] == trace[ids[4]] == [(10, 20), (60, 100)]
  # Its trace of 50 s is over the end of each period active, and there twice.
  assert trace[ids[1]] == [(0, 5), (40, 50), (50, 55), (90, 100)]


class Hostile:
  def __reduce__(self):
    return os.mkdir, ('made_by_a_pickle',)


@pytest.mark.parametrize(
  'kind, value, words',
  [
    ('capacity', Hostile(), 'posix.mkdir, which is no plain data'),
    ('capacity', [], 'no dictionary of devices'),
    ('capacity', {3: {'computation': -1, 'communication': 1}}, '-0.06'),
    ('capacity', {3: {'computation': 1}}, "KeyError('communication')"),
    ('behaviour', {3: {'finish_time': 9, 'active': [1], 'inactive': []}}, 'zip() argument 2'),
    ('behaviour', {3: {'finish_time': 9, 'active': [], 'inactive': []}}, 'ever active'),
    ('behaviour', {3: {'finish_time': 9, 'active': ['1'], 'inactive': [2]}}, 'TypeError'),
    ('behaviour', {3: {'finish_time': 9, 'active': [-1], 'inactive': [2]}}, 'from -1 until 2'),
  ],
  ids=range(8),
)
def test_what_is_no_trace_is_refused(tmp_path, monkeypatch, capsys, kind, value, words):
  monkeypatch.chdir(tmp_path)
  flags = ['--task=least_squares', '--output=x', f'--{kind}={write(tmp_path / "f", value)}']
  assert fedscale_traces.main(['x', *flags]) == 2
  error = capsys.readouterr().err
  assert words in error
  assert error.count('\n') == 1
  assert os.listdir(tmp_path) == ['f']
