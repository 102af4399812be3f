from .client_evaluation import (
  build_client_evaluation as build_client_evaluation,
)
from .exported import (
  FORMATS as FORMATS,
)
from .exported import (
  save as save,
)
from .keras_model import (
  KerasModel as KerasModel,
)
from .keras_model import (
  from_keras as from_keras,
)
from .model import (
  Model as Model,
)
from .model import (
  accuracy as accuracy,
)
from .model import (
  build_evaluation as build_evaluation,
)
from .model import (
  dropout as dropout,
)
from .model import (
  finalize_metrics as finalize_metrics,
)
from .model import (
  sparse_cross_entropy as sparse_cross_entropy,
)
from .model import (
  with_seed as with_seed,
)
from .weights import (
  bytes_for as bytes_for,
)
from .weights import (
  fitted_weights as fitted_weights,
)
from .weights import (
  read_weights as read_weights,
)
from .weights import (
  read_weights_for as read_weights_for,
)
from .weights import (
  weight_names as weight_names,
)
from .weights import (
  with_initial_weights as with_initial_weights,
)
