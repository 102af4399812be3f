"""The models of the workloads in PyTorch, with the loss that this project's have."""

import os
from collections.abc import Callable
from typing import Any

import torch
from serving import data_dir, workloads
from torch import nn


def build(workload: workloads.Workload) -> tuple[nn.Module, Callable[[Any, Any], Any]]:
  """A workload's model and its mean loss, `(outputs, y) -> []`."""
  cross_entropy = nn.CrossEntropyLoss()
  if workload.name.startswith('W1'):
    stack = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    stack += [nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU()]
    return nn.Sequential(*stack, nn.Dropout(0.5), nn.Linear(128, 62)), cross_entropy
  if workload.images:
    stack = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
    stack += [nn.Dropout(0.25), nn.Flatten(), nn.Linear(12544, 128), nn.ReLU()]
    stack += [nn.Dropout(0.5), nn.Linear(128, 10)]
    for layer in stack:
      if isinstance(layer, (nn.Conv2d, nn.Linear)):  # As its benchmark draws them.
        nn.init.xavier_uniform_(layer.weight)
    return nn.Sequential(*stack), cross_entropy
  if workload.name == 'W2':
    return nn.Linear(10000, 500), nn.BCEWithLogitsLoss()
  if workload.name == 'W3':
    return _Characters(), lambda outputs, y: cross_entropy(outputs.flatten(0, 1), y.flatten())
  stack = [nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 26)]
  return nn.Sequential(*stack), cross_entropy


def arrays(workload: workloads.Workload, client: int) -> tuple[torch.Tensor, torch.Tensor]:
  """A client's x and y as PyTorch takes them: channels first, class numbers int64."""
  data = workloads.client_arrays(workload, client, data_dir())
  return _tensors(workload, data['x'], data['y'])


def accuracy(workload: workloads.Workload, module: nn.Module) -> float:
  """That of a model on the workload's test images."""
  arrays = workloads.image_arrays(os.path.join(data_dir(), workload.images))
  x, y = _tensors(workload, arrays['x_test'], arrays['y_test'])
  module.eval()
  with torch.no_grad():
    right = [(module(a).argmax(1) == b).sum() for a, b in zip(x.split(1000), y.split(1000))]
  return float(sum(right)) / len(y)


def _tensors(workload: workloads.Workload, x: Any, y: Any) -> tuple[torch.Tensor, torch.Tensor]:
  x, y = torch.from_numpy(x), torch.from_numpy(y)
  if workload.name.startswith('W1') or workload.images:
    x = x.permute(0, 3, 1, 2).contiguous()
  if workload.name == 'W3':
    x = x.long()
  return x, y if y.dtype == torch.float32 else y.long()


class _Characters(nn.Module):
  """Shakespeare's model: embedding 8, two LSTM layers of 256, 90 characters."""

  def __init__(self) -> None:
    super().__init__()
    self.embedding = nn.Embedding(90, 8)
    self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
    self.output = nn.Linear(256, 90)

  def forward(self, x: torch.Tensor) -> torch.Tensor:
    """int64 [B, 80] -> float32 [B, 80, 90]."""
    return self.output(self.lstm(self.embedding(x))[0])
