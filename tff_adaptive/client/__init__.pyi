from .batching import (
  Batching as Batching,
)
from .local_training import (
  ClientTraining as ClientTraining,
)
