"""FedMuon: Muon at the clients, which share its momentum."""

import dataclasses
from types import MappingProxyType

from tff_adaptive.corrections.last_update import WithLastUpdate


@dataclasses.dataclass(frozen=True)
class FedMuon(WithLastUpdate):
  """FedMuon: the momentum of matrices begins with the cohort's mean, that of vectors anew.

  A step is (1 - global_share) times Muon's, and -global_share D / K. "FedMuon" (Liu et al., 2025),
  Algorithm 1; two other papers have the name.
  """

  name = 'fed_muon'
  title = 'FedMuon'
  summary = 'Muon at the clients, whose momentum the server averages'
  paper = 'Liu et al., "FedMuon", 2025 (arXiv 2510.27403), Algorithm 1; as in the authors\' code'
  # Muon trains vectors by AdamW, whose bias correction takes m to be 0 when the round begins.
  optimizer_slots = MappingProxyType({'m:matrices': 'average'})
  uploads_what = 'the momentum of its matrices'
