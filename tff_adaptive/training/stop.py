"""Ending a run before its last round."""

from collections.abc import Callable


class Stop:
  """Says whether a run should end; `training.train` asks it between rounds.

  The scripts have one that a signal sets.

  Attributes:
    announce: Called with a line for the user; None: nothing is announced.
    on_abort: Called where the process is ended at once.
  """

  def __init__(self) -> None:
    """Creates it; the run goes on until `request`."""
    self.announce: Callable[[str], None] | None = None
    self.on_abort: list[Callable[[], None]] = []
    self._is_asked = False

  @property
  def requested(self) -> bool:
    """Whether the run should end after the round at work."""
    return self._is_asked

  @property
  def exit_code(self) -> int:
    """What the process should return to the shell."""
    return 0

  def request(self) -> None:
    """Asks for the end of the run: the round at work is finished and saved."""
    self._is_asked = True
