"""research/gpu_check.py, with the CPU in the GPU's place."""

import dataclasses
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from research import gpu_check
from research.benchmarks import workloads

CPU = ['/CPU:0', '/CPU:0']
SIZES = dict(cohort=2, examples=6, batch_size=6, epochs=1)
W4 = dataclasses.replace(workloads.WORKLOADS['W4'], **SIZES)


@pytest.mark.skipif(bool(tf.config.list_physical_devices('GPU')), reason='there is a GPU')
def test_without_a_gpu_it_ends_with_one_line(tmp_path, capsys):
  assert gpu_check.main(['gpu_check.py', f'--output={tmp_path}/new/gpu']) == 2
  said = capsys.readouterr()
  assert said.err.startswith('gpu_check.py: no GPU can be used: ')
  assert (said.err.count('\n'), said.out, list(tmp_path.iterdir())) == (1, '', [])


@pytest.mark.exhaustive
def test_results_are_judged_by_their_rounding_and_written_with_what_was_measured(
  tmp_path, monkeypatch, capsys
):
  monkeypatch.setattr(gpu_check, 'logical_devices', lambda kind: CPU)
  monkeypatch.setattr(gpu_check, 'ROUNDING', {'two devices': 2.0**-24, 'bfloat16': 2.0**-50})
  monkeypatch.setitem(workloads.WORKLOADS, 'W4', W4)
  monkeypatch.setattr(workloads, 'MLP', (784, 20, 26))
  calls = []
  for name in ('rounds', 'vmapped'):
    make = getattr(gpu_check, name)
    monkeypatch.setattr(
      gpu_check, name, lambda *given, make=make: calls.append(make(*given)) or calls[-1]
    )
  flags = ['--device=cpu', '--workload=W4', '--clients=2', '--rounds=1']
  assert gpu_check.main(['gpu_check.py', *flags, f'--output={tmp_path}/gpu']) == 1
  content = json.loads((tmp_path / 'gpu.json').read_text())
  assert [row['is_within'] for row in content['results']] == [True, False]
  assert 1e-4 < content['results'][1]['difference'] < 4 * math.sqrt(2.0**-8)
  assert [(row['seconds'] > 0, 'peak_mb' in row) for row in content['figures']] == [(True, False)]
  page = (tmp_path / 'gpu.md').read_text()
  assert capsys.readouterr().out == page
  assert '| W4 | two devices | ' in page
  assert '| W4 | 2 | ' in page
  pytest.importorskip('jax')
  # Of one batch a client JAX's rounds are the same; both were measured equally often.
  ours, (_, other) = calls[-2:]
  start = workloads.build_model(W4).initial_weights[0]
  for _ in range(2):
    assert gpu_check.distance(other(), ours(), start) < 1e-4


def test_what_fails_or_is_no_number_is_not_within_its_bound(tmp_path, monkeypatch):
  monkeypatch.setattr(gpu_check, 'ROUNDING', {'together': 2.0**-24})

  def failing(workload, devices, together, options=()):
    if options:  # The CPU has none.
      raise RuntimeError('no\nkernel')
    return lambda: []

  monkeypatch.setattr(gpu_check, 'rounds', failing)
  (row,) = gpu_check.compare('W4', CPU)
  assert (row['error'], row['is_within']) == ('RuntimeError: no kernel', False)
  assert not gpu_check.distance([np.array(math.nan)], [np.ones(1)], [np.zeros(1)]) <= 1
  monkeypatch.setattr(gpu_check, 'logical_devices', lambda kind: CPU)
  monkeypatch.setattr(gpu_check, 'compare', lambda name, _: {'W2': [row]}[name])
  with pytest.raises(KeyError, match='W4'):  # What was found before is in the files.
    gpu_check.main(['gpu_check.py', '--device=cpu', f'--output={tmp_path}/g'])
  assert json.loads((tmp_path / 'g.json').read_text())['results'] == [row]
