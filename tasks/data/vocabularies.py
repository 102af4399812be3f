"""Words and tags by how common they are, from TFF's files of counts. No TensorFlow."""

import json

from tff_adaptive_tasks.data import files


def load_words(path: str, num_words: int) -> list[bytes]:
  """The commonest words of a file with a word (bytes) and a count a line, the commonest first."""
  words: dict[bytes, None] = {}
  with files.border(path), open(path, 'rb') as f:
    for number, line in enumerate(f, 1):
      parts = line.split()
      if len(parts) != 2 or not parts[1].isdigit():
        raise ValueError(f'line {number}, {line[:60]!r}, is not a word and a count')
      words[parts[0]] = None
      if len(words) == num_words:
        break
    if not words:
      raise ValueError('it is empty; it must hold a word and a count a line')
  return list(words)


def load_tags(path: str, num_tags: int) -> list[bytes]:
  """The commonest tags of a file of JSON, tag -> count; equal counts keep their order."""
  with files.border(path), open(path, encoding='utf-8') as f:
    counts = json.load(f)
    if not isinstance(counts, dict) or not counts:
      raise ValueError('it is no JSON of the form {"tag": count} with one tag at least')
    for tag, count in counts.items():
      if type(count) is not int or count < 0:
        raise ValueError(f'the count of {tag[:60]!r} is {str(count)[:60]}')
    # A tag that JSON escapes as half a character has no bytes.
    ranked = [(tag.encode(), count) for tag, count in counts.items()]
  return [tag for tag, _ in sorted(ranked, key=lambda item: -item[1])[:num_tags]]
