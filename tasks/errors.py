"""The error that every task raises for data it cannot use."""


class DataError(ValueError):
  """Data are missing, incomplete or not of the expected form.

  The message is one line: which file or client, what was found, what to do about it.
  """
