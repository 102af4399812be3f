"""Makes entries of the registry from objects in a user's own file, 'FILE.py:NAME'."""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Callable
from typing import Any

from tff_adaptive._utils import hyperparameters, user_code
from tff_adaptive.corrections import base
from tff_adaptive.optimizers.base import Formula
from tff_adaptive.registry import described, entries, optimizers

# Fields of a correction that `Correction.configure` sets from the registered clients.
CLIENT_FIELDS = ('num_clients', 'mean_examples')

_KINDS = (float, int, bool)
_WANTED = 'a frozen dataclass that subclasses tff_adaptive.corrections.Correction'


def algorithm(reference: str) -> entries.Algorithm:
  """Returns the entry of a user's algorithm; see `registry.algorithm`."""
  return _entry(reference, entries.Algorithm, _of_correction)


def _of_correction(loaded: Any, source: user_code.UserCode) -> entries.Algorithm:
  """Returns the entry derived from a `Correction` subclass; see `registry.algorithm`."""
  if not (isinstance(loaded, type) and issubclass(loaded, base.Correction)):
    raise ValueError(f'is no algorithm: give {_WANTED}, or a tff_adaptive.registry.Algorithm')
  _check_frozen(loaded, _WANTED)
  name = _own_name(loaded)
  weighting = loaded.client_weighting
  if weighting not in (None, 'examples', 'uniform'):
    raise ValueError(f"has client_weighting {weighting!r}: give 'examples' or 'uniform'")
  entry = described.algorithm(
    (loaded,),
    settings={},
    name=name,
    title=loaded.title or name,
    description=loaded.summary or _first_line(loaded),
    source=source,
  )
  uploads = entry.uploads
  if loaded.overrides('client_update', 'exchange') and not loaded.uploads_what:
    uploads = 'what its client_update uploads'
  return dataclasses.replace(entry, hyperparameters=_of_fields(loaded), uploads=uploads)


def _of_fields(loaded: Any) -> tuple[entries.Hyperparameter, ...]:
  """Returns the hyperparameters of a class: those declared with `option`, and other fields."""
  declared = {h.name: h for h in hyperparameters.declared_by(loaded)}
  types = typing.get_type_hints(loaded)
  of_fields = []
  for field in dataclasses.fields(loaded):
    if field.name in declared:
      of_fields.append(declared[field.name])
    elif field.init and field.name not in CLIENT_FIELDS:
      help_text = field.metadata.get('help', '')
      of_fields.append(hyperparameter(field.name, types[field.name], field.default, help_text))
  return tuple(of_fields)


def optimizer(reference: str, role: str) -> entries.ServerOptimizer:
  """Returns the entry of a user's optimizer of a role; see `registry.server_optimizer`."""

  def make(loaded: Any, source: user_code.UserCode) -> entries.ServerOptimizer:
    if isinstance(loaded, type) and issubclass(loaded, Formula):
      return _of_formula(loaded, source, role)
    if not callable(loaded):
      raise ValueError('is no function of a learning rate to a TFF optimizer: give one')
    name = source.name.removeprefix('build_')
    options = _from_signature(loaded)
    return entries.ServerOptimizer(name, name, _first_line(loaded), loaded, options, source)

  return _entry(reference, entries.ServerOptimizer, make)


def _of_formula(
  loaded: type[Formula], source: user_code.UserCode, role: str
) -> entries.ServerOptimizer:
  """Returns the entry derived from a `Formula` subclass."""
  wanted = 'a frozen dataclass that subclasses tff_adaptive.optimizers.Formula'
  _check_frozen(loaded, wanted)
  name = _own_name(loaded)
  if role not in loaded.used_by:
    raise ValueError(
      f'is no optimizer of the {role}, but of {", ".join(loaded.used_by)}: add {role!r} to its'
      ' used_by if its formula suits them'
    )
  entry = optimizers.entry(loaded, role, name, _of_fields(loaded))
  description = loaded.summary or _first_line(loaded)
  return dataclasses.replace(entry, name=name, description=description, source=source)


def _check_frozen(loaded: type, wanted: str) -> None:
  """Raises ValueError unless a class is itself a frozen dataclass."""
  # Not `getattr`, which would find those of a base class.
  parameters = vars(loaded).get('__dataclass_params__')
  if parameters is None or not parameters.frozen:
    raise ValueError(f'is no frozen dataclass: give {wanted}')


def _own_name(loaded: type) -> str:
  """Returns the name that a class gives itself, or the class's; not that of a base class."""
  name = vars(loaded).get('name', loaded.__name__)
  if not isinstance(name, str) or not re.fullmatch(r'\w[\w.-]*', name):
    raise ValueError(f'has the name {name!r}: use only letters, digits, _, - and .')
  return name


def _entry(reference: str, kind: Any, make: Callable[[Any, user_code.UserCode], Any]) -> Any:
  """Returns the entry at a reference, or the one `make` builds; any error becomes a ValueError."""
  loaded, source = user_code.load(reference)
  try:
    if isinstance(loaded, kind):
      return dataclasses.replace(loaded, source=source)
    return make(loaded, source)
  except KeyboardInterrupt:
    raise
  except BaseException as error:  # The user's annotations and attributes may raise.
    words: Any = error
    if type(error) is not ValueError:
      words = f'cannot be used: {user_code.in_words(error)}'
    raise ValueError(f'{source.name} of {source.path!r} {words}.') from error


def _from_signature(loaded: Any) -> tuple[entries.Hyperparameter, ...]:
  arguments = list(inspect.signature(loaded).parameters.values())
  if not arguments or arguments[0].kind > inspect.Parameter.POSITIONAL_OR_KEYWORD:
    raise ValueError('takes no learning rate as its first argument: give it one')
  types: dict[str, Any] = {}
  if not isinstance(loaded, type):
    types = _argument_types(loaded)
  several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
  return tuple(
    hyperparameter(a.name, types.get(a.name, type(a.default)), a.default)
    for a in arguments[1:]
    if a.kind not in several
  )


def _argument_types(function: Callable[..., Any]) -> dict[str, Any]:
  """Returns the types of a function's arguments by name.

  The type of its result is left out: it may be known to type checkers only.
  """
  annotations = dict(inspect.get_annotations(function))
  annotations.pop('return', None)
  arguments = types.SimpleNamespace(__annotations__=annotations)
  return typing.get_type_hints(arguments, getattr(function, '__globals__', {}))


def hyperparameter(
  name: str, kind: Any, default: Any, help_text: str = ''
) -> entries.Hyperparameter:
  """Returns a hyperparameter without a range; the user's class or function checks its value."""
  place = f'has the option {name}'
  if default in (dataclasses.MISSING, inspect.Parameter.empty):
    raise ValueError(f'{place} without a default: give it one, as in {name}: float = 0.1')
  if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
    # A type such as float | tf.Tensor | None, as in TFF's optimizers: a number, or None.
    known = [k for k in _KINDS if k in typing.get_args(kind)]
    # The type of the default comes first: of float | int with the default 1 the kind is int.
    known.sort(key=lambda k: k is not type(default))
    has_none = types.NoneType in typing.get_args(kind)
    if known and (default is not None or has_none):
      kind = known[0]
  if kind not in _KINDS:
    raise ValueError(f'{place} of the type {kind}: options are float, int or bool')
  option = entries.Hyperparameter(name, kind, default, help_text or name)
  if default is None:
    return option
  try:
    return dataclasses.replace(option, default=option.checked(default))
  except (TypeError, ValueError) as error:
    raise ValueError(f'{place} with a default that is refused: {error}'.rstrip('.')) from None


def _first_line(loaded: Any) -> str:
  text = (loaded.__doc__ or '').strip()  # Not inspect.getdoc, which takes a base class's.
  if not text or text.startswith(f'{loaded.__name__}('):  # Written by `dataclass`.
    return "a user's own"
  return text.splitlines()[0].rstrip('.')
