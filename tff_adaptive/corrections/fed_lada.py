"""FedLADA: amended adaptive steps at the clients."""

import dataclasses
from types import MappingProxyType

from tff_adaptive._utils import validation
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive.corrections.last_update import GLOBAL_SHARE, WithLastUpdate


@dataclasses.dataclass(frozen=True)
class FedLADA(WithLastUpdate):
  """FedLADA: a step is (1 - global_share) times AMSGrad's, and -global_share D / K.

  m begins anew in each round, v and its maximum with the cohort's means; the bias is not corrected.
  "Efficient Federated Learning via Local Adaptive Amended Optimizer with Linear Speedup" (Sun et
  al., 2023). There v too begins with the mean of the maximum.
  """

  global_share: float = option(0.9, GLOBAL_SHARE, validation.up_to_one)
  name = 'fed_lada'
  title = 'FedLADA'
  summary = "AMSGrad at the clients, amended by the last round's update"
  paper = (
    'Sun et al., "Efficient Federated Learning via Local Adaptive Amended Optimizer ...", 2023'
  )
  # m is not among them: it begins at 0 in each round, the default of `optimizer_state`.
  optimizer_slots = MappingProxyType({'v': 'average', 'v_max': 'average'})
  uploads_what = 'v of its optimizer'
