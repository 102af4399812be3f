"""Finds the CUDA libraries that TensorFlow needs for a GPU. Imports no TensorFlow."""

import ctypes
import importlib.util
import os
from collections.abc import Callable, Mapping
from typing import Any

from tff_adaptive._utils import private_apis

DEVICES = ('auto', 'cpu', 'gpu')
_DRIVER = 'libcuda.so.1'
_FIX = "install NVIDIA's packages of requirements-gpu.lock"


def libraries(cuda_version: str, cudnn_version: str) -> dict[str, str]:
  """Returns the CUDA libraries of a TensorFlow build (CUDA 11 or 12), and NVIDIA's folders.

  TensorFlow opens all of them, and registers no GPU if one is missing.
  """
  major = cuda_version.split('.')[0]
  # NVIDIA numbers each library by itself; these are the numbers of CUDA 11.2 to 11.8 and of 12.
  versions = {
    '11': {'cudart': '11.0', 'cublas': '11', 'cufft': '10', 'cusolver': '11', 'cusparse': '11'},
    '12': {'cudart': '12', 'cublas': '12', 'cufft': '11', 'cusolver': '11', 'cusparse': '12'},
  }
  if major not in versions:
    raise ValueError(f'CUDA {cuda_version} is not known here; 11 and 12 are')
  numbers = {**versions[major], 'cudnn': cudnn_version.split('.')[0]}
  found = {f'lib{name}.so.{number}': name for name, number in numbers.items()}
  found[f'libcublasLt.so.{numbers["cublas"]}'] = 'cublas'
  found[f'libcudart.so.{numbers["cudart"]}'] = 'cuda_runtime'
  return found


def missing_libraries(
  build: Mapping[str, Any], can_open: Callable[[str, str], bool] | None = None
) -> list[str]:
  """Returns the libraries, including NVIDIA's driver, that TensorFlow needs but does not find."""
  wanted = {**libraries(build['cuda_version'], build['cudnn_version']), _DRIVER: ''}
  return [name for name, folder in wanted.items() if not (can_open or opens)(name, folder)]


def explain(build: Mapping[str, Any], can_open: Callable[[str, str], bool] | None = None) -> str:
  """Explains in one line why TensorFlow has no GPU, and what to do.

  Args:
    build: `tf.sysconfig.get_build_info()`.
    can_open: `(name, folder) -> bool`, whether a library can be opened. The default tries to open
      it.
  """
  if not build.get('is_cuda_build'):
    return (
      'no GPU can be used: the installed TensorFlow is built without CUDA. Install the tensorflow'
      ' of requirements.lock, or take the CPU'
    )
  missing = missing_libraries(build, can_open)
  reasons = []
  if _DRIVER in missing:
    missing.remove(_DRIVER)
    reasons.append(
      f'the NVIDIA driver ({_DRIVER}) cannot be opened: install it, or start the container with'
      ' its GPUs'
    )
  if missing:
    reasons.append(
      f'of CUDA {build["cuda_version"]} these cannot be opened: {", ".join(missing)}: {_FIX}'
    )
  if not reasons:
    visible = os.environ.get('CUDA_VISIBLE_DEVICES')
    reasons.append(
      'the driver and CUDA are there, but no GPU is: see what nvidia-smi says'
      + ('' if visible is None else f', and CUDA_VISIBLE_DEVICES, which is {visible!r}')
    )
  return f'no GPU can be used: {"; ".join(reasons)}. Or take the CPU'


def opens(name: str, folder: str) -> bool:
  """Whether a shared library can be opened, from NVIDIA's Python package or the system.

  The library stays open, so that TensorFlow finds it by name. TensorFlow 2.14.1 does not search
  NVIDIA's packages itself.
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
  """Opens NVIDIA's packages if they and a driver are installed; call this before TensorFlow."""
  build = private_apis.installed_build()
  has_packages = build.get('is_cuda_build') and any(map(os.path.isdir, _nvidia_folders()))
  if has_packages and opens(_DRIVER, ''):
    missing_libraries(build)


def _nvidia_folders() -> list[str]:
  """Returns the folders in which NVIDIA's Python packages are, or would be."""
  package = importlib.util.find_spec('tensorflow')
  roots = (package and package.submodule_search_locations) or ()
  return [os.path.join(os.path.dirname(root), 'nvidia') for root in roots]


def check_libraries() -> None:
  """Refuses a GPU early, before slow imports, if libraries are missing."""
  build = private_apis.installed_build()
  if not build.get('is_cuda_build') or missing_libraries(build):
    raise ValueError(explain(build))
