"""What is missing for a GPU is named."""

import pytest

from tff_adaptive.devices import cuda

CUDA_11 = {'is_cuda_build': True, 'cuda_version': '11.8', 'cudnn_version': '8'}


def test_what_is_missing_for_a_gpu_is_named():
  present = {'libcudart.so.11.0', 'libcublas.so.11', 'libcublasLt.so.11', 'libcufft.so.10'}
  said = cuda.explain(CUDA_11, lambda name, folder: name in present)
  for name in ('libcuda.so.1', 'libcudnn.so.8', 'libcusolver.so.11', 'libcusparse.so.11'):
    assert name in said
  assert not any(name in said for name in present)
  assert 'requirements-gpu.lock' in said
  assert 'driver' in said
  assert '\n' not in said
  # With the libraries there, it is the driver, and without the driver's fault the devices.
  said = cuda.explain(CUDA_11, lambda name, folder: name != 'libcuda.so.1')
  assert 'libcuda.so.1' in said
  assert 'requirements-gpu.lock' not in said
  assert 'nvidia-smi' in cuda.explain(CUDA_11, lambda name, folder: True)
  assert 'without CUDA' in cuda.explain({'is_cuda_build': False})
  names = cuda.libraries('12.2', '8.9').keys()
  assert {'libcudart.so.12', 'libcublas.so.12', 'libcusparse.so.12', 'libcudnn.so.8'} <= names
  with pytest.raises(ValueError, match=r'CUDA 10\.1 is not known'):
    cuda.libraries('10.1', '7')


def test_what_can_be_opened():
  assert not cuda.opens('libno_such_library.so.7', 'cublas')
  assert cuda.opens('libc.so.6', '')
