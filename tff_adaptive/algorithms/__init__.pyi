from .builders import (
  build_drift_corrected as build_drift_corrected,
)
from .builders import (
  build_fed_opt as build_fed_opt,
)
from .by_client_id import (
  ByClientId as ByClientId,
)
from .drift_builders import (
  build_ada_best as build_ada_best,
)
from .drift_builders import (
  build_fed_dyn as build_fed_dyn,
)
from .drift_builders import (
  build_fed_prox as build_fed_prox,
)
from .drift_builders import (
  build_scaffold as build_scaffold,
)
from .drift_builders import (
  build_scaffold_m as build_scaffold_m,
)
from .fed_opt_builders import (
  build_fed_adagrad as build_fed_adagrad,
)
from .fed_opt_builders import (
  build_fed_adam as build_fed_adam,
)
from .fed_opt_builders import (
  build_fed_avg as build_fed_avg,
)
from .fed_opt_builders import (
  build_fed_avgm as build_fed_avgm,
)
from .fed_opt_builders import (
  build_fed_yogi as build_fed_yogi,
)
from .registered import (
  build as build,
)
from .registered import (
  build_process as build_process,
)
from .registered import (
  build_server_optimizer as build_server_optimizer,
)
from .stateful_process import (
  ServerState as ServerState,
)
from .stateful_process import (
  StatefulProcess as StatefulProcess,
)
