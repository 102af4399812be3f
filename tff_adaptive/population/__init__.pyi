from .attacks import Attackers as Attackers
from .availability import (
  Always as Always,
  Availability as Availability,
  Diurnal as Diurnal,
  Independent as Independent,
  Trace as Trace,
)
from .choosing import Choice as Choice, Known as Known, Rule as Rule, Situation as Situation
from .cohort_rules import (
  COHORTS as COHORTS,
  BySize as BySize,
  Cyclic as Cyclic,
  Importance as Importance,
  PowerOfChoice as PowerOfChoice,
  Replacement as Replacement,
  Shuffled as Shuffled,
  Stratified as Stratified,
  Uniform as Uniform,
  build_cohort as build_cohort,
)
from .files import read_profiles as read_profiles, read_trace as read_trace
from .oort import Oort as Oort
from .rounds import Population as Population, RoundPlan as RoundPlan, Simulation as Simulation
from .speed import Speed as Speed
