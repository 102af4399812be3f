from .batching import Batching as Batching, client_arrays as client_arrays
from .local_training import (
  ClientTraining as ClientTraining,
)
