"""Runs the same rounds in TFF's native context and in the graph engine, and compares them."""

import collections
from typing import NamedTuple

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tests.helpers import closeness


def run(context, function, *arguments):
  """Calls a function (a TFF computation, say) in a context."""
  with tff.framework.get_context_stack().install(context):
    return function(*arguments)


class Container(NamedTuple):
  """A result's container: its kind, the names of its elements (if any) and the elements."""

  kind: str
  names: tuple
  elements: list


def plain(value):
  """A result as nested `Container`s."""
  names = ()
  if isinstance(value, tff.structure.Struct):
    names, elements = zip(*tff.structure.iter_elements(value))
  elif isinstance(value, collections.abc.Mapping):
    names = tuple(value)
    elements = value.values()
  elif attrs.has(type(value)):
    names = tuple(field.name for field in attrs.fields(type(value)))
    elements = [getattr(value, name) for name in names]
  elif isinstance(value, tf.data.Dataset):
    # Some are infinite.
    return Container('sequence', (), [plain(element) for element in value.take(1000)])
  elif isinstance(value, tuple):
    names = getattr(value, '_fields', ())
    elements = value
  elif isinstance(value, collections.abc.Sequence) and not isinstance(value, (str, bytes)):
    return Container('list', (), [plain(element) for element in value])
  else:
    return value
  return Container(type(value).__name__, names, [plain(element) for element in elements])


def assert_same(
  found, expected, rtol=closeness.RTOL, atol=closeness.ATOL, where='result', values=True
):
  """Asserts equal structures, dtypes and shapes and, with `values`, numbers that are close.

  For the tolerances, which are relative to the norm of each tensor, see `closeness`.
  """
  found = plain(found)
  expected = plain(expected)
  _assert_same(found, expected, rtol, atol, where, values)


def _assert_same(found, expected, rtol, atol, where, values):
  assert isinstance(found, Container) == isinstance(expected, Container), where
  if isinstance(expected, Container):
    assert found[:2] == expected[:2], where
    assert len(found.elements) == len(expected.elements), where
    names = expected.names or range(len(expected.elements))
    for name, one, other in zip(names, found.elements, expected.elements):
      _assert_same(one, other, rtol, atol, f'{where}.{name}', values)
    return
  kinds = (np.ndarray, np.generic, bytes)  # Or tensors, in a dataset.
  assert isinstance(found, kinds) == isinstance(expected, kinds), where
  found = np.asarray(found)
  expected = np.asarray(expected)
  if expected.dtype.kind in 'OS':
    found = found.astype(object)
    expected = expected.astype(object)
  assert (found.dtype, found.shape) == (expected.dtype, expected.shape), where
  if not values:
    return
  if expected.dtype.kind == 'f':
    closeness.assert_close(found, expected, rtol, atol, where)
  else:
    np.testing.assert_array_equal(found, expected, err_msg=where)
