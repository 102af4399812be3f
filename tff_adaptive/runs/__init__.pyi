from .errors import (
  NonFiniteWeightsError as NonFiniteWeightsError,
)
from .errors import (
  ResumeError as ResumeError,
)
from .errors import (
  SaveError as SaveError,
)
from .errors import (
  StateError as StateError,
)
from .saved_run import (
  SavedRun as SavedRun,
)
from .saved_run import (
  load_run as load_run,
)
from .state_store import (
  ClientStateStore as ClientStateStore,
)
