"""A client given as whole arrays, in the one form that all processes take."""

import collections
from typing import Any

import numpy as np

from tff_adaptive._utils import validation

_LEAST, _MOST = -(2**31), 2**31 - 1  # Of int32.


def client_arrays(
  x: Any, y: Any, client: int, max_steps: int | None = None, **more: Any
) -> list[collections.OrderedDict]:
  """Returns a client's data for a process built with `batching`: a dataset of one element.

  Args:
    x: Inputs [n, ...] of the model's dtype, n >= 0.
    y: Labels [n, ...].
    client: The client's number, int32, which its shuffling and dropout depend on.
    max_steps: The most local steps that it takes, int32, >= 0, for a process built with
      `Batching(..., step_limits=True)`; None for one built without.
    **more: Scalars for further entries, see `ClientTraining.versions`.

  Returns:
    `[OrderedDict(x=x, y=y, client=client)]`, then `max_steps` where it is given, and the others.

  Raises:
    ValueError: If x and y are of unequal length, or a number is out of its range.
    TypeError: If a number is not whole.
  """
  hint = "give the client's place among all clients, from 0"
  validation.whole_number('client', client, _LEAST, hint, high=_MOST)
  if len(x) != len(y):
    raise ValueError(
      f'client {client} has {len(x)} inputs but {len(y)} labels: give one label for each input.'
    )
  element = collections.OrderedDict(x=x, y=y, client=np.int32(client))
  if max_steps is not None:
    hint = f'give client {client} 0 or more local steps'
    validation.whole_number('max_steps', max_steps, 0, hint, high=_MOST)
    element['max_steps'] = np.int32(max_steps)
  element.update(more)
  return [element]
