"""FedPer: personal last layers."""

import dataclasses

from tff_adaptive.corrections.kept_weights import KeptWeights


@dataclasses.dataclass(frozen=True)
class FedPer(KeptWeights):
  """FedPer: the last layer stays at each client, which trains it together with the others.

  "Federated Learning with Personalization Layers" (Arivazhagan et al., 2019), Algorithm 1.
  """

  name = 'fed_per'
  title = 'FedPer'
  summary = 'the last layer stays at the client'
  paper = 'Arivazhagan et al., "Federated Learning with Personalization Layers", 2019, Algorithm 1'
