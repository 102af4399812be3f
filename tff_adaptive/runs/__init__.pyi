from .errors import (
  NonFiniteWeightsError as NonFiniteWeightsError,
  ResumeError as ResumeError,
  SaveError as SaveError,
  StateError as StateError,
)
from .groups import group as group, partition as partition
from .run import Run as Run, find_runs as find_runs, load_run as load_run
from .state_store import ClientStateStore as ClientStateStore
