"""Where a round's work lands, on logical CPU devices, which do not change its results."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tff_adaptive import cuda, execution
from tff_adaptive.execution import devices


@pytest.fixture(scope='module')
def placed():
  """Device -> operations, from a process that has also compared all results."""
  done = subprocess.run(
    [sys.executable, '-m', 'tests.tff_adaptive.execution.on_devices'],
    capture_output=True,
    text=True,
    cwd=pathlib.Path(__file__).resolve().parents[3],
    env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3'},
    check=False,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


@pytest.mark.slow
def test_results_are_those_of_one_device_and_each_device_trains_its_clients(placed):
  assert set(placed) == {'CPU:0', 'CPU:1', 'CPU:2', 'CPU:3'}
  # The gradient of the softmax is the model's own; the sign is FedYogi's, at the server.
  for operation, where in (
    ('SparseSoftmaxCrossEntropyWithLogits', {'CPU:1', 'CPU:2', 'CPU:3'}),
    ('TanhGrad', {'CPU:1', 'CPU:2', 'CPU:3'}),
    ('StatelessRandomUniformV2', {'CPU:1', 'CPU:2', 'CPU:3'}),
    ('Sign', {'CPU:1'}),
  ):
    assert {device for device, found in placed.items() if operation in found} == where, operation


def test_without_a_gpu_no_device_is_named_and_the_gpu_is_refused():
  if devices.place('auto').is_gpu:
    pytest.skip('there is a GPU')
  for device in ('auto', 'cpu'):
    assert devices.place(device) == devices.Placement()
    assert not devices.place(device).is_named
  with pytest.raises(ValueError, match='no GPU can be used'):
    execution.GraphContext(device='gpu')
  with pytest.raises(ValueError, match="device is 'tpu'; it must be one of auto, cpu, gpu"):
    execution.GraphContext(device='tpu')


def test_on_gpus_a_cohort_trains_together_in_equal_shares():
  one, four = devices.Placement(('/GPU:0',), True), devices.Placement(('/GPU:0',) * 4, True)
  assert [one.clients_together(n) for n in (0, 1, 10, 50)] == [1, 1, 10, devices.MOST_TOGETHER]
  assert [four.clients_together(n) for n in (1, 10, 50)] == [1, 3, 13]
  assert devices.Placement().clients_together(10) == 1


CUDA_11 = {'is_cuda_build': True, 'cuda_version': '11.8', 'cudnn_version': '8'}


def test_what_is_missing_for_a_gpu_is_named():
  present = {'libcudart.so.11.0', 'libcublas.so.11', 'libcublasLt.so.11', 'libcufft.so.10'}
  said = cuda.explain(CUDA_11, lambda name, folder: name in present)
  for name in ('libcuda.so.1', 'libcudnn.so.8', 'libcusolver.so.11', 'libcusparse.so.11'):
    assert name in said
  assert not any(name in said for name in present)
  assert 'make env-gpu' in said
  assert 'driver' in said
  assert '\n' not in said
  # With the libraries there, it is the driver, and without the driver's fault the devices.
  said = cuda.explain(CUDA_11, lambda name, folder: name != 'libcuda.so.1')
  assert 'libcuda.so.1' in said
  assert 'make env-gpu' not in said
  assert 'nvidia-smi' in cuda.explain(CUDA_11, lambda name, folder: True)
  assert 'without CUDA' in cuda.explain({'is_cuda_build': False})
  names = {library.name for library in cuda.libraries('12.2', '8.9')}
  assert {'libcudart.so.12', 'libcublas.so.12', 'libcusparse.so.12', 'libcudnn.so.8'} <= names
  with pytest.raises(ValueError, match=r'CUDA 10\.1 is not known'):
    cuda.libraries('10.1', '7')


def test_the_installed_tensorflow_is_built_for_these_libraries():
  build = cuda.installed_build()
  assert build['is_cuda_build']
  assert (build['cuda_version'], build['cudnn_version']) == ('11.8', '8')
  assert not cuda.opens('libno_such_library.so.7', 'cublas')
  assert cuda.opens('libc.so.6', '')
