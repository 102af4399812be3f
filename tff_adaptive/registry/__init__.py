"""Every algorithm, server optimizer and schedule, described once as plain data."""

from tff_adaptive.registry.table import (
  ALGORITHMS as ALGORITHMS,
)
from tff_adaptive.registry.table import (
  SCHEDULES as SCHEDULES,
)
from tff_adaptive.registry.table import (
  SERVER_OPTIMIZERS as SERVER_OPTIMIZERS,
)
from tff_adaptive.registry.table import (
  Algorithm as Algorithm,
)
from tff_adaptive.registry.table import (
  Counts as Counts,
)
from tff_adaptive.registry.table import (
  Hyperparameter as Hyperparameter,
)
from tff_adaptive.registry.table import (
  Schedule as Schedule,
)
from tff_adaptive.registry.table import (
  ServerOptimizer as ServerOptimizer,
)
from tff_adaptive.registry.table import (
  algorithm as algorithm,
)
from tff_adaptive.registry.table import (
  schedule as schedule,
)
from tff_adaptive.registry.table import (
  server_optimizer as server_optimizer,
)
