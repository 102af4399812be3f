"""What goes wrong in a user's own algorithm, server optimizer or task, in one line."""

from tff_adaptive._utils import user_code
from tff_adaptive_tasks import errors

from . import settings as settings_lib


def explained(settings: settings_lib.Settings, error: BaseException) -> str | None:
  """A line that says which of the user's own files failed, and where.

  Args:
    settings: The run's.
    error: What building or training raised.

  Returns:
    The line; None if there are no such files, or the error does not come from one and says by
    itself what is wrong.
  """
  sources = settings.what.sources()
  if not sources or isinstance(error, errors.DataError):  # These say whose task, and where.
    return None
  at = user_code.place(error)
  words = user_code.in_words(error)
  for flag, source in sources.items():
    if at is not None and source.path == at.path:
      return f'--{flag}={getattr(settings.what, flag)} failed in line {at.line}: {words}'
  # AutoGraph gives errors the words of a traceback.
  if isinstance(error, (ValueError, OSError)) and 'in user code' not in str(error):
    return None
  named = ' or '.join(f'--{flag}={getattr(settings.what, flag)}' for flag in sources)
  return f'{named} cannot be used: {words}'
