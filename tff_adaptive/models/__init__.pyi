from .client_evaluation import build_client_evaluation as build_client_evaluation
from .keras_model import KerasModel as KerasModel, from_keras as from_keras
from .model import (
  Model as Model,
  accuracy as accuracy,
  build_evaluation as build_evaluation,
  dropout as dropout,
  finalize_metrics as finalize_metrics,
  sparse_cross_entropy as sparse_cross_entropy,
  with_seed as with_seed,
)
from .stored import (
  StoredModel as StoredModel,
  load_stored_model as load_stored_model,
  store_model as store_model,
)
from .weights import (
  FORMATS as FORMATS,
  fitted_weights as fitted_weights,
  read_weights_for as read_weights_for,
  save as save,
  weight_names as weight_names,
  with_initial_weights as with_initial_weights,
)
