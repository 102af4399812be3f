"""The devices of a round: one for the server, and those among which clients are divided."""

import contextlib
import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_adaptive.devices import cuda

HOST = '/CPU:0'
MOST_TOGETHER = 32  # By default at most this number of clients train together on a GPU.


@dataclasses.dataclass(frozen=True)
class Placement:
  """The devices of a round.

  Attributes:
    clients: Devices among which the clients are divided. The server uses the first device. With
      (None,) no device is named, and TensorFlow places the operations.
    is_gpu: Whether the devices are GPUs.
  """

  clients: tuple[str | None, ...] = (None,)
  is_gpu: bool = False

  @property
  def server(self) -> str | None:
    """Returns the server's device, or None if TensorFlow chooses it."""
    return self.clients[0]

  @property
  def is_named(self) -> bool:
    """Returns whether devices are named, instead of chosen by TensorFlow."""
    return self.clients != (None,)

  def clients_together(self, num_clients: int) -> int:
    """Returns how many of `num_clients` a device trains at once by default, if the model can."""
    if not self.is_gpu:
      return 1
    of_a_device = -(-num_clients // len(self.clients))  # Rounded up.
    return max(1, min(MOST_TOGETHER, of_a_device))


def check(device: str) -> None:
  """Raises ValueError, with the reason, unless `device` is in `cuda.DEVICES` and available."""
  if device not in cuda.DEVICES:
    raise ValueError(f'device is {device!r}; it must be one of {", ".join(cuda.DEVICES)}')
  if device != 'cpu':
    cuda.open_libraries()
  if device == 'gpu' and not tf.config.list_physical_devices('GPU'):
    raise ValueError(cuda.explain(tf.sysconfig.get_build_info()))


def place(device: str, names: Sequence[str] | None = None) -> Placement:
  """Returns the placement of a round. This fixes TensorFlow's devices unless `names` are given.

  Args:
    device: 'auto' (the GPUs if TensorFlow has any, else the CPU), 'cpu' or 'gpu'.
    names: TensorFlow's names of the devices to use instead, such as '/GPU:1'.
  """
  if names is not None:
    return Placement(tuple(names), any('GPU' in name.upper() for name in names))
  # Listing logical devices initializes TensorFlow: from here on GPUs cannot be hidden any more.
  gpus = [gpu.name for gpu in tf.config.list_logical_devices('GPU')]
  if not gpus:
    return Placement()
  if device == 'cpu':
    return Placement((HOST,))
  return Placement(tuple(gpus), True)


def hide_gpus() -> None:
  """Hides the GPUs from this process. Call this before TensorFlow has used a device."""
  if tf.config.list_physical_devices('GPU'):
    tf.config.set_visible_devices([], 'GPU')


def on(device: str | None) -> Any:
  """Returns a context manager that places operations on a device; with None TensorFlow chooses."""
  if device is None:
    return contextlib.nullcontext()
  return tf.device(device)


def stays_on_host(tensor: tf.Tensor) -> bool:
  """Returns whether a tensor has a type that GPUs cannot hold."""
  return tensor.dtype in (tf.variant, tf.string, tf.resource)
