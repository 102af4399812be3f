from .ada_best import AdaBest as AdaBest
from .base import (
  Correction as Correction,
  RegisteredClients as RegisteredClients,
  option as option,
)
from .chains import Chain as Chain, chain as chain
from .compressed import (
  BFloat16 as BFloat16,
  Compressor as Compressor,
  Float16 as Float16,
  Qsgd as Qsgd,
  Quantize as Quantize,
  RandK as RandK,
  Selection as Selection,
  Sign as Sign,
  Ternary as Ternary,
  TopK as TopK,
)
from .delta_sgd import DeltaSGD as DeltaSGD
from .fed_cm import FedCM as FedCM
from .fed_dyn import FedDyn as FedDyn
from .fed_exp import FedExP as FedExP
from .fed_nova import FedNova as FedNova
from .fed_prox import FedProx as FedProx
from .low_rank import LowRank as LowRank
from .mime import Mime as Mime, MimeLite as MimeLite
from .regularization import Clip as Clip, WeightDecay as WeightDecay
from .sam import Sam as Sam
from .scaffnew import Scaffnew as Scaffnew
from .scaffold import Scaffold as Scaffold, ScaffoldM as ScaffoldM
