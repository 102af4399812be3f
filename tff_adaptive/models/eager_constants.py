"""Lets functions use tensors that were made outside of them, such as a `tf.constant` of a module.

TFF traces a computation as a plain graph, in which TensorFlow refuses a tensor of eager mode
("Attempting to capture an EagerTensor without building a function"). A `tf.function` captures such
a tensor. Here the function is traced as a `tf.function`, and its captured tensors become constants
of the surrounding graph.
"""

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_adaptive._utils import private_apis

MESSAGE = (
  'the model uses a tensor that was made outside of its function, such as a tf.constant of a'
  ' module, which TFF cannot take along: make it in the model function, or give a NumPy array'
)


def is_refusal(error: Exception) -> bool:
  """Returns whether a graph has refused a tensor of eager mode."""
  return 'Attempting to capture an EagerTensor' in str(error)


def lifted(function: Callable[..., Any]) -> Callable[..., Any]:
  """Returns the function with its eager tensors as constants of the graph that it is called in.

  The function must not create variables. In eager mode it is called as it is.
  """

  @functools.wraps(function)
  def call(*arguments: Any, **named: Any) -> Any:
    if tf.executing_eagerly():
      return function(*arguments, **named)
    traced = tf.function(lambda: function(*arguments, **named), autograph=False)
    return private_apis.call_with_constants(traced.get_concrete_function())

  return call


def lifted_if_needed(function: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
  """Returns the function, `lifted` if it uses eager tensors.

  Args:
    function: The function, of positional arguments.
    *specs: The specs of its arguments, for a trace.
  """
  traced = tf.function(function, input_signature=specs, autograph=False)
  uses_some = private_apis.captures_eager_tensors(traced.get_concrete_function())
  if uses_some:
    return lifted(function)
  return function
