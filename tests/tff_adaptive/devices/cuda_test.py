"""What is missing for a GPU is named."""

from tff_adaptive.devices import cuda


def test_a_library_is_there_if_it_can_be_opened():
  assert not cuda.opens('libno_such_library.so.7', 'cublas')
  assert cuda.opens('libc.so.6', '')


def test_what_is_missing_for_a_gpu_is_named(monkeypatch):
  present = {'libcudart.so.12', 'libcublas.so.12', 'libcublasLt.so.12', 'libcufft.so.11'}
  monkeypatch.setattr(cuda, 'opens', lambda name, folder: name in present)
  said = cuda.explain({'is_cuda_build': True})
  for name in ('libcuda.so.1', 'libcudnn.so.9', 'libcusolver.so.11', 'libcusparse.so.12'):
    assert name in said
  assert not any(name in said for name in present)
  assert 'env-gpu' in said
  assert 'driver' in said
  assert '\n' not in said


def test_with_the_libraries_there_it_is_the_driver(monkeypatch):
  monkeypatch.setattr(cuda, 'opens', lambda name, folder: name != 'libcuda.so.1')
  said = cuda.explain({'is_cuda_build': True})
  assert 'libcuda.so.1' in said
  assert 'env-gpu' not in said


def test_without_the_drivers_fault_it_is_the_devices_or_the_build(monkeypatch):
  monkeypatch.setattr(cuda, 'opens', lambda name, folder: True)
  assert 'nvidia-smi' in cuda.explain({'is_cuda_build': True})
  assert 'without CUDA' in cuda.explain({'is_cuda_build': False})
