"""Texts that may be another person's, such as names of files, and where they are shown."""


def printable(text: str) -> str:
  r"""Returns a text with control characters (not line ends) and undecodable bytes as \x1b, \udcff.

  A terminal, or a program that reads a file, would obey control characters; undecodable bytes in a
  file's name cannot be written to a file.
  """
  return ''.join(
    letter if letter.isprintable() or letter == '\n' else letter.encode('unicode_escape').decode()
    for letter in text
  )
