from . import (
  aggregation as aggregation,
)
from . import (
  algorithms as algorithms,
)
from . import (
  client as client,
)
from . import (
  corrections as corrections,
)
from . import (
  costs as costs,
)
from . import (
  devices as devices,
)
from . import (
  engine as engine,
)
from . import (
  models as models,
)
from . import (
  optimizers as optimizers,
)
from . import (
  population as population,
)
from . import (
  registry as registry,
)
from . import (
  reports as reports,
)
from . import (
  runs as runs,
)
from . import (
  schedules as schedules,
)
from . import (
  training as training,
)
from .algorithms import (
  build_ada_best as build_ada_best,
)
from .algorithms import (
  build_drift_corrected as build_drift_corrected,
)
from .algorithms import (
  build_fed_adagrad as build_fed_adagrad,
)
from .algorithms import (
  build_fed_adam as build_fed_adam,
)
from .algorithms import (
  build_fed_avg as build_fed_avg,
)
from .algorithms import (
  build_fed_avgm as build_fed_avgm,
)
from .algorithms import (
  build_fed_dyn as build_fed_dyn,
)
from .algorithms import (
  build_fed_opt as build_fed_opt,
)
from .algorithms import (
  build_fed_prox as build_fed_prox,
)
from .algorithms import (
  build_fed_yogi as build_fed_yogi,
)
from .algorithms import (
  build_process as build_process,
)
from .algorithms import (
  build_scaffold as build_scaffold,
)
from .algorithms import (
  build_scaffold_m as build_scaffold_m,
)
from .algorithms import (
  build_server_optimizer as build_server_optimizer,
)
from .client import Batching as Batching
from .engine import (
  graph_context as graph_context,
)
from .engine import (
  set_graph_context as set_graph_context,
)
from .engine import (
  set_native_context as set_native_context,
)
from .engine import (
  set_ray_context as set_ray_context,
)
from .engine import (
  set_subround_context as set_subround_context,
)
from .models import Model as Model
from .runs import load_run as load_run

__version__: str
