from .availability import (
  Always as Always,
)
from .availability import (
  Availability as Availability,
)
from .availability import (
  Diurnal as Diurnal,
)
from .availability import (
  Independent as Independent,
)
from .availability import (
  Trace as Trace,
)
from .files import (
  read_profiles as read_profiles,
)
from .files import (
  read_trace as read_trace,
)
from .rounds import (
  Population as Population,
)
from .rounds import (
  RoundPlan as RoundPlan,
)
from .rounds import (
  Simulation as Simulation,
)
from .speed import (
  Speed as Speed,
)
