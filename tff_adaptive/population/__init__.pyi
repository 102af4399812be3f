from .availability import (
  Always as Always,
  Availability as Availability,
  Diurnal as Diurnal,
  Independent as Independent,
  Trace as Trace,
)
from .files import read_profiles as read_profiles, read_trace as read_trace
from .rounds import Population as Population, RoundPlan as RoundPlan, Simulation as Simulation
from .speed import Speed as Speed
