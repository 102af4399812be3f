"""Groups of a model's weights, by name or by kind of layer."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from typing import NamedTuple

# Kind -> the weights that it stands for.
KINDS = {
  'head': 'the last layer',
  'body': 'all but the last layer',
  'norm': 'scales and offsets of normalisation layers',
  'embedding': 'embeddings',
  'none': 'no weight',
}

# The help of the hyperparameter `layers`, which several parts have.
HELP = 'Weights that stay at the client or are frozen: head, body, norm, embedding, none, or names'


class NamedWeight(NamedTuple):
  """A trainable weight of a model, as parts know it before training.

  Attributes:
    name: Its name, such as 'dense/kernel'; 'weight_0', 'weight_1', ... where a model has no names.
    shape: Its shape.
    kinds: The words of `KINDS` that it belongs to.
  """

  name: str
  shape: tuple[int, ...]
  kinds: frozenset[str]


def check(name: str, value: str, hint: str = '') -> str:
  """Returns the words that `select` takes; raises ValueError unless each can be one.

  Args:
    name: The name of the option, for the message.
    value: Words with commas between them.
    hint: Not used: the message says what is allowed.
  """
  del hint
  value = str(value)  # Options of the command line that look like numbers are numbers.
  words = _words(value)
  if 'none' in words and len(words) > 1:
    raise ValueError(f'{name}={value}: none goes with no other word: leave it out.')
  for word in words:
    # The model is not known yet, so only the form of a name can be checked.
    has_name = word.startswith('weight_') or not {'/', '*', '?'}.isdisjoint(word)
    if word not in KINDS and not has_name:
      raise ValueError(
        f'{name} must be one of {", ".join(KINDS)}, or weights by name such as dense/kernel,'
        f' weight_0 or dense*, found {word!r}.'
      )
  return value


def select(name: str, value: str, weights: Sequence[NamedWeight]) -> tuple[bool, ...]:
  """Returns for each weight whether it belongs to a group.

  Args:
    name: The name of the option, for messages.
    value: Words with commas between them. Each is a kind of `KINDS`, a weight's name, or a pattern
      of names with * and ?.
    weights: The model's weights.

  Raises:
    ValueError: If a word stands for no weight of the model ('none' excepted).
  """
  words = _words(check(name, value))
  for word in words:
    if word != 'none' and not any(_stands_for(word, weight) for weight in weights):
      known = ', '.join(weight.name for weight in weights)
      raise ValueError(
        f'{name}={value}: the model has no weight {word!r}; its weights are {known}.'
      )
  mask = []
  for weight in weights:
    mask.append(any(_stands_for(word, weight) for word in words))
  return tuple(mask)


def _words(value: str) -> list[str]:
  return [word.strip() for word in value.split(',')]


def _stands_for(word: str, weight: NamedWeight) -> bool:
  if word in KINDS:
    return word in weight.kinds
  return fnmatch.fnmatchcase(weight.name, word)
