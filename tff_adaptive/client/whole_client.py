"""A client given as whole arrays, in the one form that all processes take."""

import collections
from typing import Any

import numpy as np


def dataset(x: Any, y: Any, client: int) -> list[collections.OrderedDict]:
  """Returns a client's data for a process built with `batching`: a dataset of one element.

  Args:
    x: Inputs [n, ...] of the model's dtype, n >= 0.
    y: Labels [n, ...].
    client: The client's number, int32, which its shuffling and dropout depend on.

  Returns:
    `[OrderedDict(x=x, y=y, client=client)]`.

  Raises:
    ValueError: If x and y are of unequal length.
  """
  if len(x) != len(y):
    raise ValueError(
      f'client {client} has {len(x)} inputs but {len(y)} labels: give one label for each input.'
    )
  return [collections.OrderedDict(x=x, y=y, client=np.int32(client))]
