"""Makes the entry of an algorithm from its parts, which are classes that describe themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive._utils import hyperparameters
from tff_adaptive._utils.hyperparameters import Hyperparameter
from tff_adaptive.corrections import base, chains, optimizer_slots
from tff_adaptive.registry.entries import Algorithm, resolve


@dataclasses.dataclass(frozen=True)
class Parts:
  """The parts of an algorithm, as classes, and the names of their hyperparameters in its entry.

  Attributes:
    classes: The parts in order, subclasses of `corrections.Correction`.
    hyperparameters: Maps the name in the entry to the part's position and the part's own name.
  """

  classes: tuple[Any, ...]
  hyperparameters: Mapping[str, tuple[int, str]] = dataclasses.field(hash=False)

  @property
  def name(self) -> str:
    """The parts' names, such as scaffold+sam."""
    return '+'.join(part.name for part in self.classes)

  def configure(
    self, values: Mapping[str, Any], clients: base.RegisteredClients | None = None
  ) -> base.Correction:
    """Returns the chain with the given hyperparameters; see `Correction.configure`."""
    by_part: list[dict[str, Any]] = [{} for _ in self.classes]
    for name, value in values.items():
      position, own_name = self.hyperparameters[name]
      by_part[position][own_name] = value
    pairs = zip(self.classes, by_part)
    return chains.chain(*(part.configure(of_part, clients) for part, of_part in pairs))

  def overrides(self, *methods: str) -> bool:
    """Returns whether a part overrides at least one of the named methods."""
    return any(part.overrides(*methods) for part in self.classes)

  def keeps_client_state(self) -> bool:
    """Returns whether clients keep a state between the rounds they take part in."""
    return any(part.keeps_client_state() for part in self.classes)


def algorithm(
  classes: Sequence[Any],
  *,
  settings: Mapping[str, Any],
  defaults: Mapping[str, Any] | None = None,
  client_weighting: str | None = None,
  declared: Sequence[Sequence[Hyperparameter]] | None = None,
  **described: Any,
) -> Algorithm:
  """Returns the entry of an algorithm.

  Args:
    classes: Its parts in order, subclasses of `corrections.Correction`; none for FedAvg.
    settings: What its name stands for besides the parts; see `Algorithm`.
    defaults: Other defaults of hyperparameters than the parts'.
    client_weighting: The weights of the clients; None for what the parts say.
    declared: The hyperparameters of each part; None for those that the classes declare.
    **described: Other fields of `Algorithm`. name, title, description and paper are those of the
      parts unless they are given.

  Raises:
    ValueError: If the parts exclude each other.
  """
  # Here already, from the classes: a command refuses a chain before it loads TensorFlow.
  chains.check(classes)
  if declared is None:
    declared = [hyperparameters.declared_by(part) for part in classes]
  names = _names(classes, declared)
  parts = Parts(tuple(classes), {name: place for name, place, _ in names})
  of_parts = {
    'name': parts.name,
    'title': ' + '.join(part.title or part.name for part in classes),
    'description': ' + '.join(part.summary for part in classes),
    'paper': '; '.join(part.paper for part in classes if part.paper),
  }
  # A kept slot of the client optimizer is a state of the client, too.
  rules = optimizer_slots.of_parts(classes)
  keeps_optimizer = optimizer_slots.keeps(settings.get('client_optimizer_state'), rules)
  return Algorithm(
    **{**of_parts, **described},
    correction=_single(classes, parts),
    hyperparameters=tuple(_with_default(h, defaults or {}) for _, _, h in names),
    settings=settings,
    assumes_sgd=_first(part.assumes_sgd for part in classes),
    is_stateful=parts.keeps_client_state() or keeps_optimizer,
    client_weighting=client_weighting or _weighting(classes),
    counts=_published_counts(classes),
    uploads=' and '.join(filter(None, (part.uploads_what for part in classes))),
  )


def classes_of(entry: Algorithm) -> tuple[Any, ...]:
  """Returns the classes of an entry's parts; () for FedAvg."""
  try:
    correction = resolve(entry.correction)
  except ImportError:  # Of a user's entry; the builder of its process names the error.
    return ()
  if isinstance(correction, Parts):
    return correction.classes
  return (correction,)


def _single(classes: Sequence[Any], parts: Parts) -> Any:
  """Returns the class of a single part, which configures itself, or the parts."""
  if len(classes) == 1:
    return classes[0]
  return parts


def _names(
  classes: Sequence[Any], declared: Sequence[Sequence[Hyperparameter]]
) -> list[tuple[str, tuple[int, str], Hyperparameter]]:
  """Returns the parts' hyperparameters: name in the entry, (position, own name), declaration.

  The name is the part's own, with the part's name before it if another part has the same.
  """
  own_names: list[str] = []
  for of_part in declared:
    own_names += [h.name for h in of_part]
  names = []
  for position, part in enumerate(classes):
    for h in declared[position]:
      name = h.name
      if own_names.count(h.name) > 1:
        name = f'{part.name}.{h.name}'
      names.append((name, (position, h.name), dataclasses.replace(h, name=name)))
  return names


def _with_default(h: Hyperparameter, defaults: Mapping[str, Any]) -> Hyperparameter:
  return dataclasses.replace(h, default=defaults.get(h.name, h.default))


def _first(texts: Any) -> str:
  return next(filter(None, texts), '')


def _weighting(classes: Sequence[Any]) -> str:
  """Returns 'uniform' if a part asks for it or keeps a state, else 'examples'."""
  for part in classes:
    weighting = part.client_weighting
    if not weighting and part.keeps_client_state():
      weighting = 'uniform'
    if weighting == 'uniform':
      return 'uniform'
  return 'examples'


def _published_counts(classes: Sequence[Any]) -> Any:
  """Returns the function of a single part's published costs; None if tracing finds them."""
  # Costs were published for single methods; those of a chain are traced.
  if len(classes) != 1 or classes[0].published_counts({}) is None:
    return None
  return classes[0].published_counts
