"""Entries of the registry made from a user's own file, 'FILE.py:NAME'."""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Any

from tff_adaptive._utils import user_code
from tff_adaptive.registry import entries

# Fields of a correction that are filled in from the registered clients, see `Correction.configure`.
CLIENT_FIELDS = ('num_clients', 'mean_examples')

_KINDS = (float, int, bool)
_WANTED = 'give a frozen dataclass that subclasses tff_adaptive.corrections.Correction'


def algorithm(reference: str) -> entries.Algorithm:
  """Returns the entry of a user's algorithm.

  Args:
    reference: 'FILE.py:NAME' of an `Algorithm`, or of a `corrections.Correction` subclass that is
      a frozen dataclass. Of the latter the entry is derived: hyperparameters from its fields (name,
      type float, int or bool, default; help from `field(metadata={'help': ...})`), name and title
      from the class attribute `name`, the description from the docstring's first line, and from
      class attributes `is_stateful`, `client_weighting` (default 'uniform' if stateful, else
      'examples') and `counts`, a `Counts` or a function of the hyperparameters to one (default:
      FedAvg's). Fields `num_clients` and `mean_examples` are filled in from the clients.

  Raises:
    ValueError: In one line, if it cannot be loaded or is neither of the two.
  """
  found, source = user_code.load(reference)
  if isinstance(found, entries.Algorithm):
    return dataclasses.replace(found, source=source)
  describe = getattr(found, 'registry_entry', None)  # Of `corrections.Correction`.
  if not isinstance(found, type) or describe is None:
    raise _wrong(source, f'is no algorithm: {_WANTED}, or a tff_adaptive.registry.Algorithm')
  return describe(source)


def of_correction(found: Any, name: Any, source: user_code.UserCode) -> entries.Algorithm:
  """Returns the entry derived from a `corrections.Correction` subclass, see `algorithm`.

  Args:
    found: The class.
    name: Its name; that of the class where it has set none.
    source: Where it stands.

  Raises:
    ValueError: In one line, if an entry cannot be derived from it.
  """
  parameters = vars(found).get('__dataclass_params__')
  if parameters is None or not parameters.frozen:
    raise _wrong(source, f'is no frozen dataclass: {_WANTED}')
  if not isinstance(name, str) or not re.fullmatch(r'\w[\w.-]*', name):
    raise _wrong(source, f'has the name {name!r}: take letters, digits, _, - and .')
  weighting = getattr(found, 'client_weighting', 'uniform' if found.is_stateful else 'examples')
  if weighting not in ('examples', 'uniform'):
    raise _wrong(source, f"has client_weighting {weighting!r}: give 'examples' or 'uniform'")
  return entries.Algorithm(
    name,
    name,
    _first_line(found),
    correction=found,
    hyperparameters=_from_fields(found, source),
    is_stateful=bool(found.is_stateful),
    client_weighting=weighting,
    counts=_counts(found, source),
    source=source,
  )


def server_optimizer(reference: str) -> entries.ServerOptimizer:
  """Returns the entry of a user's server optimizer.

  Args:
    reference: 'FILE.py:NAME' of a `ServerOptimizer`, or of a function of the learning rate and
      options to a `tff.learning.optimizers.Optimizer`. Of the latter the entry is derived:
      hyperparameters from its arguments after the first (name, annotation, default).

  Raises:
    ValueError: In one line, if it cannot be loaded or is neither of the two.
  """
  found, source = user_code.load(reference)
  if isinstance(found, entries.ServerOptimizer):
    return dataclasses.replace(found, source=source)
  if not callable(found):
    raise _wrong(source, 'is no function of a learning rate to a TFF optimizer: give one')
  name = source.name.removeprefix('build_')
  return entries.ServerOptimizer(
    name, name, _first_line(found), found, _from_signature(found, source), source
  )


def _counts(found: Any, source: user_code.UserCode) -> Callable[..., entries.Counts]:
  counts = getattr(found, 'counts', entries.fed_avg_counts)
  if isinstance(counts, entries.Counts):
    return lambda values: counts
  if not callable(counts):
    raise _wrong(source, f'has counts {counts!r}: give a tff_adaptive.registry.Counts(...)')
  return counts


def _from_fields(found: Any, source: user_code.UserCode) -> tuple[entries.Hyperparameter, ...]:
  types = _annotations(found, source)
  return tuple(
    _hyperparameter(
      source, 'field', f.name, types[f.name], f.default, f.metadata.get('help', ''), f.init
    )
    for f in dataclasses.fields(found)
    if f.name not in CLIENT_FIELDS
  )


def _from_signature(found: Any, source: user_code.UserCode) -> tuple[entries.Hyperparameter, ...]:
  try:
    arguments = list(inspect.signature(found).parameters.values())
  except (TypeError, ValueError):
    arguments = []
  positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
  if not arguments or arguments[0].kind not in positional:
    raise _wrong(source, 'takes no learning rate as its first argument: give it one')
  types = {} if isinstance(found, type) else _annotations(found, source)
  made = []
  for argument in arguments[1:]:
    if argument.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
      continue
    kind = types.get(argument.name, type(argument.default))
    is_named = argument.kind is not inspect.Parameter.POSITIONAL_ONLY
    made.append(
      _hyperparameter(source, 'argument', argument.name, kind, argument.default, '', is_named)
    )
  return tuple(made)


def _hyperparameter(
  source: user_code.UserCode,
  what: str,
  name: str,
  kind: Any,
  default: Any,
  help_text: str,
  can_be_given: bool,
) -> entries.Hyperparameter:
  """Returns a hyperparameter without a range: the class or function checks that itself."""
  place = f'has the {what} {name}'
  if default in (dataclasses.MISSING, inspect.Parameter.empty) or not can_be_given:
    raise _wrong(source, f'{place} without a default: give it one, as in {name}: float = 0.1')
  if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
    # Such as float | tf.Tensor | None of TFF's own optimizers: a number, or none.
    known = [k for k in _KINDS if k in typing.get_args(kind)]
    known.sort(key=lambda k: k is not type(default))
    has_none = types.NoneType in typing.get_args(kind)
    kind = known[0] if known and (default is not None or has_none) else kind
  if kind not in _KINDS:
    raise _wrong(source, f'{place} of the type {kind}: hyperparameters are float, int or bool')
  if kind is float and type(default) is int:
    default = float(default)
  made = entries.Hyperparameter(name, kind, default, help_text or f'{name} of {source.name}')
  try:
    if default is not None:
      made.checked(default)
  except (TypeError, ValueError) as error:
    raise _wrong(source, f'{place} with a default that is refused: {error}'.rstrip('.')) from None
  return made


def _annotations(found: Any, source: user_code.UserCode) -> dict[str, Any]:
  try:
    return typing.get_type_hints(found)
  except Exception as error:  # Whatever evaluating the user's annotations raises.
    raise _wrong(source, f'has annotations that cannot be evaluated: {error}') from error


def _first_line(found: Any) -> str:
  text = (found.__doc__ or '').strip()  # Not inspect.getdoc, which takes a base class's.
  if not text or text.startswith(f'{found.__name__}('):  # What dataclass writes where none is.
    return "a user's own"
  return text.splitlines()[0].rstrip('.')


def _wrong(source: user_code.UserCode, what: str) -> ValueError:
  return ValueError(f'{source.name} of {source.path!r} {what}.')
