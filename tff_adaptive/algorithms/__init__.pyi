from .builders import (
  build_ada_best as build_ada_best,
  build_drift_corrected as build_drift_corrected,
  build_fed_adagrad as build_fed_adagrad,
  build_fed_adam as build_fed_adam,
  build_fed_avg as build_fed_avg,
  build_fed_avgm as build_fed_avgm,
  build_fed_dyn as build_fed_dyn,
  build_fed_prox as build_fed_prox,
  build_fed_yogi as build_fed_yogi,
  build_scaffold as build_scaffold,
  build_scaffold_m as build_scaffold_m,
)
from .by_client_id import ByClientId as ByClientId
from .registered import (
  build_client_optimizer as build_client_optimizer,
  build_process as build_process,
  build_server_optimizer as build_server_optimizer,
  counts as counts,
  regularization as regularization,
)
from .stateful_process import (
  ServerState as ServerState,
  StatefulProcess as StatefulProcess,
)
