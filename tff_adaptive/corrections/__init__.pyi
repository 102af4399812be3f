from .ada_best import AdaBest as AdaBest
from .apfl import APFL as APFL
from .base import (
  Batch as Batch,
  Correction as Correction,
  NamedWeight as NamedWeight,
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
from .ditto import Ditto as Ditto
from .downward import (
  BFloat16Down as BFloat16Down,
  Downward as Downward,
  Float16Down as Float16Down,
  QsgdDown as QsgdDown,
  QuantizeDown as QuantizeDown,
  RandKDown as RandKDown,
  SignDown as SignDown,
  TernaryDown as TernaryDown,
  TopKDown as TopKDown,
)
from .dynamic_sam import DynamicSam as DynamicSam
from .fed_acg import FedACG as FedACG
from .fed_babu import FedBABU as FedBABU
from .fed_bn import FedBN as FedBN
from .fed_cm import FedCM as FedCM
from .fed_dc import FedDC as FedDC
from .fed_dyn import FedDyn as FedDyn
from .fed_exp import FedExP as FedExP
from .fed_init import FedInit as FedInit
from .fed_lc import FedLC as FedLC
from .fed_lesam import FedLESAM as FedLESAM
from .fed_nova import FedNova as FedNova
from .fed_ntd import FedNTD as FedNTD
from .fed_per import FedPer as FedPer
from .fed_prox import FedProx as FedProx
from .fed_rep import FedRep as FedRep
from .fed_varp import FedVARP as FedVARP
from .kept_weights import KeptWeights as KeptWeights
from .lg_fed_avg import LgFedAvg as LgFedAvg
from .low_rank import LowRank as LowRank
from .mime import Mime as Mime, MimeLite as MimeLite
from .moon import Moon as Moon
from .p_fed_me import PFedMe as PFedMe
from .per_fed_avg import PerFedAvg as PerFedAvg
from .q_fed_avg import QFedAvg as QFedAvg
from .regularization import Clip as Clip, WeightDecay as WeightDecay
from .sam import Sam as Sam
from .scaffnew import Scaffnew as Scaffnew
from .scaffold import Scaffold as Scaffold, ScaffoldM as ScaffoldM
