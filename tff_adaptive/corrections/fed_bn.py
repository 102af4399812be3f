"""FedBN: personal normalisation layers."""

import dataclasses

from tff_adaptive._utils import weight_groups
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive.corrections import kept_weights


@dataclasses.dataclass(frozen=True)
class FedBN(kept_weights.KeptWeights):
  """FedBN: scales and offsets of normalisation layers stay at each client.

  "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization" (Li et al., 2021).
  It is for models with normalisation layers. In the paper these are batch normalisations, whose
  moving statistics stay at the client, too: `models.from_keras(..., moving_statistics=True)` makes
  such a model. By default moving statistics do not change.
  """

  layers: str = option('norm', weight_groups.HELP, weight_groups.check)
  name = 'fed_bn'
  title = 'FedBN'
  summary = 'scales and offsets of normalisation layers stay at the client'
  paper = 'Li et al., "FedBN", ICLR 2021'
