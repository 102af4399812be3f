"""FedBABU: a frozen head."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tff_adaptive._utils import weight_groups
from tff_adaptive._utils.hyperparameters import option
from tff_adaptive.corrections import base
from tff_adaptive.corrections.base import NamedWeight


@dataclasses.dataclass(frozen=True)
class FedBABU(base.Correction):
  """FedBABU: the last layer keeps its initial weights; clients train and average the others.

  "FedBABU: Toward Enhanced Representation for Federated Image Classification" (Oh et al., 2022),
  Algorithm 1. Each client's own model is then the global one after fine-tuning.

  Attributes:
    layers: The weights that never change, as `weight_groups.select` takes them.
  """

  layers: str = option('head', weight_groups.HELP, weight_groups.check)
  name = 'fed_babu'
  title = 'FedBABU'
  summary = 'the last layer is frozen, and trained only by fine-tuning'
  paper = 'Oh et al., "FedBABU", ICLR 2022, Algorithm 1'

  def resolved(self, weights: Sequence[NamedWeight]) -> base.Correction:
    return self.with_groups(frozen=weight_groups.select('layers', self.layers, weights))
