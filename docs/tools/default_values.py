"""Shows the values of defaults: an extension of griffe, which mkdocs.yml names.

The pages of the API are read from the source, where a default may be an expression such as
`_ENTRY.default('mu')`. A page shows `mu: float = 0.02` instead.
"""

import ast
import dataclasses
import importlib
from typing import Any

import griffe

_SHOWN = (int, float, str, bool, type(None))


def value(expression: Any, module: str) -> Any:
  """Returns a default in the form in which a page shows it.

  Args:
    expression: The default as griffe read it: a string, a tree of names, or None.
    module: The name of its module, which is imported unless the default is a literal.

  Returns:
    The text of its value if that is a number, a string, a bool or None, else `expression`. None for
    a field of a data class without a default.
  """
  try:
    ast.literal_eval(str(expression))
  except (SyntaxError, ValueError):
    default = eval(str(expression), dict(vars(importlib.import_module(module))))
    if isinstance(default, dataclasses.Field):
      default = default.default
    if default is dataclasses.MISSING:
      return None
    if isinstance(default, _SHOWN):
      return repr(default)
  return expression


class DefaultValues(griffe.Extension):
  """Replaces the defaults of arguments and of classes' fields by their values."""

  def on_function_instance(self, *, func: griffe.Function, **others: Any) -> None:
    """Called by griffe for each function that it has read."""
    for parameter in func.parameters:
      if parameter.default is not None:
        parameter.default = value(parameter.default, func.module.path)

  def on_attribute_instance(self, *, node: Any, attr: griffe.Attribute, **others: Any) -> None:
    """Called by griffe for each assignment that it has read."""
    # What a method assigns to an attribute of `self` is no default, and may name its arguments.
    targets = getattr(node, 'targets', None) or [getattr(node, 'target', None)]
    is_of_self = isinstance(targets[0], ast.Attribute)
    is_field = 'class-attribute' in attr.labels and attr.annotation and not is_of_self
    if is_field and attr.value is not None:
      attr.value = value(attr.value, attr.module.path)
