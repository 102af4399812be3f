"""FedAdamW: AdamW at the clients, which share its second moments by blocks."""

import dataclasses
from types import MappingProxyType

from tff_adaptive.corrections.last_update import WithLastUpdate


@dataclasses.dataclass(frozen=True)
class FedAdamW(WithLastUpdate):
  """FedAdamW: m begins anew in each round, v with the cohort's mean over each tensor.

  Each step of AdamW, whose decay is decoupled, is followed by a move of -global_share D / K. The
  bias of m and v is corrected by the number of steps since the first round, as in the authors'
  code. A block is a weight tensor here; the paper divides some layers of transformers further.
  "FedAdamW" (Liu et al., 2025), Algorithm 2.
  """

  name = 'fed_adamw'
  title = 'FedAdamW'
  summary = 'AdamW at the clients, whose second moments the server averages by blocks'
  paper = 'Liu et al., "FedAdamW", AAAI 2026, Algorithm 2; as in the authors\' code'
  optimizer_slots = MappingProxyType({'v': 'average_blocks', 'step': 'average'})
  uploads_what = 'the means of v and the number of its steps'

  def _local_share(self) -> float:
    # Algorithm 2 takes AdamW's step whole; the authors' code for language models multiplies its
    # gradient part by 1 - global_share, as the other methods do.
    return 1.0
