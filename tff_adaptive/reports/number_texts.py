"""How reports write numbers, and order texts that hold some."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

# Of 'alpha=0.3, n=10' these are 0.3 and 10.
_NUMBER = re.compile(r'(?<![\w.])-?(?:\d+(?:\.\d*)?(?:e[+-]?\d+)?|inf)(?![\w.])')
_MOST_DIGITS = 17  # These tell any two numbers apart.


def spread(values: Sequence[float], digits: int = 4) -> str:
  """'0.1200 ± 0.0100': mean and sample standard deviation; the mean alone of one value.

  Of a small mean, of which so many decimals would show one digit or none, both have three
  significant digits. Of a run that diverged values may be NaN or infinite; then so are these.
  """
  if not len(values):
    return ''
  with np.errstate(all='ignore'):
    mean = float(np.mean(values))
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else None
  is_small = digits > 0 and 0 < abs(mean) < 10.0 ** (1 - digits)
  form = '.3g' if is_small else f'.{digits}f'
  return f'{mean:{form}}' if deviation is None else f'{mean:{form}} ± {deviation:{form}}'


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
