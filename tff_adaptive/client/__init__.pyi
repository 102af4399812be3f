from .batching import (
  Batching as Batching,
)
from .local_training import (
  ClientTraining as ClientTraining,
)
from .whole_client import client_arrays as client_arrays
