"""Texts that may be another person's, such as names of files, and where they are shown."""


def printable(text: str) -> str:
  r"""Returns a text with control characters (not line ends) and undecodable bytes as \x1b, \udcff.

  A terminal, or a program that reads a file, would obey control characters; undecodable bytes in a
  file's name cannot be written to a file.
  """
  return ''.join(map(_printable_letter, text))


def _printable_letter(letter: str) -> str:
  if letter.isprintable() or letter == '\n':
    return letter
  return letter.encode('unicode_escape').decode()
