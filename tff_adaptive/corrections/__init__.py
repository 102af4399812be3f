"""Client drift corrections; one file each."""

from tff_adaptive.corrections.ada_best import AdaBest
from tff_adaptive.corrections.base import Correction
from tff_adaptive.corrections.fed_dyn import FedDyn
from tff_adaptive.corrections.prox import FedProx
from tff_adaptive.corrections.scaffold import Scaffold, ScaffoldM

REGISTRY = {c.name: c for c in (FedProx, Scaffold, ScaffoldM, FedDyn, AdaBest)}

__all__ = ['REGISTRY', 'AdaBest', 'Correction', 'FedDyn', 'FedProx', 'Scaffold', 'ScaffoldM']
