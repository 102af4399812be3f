from .ada_best import (
  AdaBest as AdaBest,
)
from .base import (
  Correction as Correction,
)
from .base import (
  RegisteredClients as RegisteredClients,
)
from .fed_dyn import (
  FedDyn as FedDyn,
)
from .fed_prox import (
  FedProx as FedProx,
)
from .scaffold import (
  Scaffold as Scaffold,
)
from .scaffold import (
  ScaffoldM as ScaffoldM,
)
