"""How reports write numbers, and order texts that hold some."""

import re
from collections.abc import Iterable, Sequence

# Of 'alpha=0.3, n=10' these are 0.3 and 10.
_NUMBER = re.compile(r'(?<![\w.])-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf)(?![\w.])')
_MOST_DIGITS = 17  # These tell any two numbers apart.


def mean(value: float, digits: int, deviation: float | None = None) -> str:
  """'0.1200 ± 0.0100': a mean and, if there is one, a deviation, with so many decimals.

  Of a small mean, of which these would show one digit or none, both have three significant digits.
  """
  is_small = digits > 0 and 0 < abs(value) < 10.0 ** (1 - digits)
  form = '.3g' if is_small else f'.{digits}f'
  return f'{value:{form}}' if deviation is None else f'{value:{form}} ± {deviation:{form}}'


def distinct(values: Iterable[float], digits: int) -> dict[float, str]:
  """Each number as a text, with as many significant digits as tell all apart, at least `digits`."""
  numbers = dict.fromkeys(values)
  texts: dict[float, str] = {}
  for count in range(digits, _MOST_DIGITS + 1):
    texts = {number: f'{number:.{count}g}' for number in numbers}
    if len(set(texts.values())) == len(numbers):
      break
  return texts


def key(text: str) -> tuple[str, tuple[float, ...]]:
  """Sorts texts that differ in their numbers only by these: 'n=2' before 'n=10'."""
  return _NUMBER.sub('#', text), tuple(float(number) for number in _NUMBER.findall(text))


def in_order(texts: Sequence[str]) -> list[str]:
  """Texts as they come; those that differ in their numbers only stand together, by these."""
  first: dict[str, int] = {}
  for text in texts:
    first.setdefault(key(text)[0], len(first))
  return sorted(texts, key=lambda text: (first[key(text)[0]], key(text)[1]))
