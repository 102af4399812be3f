"""What can go wrong with workers."""


class WorkerError(RuntimeError):
  """Workers cannot be had, or not as asked."""


class WorkersLost(WorkerError):
  """What was asked of the workers cannot be done: none is left, or none can do it."""
