"""Words and tags by how common they are, from TFF's files of counts. No TensorFlow."""

import json
import os
from typing import NoReturn

from tff_adaptive_tasks import errors

# The files of the whole Stack Overflow have 62 MB of words and 1 MB of tags.
_LONGEST_LINE = 10_000
_LARGEST_TAG_FILE = 100_000_000


def load_words(path: str, num_words: int) -> list[bytes]:
  """The commonest words.

  Args:
    path: A word and a count a line, the commonest first. Words may be any bytes without spaces.
    num_words: How many to take, 1 or more; fewer where the file has fewer.

  Returns:
    The words.

  Raises:
    DataError: If the file cannot be read or a line is not a word and a whole number.
  """
  words: dict[bytes, None] = {}
  try:
    with open(path, 'rb') as f:
      for number, line in enumerate(iter(lambda: f.readline(_LONGEST_LINE), b''), 1):
        parts = line.split()
        if len(parts) != 2 or not parts[1].isdigit():
          raise errors.DataError(f'{path}, line {number}: {line[:60]!r} is not a word and a count')
        words[parts[0]] = None
        if len(words) == num_words:
          break
  except OSError as e:
    raise errors.DataError(f'cannot read {path}: {e.strerror}') from None
  if not words:
    raise errors.DataError(f'{path} is empty; it must hold a word and a count a line')
  return list(words)


def load_tags(path: str, num_tags: int) -> list[bytes]:
  """The commonest tags.

  Args:
    path: JSON, tag -> count.
    num_tags: How many to take, 1 or more; fewer where the file has fewer. Equal counts keep their
      order.

  Returns:
    The tags, the commonest first.

  Raises:
    DataError: If the file cannot be read or is not such JSON.
  """
  try:
    if os.path.getsize(path) > _LARGEST_TAG_FILE:
      raise errors.DataError(f'{path} has more than {_LARGEST_TAG_FILE:,} bytes; it holds no tags')
    with open(path, encoding='utf-8') as f:
      counts = json.load(f, parse_constant=_refuse)
    if not isinstance(counts, dict):
      raise ValueError(f'it is a {type(counts).__name__}')
    for tag, count in counts.items():
      if type(count) is not int or count < 0:
        raise ValueError(f'the count of {tag[:60]!r} is {str(count)[:60]}')
    # A tag that JSON escapes as half a character has no bytes.
    ranked = [(tag.encode(), count) for tag, count in counts.items()]
  except OSError as e:
    raise errors.DataError(f'cannot read {path}: {e.strerror}') from None
  except (ValueError, RecursionError) as e:
    if isinstance(e, errors.DataError):
      raise
    reason = 'nested too deeply' if isinstance(e, RecursionError) else ' '.join(str(e).split())
    raise errors.DataError(
      f'{path} is not JSON of the form {{"tag": count}} ({reason}); fetch it again'
    ) from None
  if not ranked:
    raise errors.DataError(f'{path} has no tags')
  return [tag for tag, _ in sorted(ranked, key=lambda item: -item[1])[:num_tags]]


def _refuse(constant: str) -> NoReturn:
  raise ValueError(f'{constant} is no count')
