from .cluster.errors import (
  WorkerError as WorkerError,
)
from .cluster.errors import (
  WorkersLost as WorkersLost,
)
from .cluster.ray_context import (
  RayContext as RayContext,
)
from .cluster.ray_context import (
  set_ray_context as set_ray_context,
)
from .cluster.subrounds import (
  SubroundContext as SubroundContext,
)
from .cluster.subrounds import (
  set_subround_context as set_subround_context,
)
from .graph.context import (
  AsyncGraphContext as AsyncGraphContext,
)
from .graph.context import (
  GraphContext as GraphContext,
)
from .graph.context import (
  graph_context as graph_context,
)
from .graph.context import (
  set_graph_context as set_graph_context,
)
from .native import (
  reap_workers as reap_workers,
)
from .native import (
  remember_workers as remember_workers,
)
from .native import (
  set_native_context as set_native_context,
)
