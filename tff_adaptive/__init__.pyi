from . import (
  aggregation as aggregation,
  algorithms as algorithms,
  asynchrony as asynchrony,
  client as client,
  corrections as corrections,
  costs as costs,
  devices as devices,
  engine as engine,
  fitting as fitting,
  models as models,
  optimizers as optimizers,
  population as population,
  registry as registry,
  reports as reports,
  runs as runs,
  schedules as schedules,
  training as training,
)
from .algorithms import (
  build_ada_best as build_ada_best,
  build_drift_corrected as build_drift_corrected,
  build_fed_adagrad as build_fed_adagrad,
  build_fed_adam as build_fed_adam,
  build_fed_avg as build_fed_avg,
  build_fed_avgm as build_fed_avgm,
  build_fed_dyn as build_fed_dyn,
  build_fed_prox as build_fed_prox,
  build_fed_yogi as build_fed_yogi,
  build_process as build_process,
  build_scaffold as build_scaffold,
  build_scaffold_m as build_scaffold_m,
  build_server_optimizer as build_server_optimizer,
)
from .client import Batching as Batching, ClientTraining as ClientTraining
from .engine import (
  graph_context as graph_context,
  set_graph_context as set_graph_context,
  set_native_context as set_native_context,
  set_ray_context as set_ray_context,
  set_subround_context as set_subround_context,
)
from .fitting import FitResult as FitResult, fit as fit
from .models import Model as Model
from .runs import load_run as load_run

__version__: str
