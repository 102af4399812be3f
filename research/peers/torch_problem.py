"""The same for libraries that are built on PyTorch: in float64."""

import pathlib
from typing import Any

import torch

from research.peers import problem

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)

# The torchvision of PyPI is built for CUDA. Beside a PyTorch for CPUs it cannot load its operators,
# and importing it fails on these two, which nothing here calls.
try:
  torch.ops.load_library(
    str(next(pathlib.Path(torch.__path__[0]).parent.glob('torchvision/_C.so')))
  )
except (OSError, StopIteration):
  OPERATORS = torch.library.Library('torchvision', 'DEF')
  for operator in ('nms', 'qnms'):
    OPERATORS.define(f'{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')


class Linear(torch.nn.Module):
  """x w, from the initial weights."""

  def __init__(self) -> None:
    super().__init__()
    self.weight = torch.nn.Parameter(torch.tensor(problem.START))

  def forward(self, x: Any) -> Any:
    return x @ self.weight


class HalfSquare(torch.nn.Module):
  """1/2 mean (x w - y)^2."""

  def forward(self, prediction: Any, y: Any) -> Any:
    return 0.5 * torch.mean((prediction - y) ** 2)


def batches(client: int) -> list[tuple[Any, Any]]:
  """The batches of one pass of a client."""
  return [(torch.tensor(x), torch.tensor(y)) for x, y in problem.batches(client)]


def weights(model: Any) -> list[float]:
  """The weights of a model, or of a dictionary that has it."""
  state = model if isinstance(model, dict) else model.state_dict()
  return state['weight'].detach().numpy().tolist()
