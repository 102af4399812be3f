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
  actual, expected, rtol=closeness.RTOL, atol=closeness.ATOL, where='result', values=True
):
  """Asserts equal structures, dtypes and shapes and, with `values`, numbers that are close.

  For the tolerances, which are relative to the norm of each tensor, see `closeness`.
  """
  actual = plain(actual)
  expected = plain(expected)
  _assert_same(actual, expected, rtol, atol, where, values)


def _assert_same(actual, expected, rtol, atol, where, values):
  assert isinstance(actual, Container) == isinstance(expected, Container), where
  if isinstance(expected, Container):
    assert actual[:2] == expected[:2], where
    assert len(actual.elements) == len(expected.elements), where
    names = expected.names or range(len(expected.elements))
    for name, one, other in zip(names, actual.elements, expected.elements):
      _assert_same(one, other, rtol, atol, f'{where}.{name}', values)
    return
  kinds = (np.ndarray, np.generic, bytes)  # Or tensors, in a dataset.
  assert isinstance(actual, kinds) == isinstance(expected, kinds), where
  actual = np.asarray(actual)
  expected = np.asarray(expected)
  if expected.dtype.kind in 'OS':
    actual = actual.astype(object)
    expected = expected.astype(object)
  assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), where
  if not values:
    return
  if expected.dtype.kind == 'f':
    closeness.assert_close(actual, expected, rtol, atol, where)
  else:
    np.testing.assert_array_equal(actual, expected, err_msg=where)
