"""LG-FedAvg: personal representations."""

import dataclasses

from tff_adaptive._utils import weight_groups
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive.corrections import kept_weights


@dataclasses.dataclass(frozen=True)
class LgFedAvg(kept_weights.KeptWeights):
  """LG-FedAvg: all but the last layer stay at each client; the last layer is averaged.

  "Think Locally, Act Globally: Federated Learning with Local and Global Representations" (Liang et
  al., 2020). The authors begin with a model that FedAvg has trained: `--initial_weights`.
  """

  layers: str = option('body', weight_groups.HELP, weight_groups.check)
  name = 'lg_fed_avg'
  title = 'LG-FedAvg'
  summary = 'all layers but the last stay at the client'
  paper = 'Liang et al., "Think Locally, Act Globally", 2020'
