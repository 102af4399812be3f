"""Finds the CUDA libraries that TensorFlow needs for a GPU. Imports no TensorFlow."""

import ctypes
import importlib.util
import os
from collections.abc import Mapping
from typing import Any

from tff_adaptive._utils import private_apis

DEVICES = ('auto', 'cpu', 'gpu')
_DRIVER = 'libcuda.so.1'
_FIX = "run make env-gpu (or 'tff-adaptive-environment --add=gpu')"
# The libraries that TensorFlow 2.21 (CUDA 12) opens, and their folders in NVIDIA's packages. If
# one is missing, TensorFlow registers no GPU, even if nothing uses the library.
_LIBRARIES = {
  'libcudart.so.12': 'cuda_runtime',
  'libcublas.so.12': 'cublas',
  'libcublasLt.so.12': 'cublas',
  'libcufft.so.11': 'cufft',
  'libcusolver.so.11': 'cusolver',
  'libcusparse.so.12': 'cusparse',
  'libcudnn.so.9': 'cudnn',
  _DRIVER: '',
}


def missing_libraries() -> list[str]:
  """Returns the names of the libraries for GPUs (also NVIDIA's driver) that cannot be opened."""
  return [name for name, folder in _LIBRARIES.items() if not opens(name, folder)]


def explain(build: Mapping[str, Any]) -> str:
  """Returns why TensorFlow has no GPU, and a remedy; `build` is `tf.sysconfig.get_build_info()`."""
  if not build.get('is_cuda_build'):
    return (
      f'no GPU can be used: the installed TensorFlow is built without CUDA: {_FIX}, or take the CPU'
    )
  missing = missing_libraries()
  reasons = []
  if _DRIVER in missing:
    # The driver comes with the machine, the others with packages: other remedies.
    missing.remove(_DRIVER)
    reasons.append(
      f'the NVIDIA driver ({_DRIVER}) cannot be opened: install it, or start the container with'
      ' its GPUs'
    )
  if missing:
    reasons.append(f'of CUDA 12 these cannot be opened: {", ".join(missing)}: {_FIX}')
  if not reasons:
    reason = 'the driver and CUDA are there, but no GPU is: see what nvidia-smi says'
    visible = os.environ.get('CUDA_VISIBLE_DEVICES')
    if visible is not None:
      reason += f', and CUDA_VISIBLE_DEVICES, which is {visible!r}'
    reasons.append(reason)
  return f'no GPU can be used: {"; ".join(reasons)}. Or take the CPU'


def opens(name: str, folder: str) -> bool:
  """Opens the shared library `name` and returns whether this worked.

  It is sought in `folder` of NVIDIA's Python packages ('' skips them), then in the system. It stays
  open, so that TensorFlow, which may not search these packages, finds it by name.
  """
  places = [os.path.join(root, folder, 'lib', name) for root in _nvidia_folders() if folder]
  for path in [*filter(os.path.exists, places), name]:
    try:
      ctypes.CDLL(path)
      return True
    except OSError:
      continue
  return False


def open_libraries() -> None:
  """Opens NVIDIA's libraries if there is a driver. Call this before TensorFlow looks for GPUs."""
  build = private_apis.installed_build()
  has_packages = build.get('is_cuda_build') and any(map(os.path.isdir, _nvidia_folders()))
  if has_packages and opens(_DRIVER, ''):
    missing_libraries()  # It opens the others.


def _nvidia_folders() -> list[str]:
  """Returns the folders in which NVIDIA's Python packages are, or would be."""
  package = importlib.util.find_spec('tensorflow')
  roots = (package and package.submodule_search_locations) or ()
  return [os.path.join(os.path.dirname(root), 'nvidia') for root in roots]


def check_libraries() -> None:
  """Raises ValueError if TensorFlow is built without CUDA, or a library it needs is missing."""
  build = private_apis.installed_build()
  if not build.get('is_cuda_build') or missing_libraries():
    raise ValueError(explain(build))
