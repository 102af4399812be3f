from .ada_best import AdaBest as AdaBest
from .base import Correction as Correction, RegisteredClients as RegisteredClients
from .fed_dyn import FedDyn as FedDyn
from .fed_prox import FedProx as FedProx
from .scaffold import Scaffold as Scaffold, ScaffoldM as ScaffoldM
