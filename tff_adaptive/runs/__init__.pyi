from .errors import (
  NonFiniteWeightsError as NonFiniteWeightsError,
  ResumeError as ResumeError,
  SaveError as SaveError,
  StateError as StateError,
)
from .run import Run as Run, load_run as load_run
from .state_store import ClientStateStore as ClientStateStore
