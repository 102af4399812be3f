"""Every algorithm, optimizer and schedule, described in one place as plain data."""

from tff_adaptive.registry.entries import (
  Algorithm as Algorithm,
  Counts as Counts,
  Hyperparameter as Hyperparameter,
  Schedule as Schedule,
  ServerOptimizer as ServerOptimizer,
)
from tff_adaptive.registry.table import (
  ALGORITHMS as ALGORITHMS,
  BASELINES as BASELINES,
  CLIENT_OPTIMIZERS as CLIENT_OPTIMIZERS,
  PARTS as PARTS,
  SCHEDULES as SCHEDULES,
  SERVER_OPTIMIZERS as SERVER_OPTIMIZERS,
  algorithm as algorithm,
  client_optimizer as client_optimizer,
  pieces as pieces,
  schedule as schedule,
  server_optimizer as server_optimizer,
  takes as takes,
)
