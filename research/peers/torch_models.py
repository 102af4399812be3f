"""The models of the workloads in PyTorch, with the loss that this project's have."""

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
  x, y = torch.from_numpy(data['x']), torch.from_numpy(data['y'])
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
