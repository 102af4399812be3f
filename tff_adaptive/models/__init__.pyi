from .class_weights import (
  balanced_class_weights as balanced_class_weights,
  with_class_weight as with_class_weight,
)
from .client_evaluation import build_client_evaluation as build_client_evaluation
from .evaluation import (
  build_evaluation as build_evaluation,
  evaluate_constant as evaluate_constant,
)
from .keras_model import KerasModel as KerasModel, from_keras as from_keras
from .model import (
  Model as Model,
  accuracy as accuracy,
  dropout as dropout,
  finalize_metrics as finalize_metrics,
  sparse_cross_entropy as sparse_cross_entropy,
  with_seed as with_seed,
)
from .named_metrics import (
  Outputs as Outputs,
  outputs_of as outputs_of,
  with_metrics as with_metrics,
)
from .stored import (
  StoredModel as StoredModel,
  load_stored_model as load_stored_model,
  store_model as store_model,
)
from .sum_metrics import SumMetric as SumMetric
from .weights import (
  FORMATS as FORMATS,
  fitted_weights as fitted_weights,
  read_weights_for as read_weights_for,
  save as save,
  weight_names as weight_names,
  with_initial_weights as with_initial_weights,
)
