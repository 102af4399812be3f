"""Every algorithm, server optimizer and schedule, described once as plain data."""

from tff_adaptive.registry.entries import (
  Algorithm as Algorithm,
  Counts as Counts,
  Hyperparameter as Hyperparameter,
  Schedule as Schedule,
  ServerOptimizer as ServerOptimizer,
)
from tff_adaptive.registry.table import (
  ALGORITHMS as ALGORITHMS,
  SCHEDULES as SCHEDULES,
  SERVER_OPTIMIZERS as SERVER_OPTIMIZERS,
  algorithm as algorithm,
  schedule as schedule,
  server_optimizer as server_optimizer,
)
