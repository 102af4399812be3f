"""Lets torchvision be imported beside a PyTorch without CUDA. Import this before torchvision.

The torchvision of PyPI is built for CUDA. Beside a PyTorch for CPUs it cannot load its operators,
and importing it fails on these two, which nothing here calls.
"""

import pathlib

import torch

try:
  torch.ops.load_library(
    str(next(pathlib.Path(torch.__path__[0]).parent.glob('torchvision/_C.so')))
  )
except (OSError, StopIteration):
  OPERATORS = torch.library.Library('torchvision', 'DEF')
  for operator in ('nms', 'qnms'):
    OPERATORS.define(f'{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor')
