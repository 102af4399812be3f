"""What is missing for a GPU is named."""

from tff_adaptive.devices import cuda


def test_what_is_missing_for_a_gpu_is_named(monkeypatch):
  assert not cuda.opens('libno_such_library.so.7', 'cublas')
  assert cuda.opens('libc.so.6', '')
  present = {'libcudart.so.12', 'libcublas.so.12', 'libcublasLt.so.12', 'libcufft.so.11'}
  monkeypatch.setattr(cuda, 'opens', lambda name, folder: name in present)
  said = cuda.explain({'is_cuda_build': True})
  for name in ('libcuda.so.1', 'libcudnn.so.9', 'libcusolver.so.11', 'libcusparse.so.12'):
    assert name in said
  assert not any(name in said for name in present)
  assert 'env-gpu' in said
  assert 'driver' in said
  assert '\n' not in said
  # With the libraries there, it is the driver, and without the driver's fault the devices.
  monkeypatch.setattr(cuda, 'opens', lambda name, folder: name != 'libcuda.so.1')
  said = cuda.explain({'is_cuda_build': True})
  assert 'libcuda.so.1' in said
  assert 'env-gpu' not in said
  monkeypatch.setattr(cuda, 'opens', lambda name, folder: True)
  assert 'nvidia-smi' in cuda.explain({'is_cuda_build': True})
  assert 'without CUDA' in cuda.explain({'is_cuda_build': False})
