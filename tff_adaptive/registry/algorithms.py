"""The entries of all algorithms, collected from the classes that describe themselves.

A correction is its class in `tff_adaptive.corrections`. The other algorithms are named here: FedAvg
with a server optimizer, corrections together with another part, and sets of settings.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive.corrections import (
  ada_best,
  afl,
  apfl,
  compressed,
  delta_sgd,
  ditto,
  downward,
  dynamic_sam,
  fed_acg,
  fed_adamw,
  fed_ala,
  fed_babu,
  fed_bn,
  fed_cm,
  fed_dc,
  fed_dyn,
  fed_exp,
  fed_init,
  fed_lada,
  fed_lc,
  fed_lesam,
  fed_muon,
  fed_nova,
  fed_ntd,
  fed_per,
  fed_proto,
  fed_prox,
  fed_rep,
  fed_varp,
  lg_fed_avg,
  low_rank,
  mime,
  moon,
  p_fed_me,
  per_fed_avg,
  q_fed_avg,
  regularization,
  sam,
  scaffnew,
  scaffold,
)
from tff_adaptive.registry import described
from tff_adaptive.registry.entries import Algorithm, by_name

_FED_OPT = 'Reddi et al., "Adaptive Federated Optimization", ICLR 2021, Algorithm 2'

# The parts that can be named in a chain, in the order of --help.
PARTS: Mapping[str, Any] = {
  part.name: part
  for part in (
    fed_prox.FedProx,
    scaffold.Scaffold,
    scaffold.ScaffoldM,
    fed_dyn.FedDyn,
    ada_best.AdaBest,
    fed_nova.FedNova,
    fed_cm.FedCM,
    fed_exp.FedExP,
    mime.MimeLite,
    mime.Mime,
    delta_sgd.DeltaSGD,
    scaffnew.Scaffnew,
    fed_dc.FedDC,
    fed_acg.FedACG,
    fed_init.FedInit,
    fed_varp.FedVARP,
    fed_lesam.FedLESAM,
    q_fed_avg.QFedAvg,
    afl.AFL,
    moon.Moon,
    fed_ntd.FedNTD,
    fed_lc.FedLC,
    fed_per.FedPer,
    lg_fed_avg.LgFedAvg,
    fed_rep.FedRep,
    fed_babu.FedBABU,
    fed_bn.FedBN,
    ditto.Ditto,
    apfl.APFL,
    p_fed_me.PFedMe,
    per_fed_avg.PerFedAvg,
    fed_ala.FedALA,
    fed_proto.FedProto,
    fed_adamw.FedAdamW,
    fed_muon.FedMuon,
    fed_lada.FedLADA,
    sam.Sam,
    dynamic_sam.DynamicSam,
    regularization.Clip,
    regularization.WeightDecay,
    compressed.TopK,
    compressed.RandK,
    compressed.Sign,
    compressed.Qsgd,
    compressed.Quantize,
    compressed.Ternary,
    compressed.Float16,
    compressed.BFloat16,
    low_rank.LowRank,
    downward.TopKDown,
    downward.RandKDown,
    downward.SignDown,
    downward.QsgdDown,
    downward.QuantizeDown,
    downward.TernaryDown,
    downward.Float16Down,
    downward.BFloat16Down,
  )
}
# These are flags of every algorithm, and parts of chains, but no algorithms of their own. Nor are
# compressors.
_NO_ALGORITHMS = (
  sam.Sam,
  dynamic_sam.DynamicSam,
  regularization.Clip,
  regularization.WeightDecay,
)
# How the paper trains, where a correction needs that.
_SETTINGS: Mapping[str, Mapping[str, Any]] = {
  'scaffnew': {'participation': 1.0, 'local_steps': 10, 'random_local_steps': True},
  'fed_adamw': {'client_optimizer': 'adamw'},
  'fed_muon': {'client_optimizer': 'muon'},
  'fed_lada': {'client_optimizer': 'amsgrad'},
}


def _named(
  name: str,
  title: str,
  summary: str,
  paper: str,
  parts: Sequence[type] = (),
  server_optimizer: str | None = None,
  settings: Mapping[str, Any] | None = None,
  **other: Any,
) -> Algorithm:
  """Returns the entry of an algorithm that consists of parts, a server optimizer and settings."""
  return described.algorithm(
    parts,
    name=name,
    title=title,
    description=summary,
    paper=paper,
    server_optimizer=server_optimizer,
    settings=settings or {},
    **other,
  )


def _with_sam(name: str, title: str, of: Any, paper: str, rho: float, **other: Any) -> Algorithm:
  """Returns the entry of a correction with sharpness-aware minimization at the clients."""
  parts: tuple[Any, ...] = ()
  of_title = 'FedAvg'
  if of is not None:
    parts = (of,)
    of_title = of.title
  summary = f'{of_title} with sharpness-aware minimization at the clients'
  return _named(name, title, summary, paper, parts, settings={'sam_rho': rho}, **other)


# FedOpt: clients train as in FedAvg, and the names stand for the server's optimizer.
_OF_SERVERS = (
  _named(
    'fed_avg',
    'FedAvg',
    'average of the client models (server SGD, rate 1)',
    'McMahan et al., "Communication-Efficient Learning of Deep Networks ...", AISTATS 2017',
    server_optimizer='sgd',
  ),
  _named(
    'fed_avgm',
    'FedAvgM',
    'FedAvg with momentum on the server',
    'Hsu et al., "Measuring the Effects of Non-Identical Data Distribution ...", 2019',
    server_optimizer='sgdm',
  ),
  _named(
    'fed_adagrad',
    'FedAdagrad',
    'FedAvg with Adagrad on the server',
    _FED_OPT,
    server_optimizer='adagrad',
  ),
  _named(
    'fed_adam', 'FedAdam', 'FedAvg with Adam on the server', _FED_OPT, server_optimizer='adam'
  ),
  _named(
    'fed_yogi', 'FedYogi', 'FedAvg with Yogi on the server', _FED_OPT, server_optimizer='yogi'
  ),
)
# The name of a part is also that of the algorithm that consists of it alone.
_OF_PARTS = tuple(
  described.algorithm((part,), settings=_SETTINGS.get(part.name, {}))
  for part in PARTS.values()
  if not (part in _NO_ALGORITHMS or part.compresses or part.compresses_down)
)
# Papers' names for chains: fed_gamma is scaffold+sam with its paper's radius.
_CHAINS = (
  _with_sam(
    'fed_sam',
    'FedSAM',
    None,
    'Qu et al., ICML 2022; Caldarola et al., ECCV 2022',
    0.05,
    server_optimizer='sgd',
  ),
  _with_sam('mo_fed_sam', 'MoFedSAM', fed_cm.FedCM, 'Qu et al., ICML 2022, Algorithm 2', 0.05),
  _with_sam('fed_gamma', 'FedGAMMA', scaffold.Scaffold, 'Dai et al., IEEE TNNLS 2023', 0.05),
  _with_sam(
    'fed_speed',
    'FedSpeed',
    fed_dyn.FedDyn,
    "Sun et al., ICLR 2023; as in the authors' code (FL-Simulator), with FedDyn's server state h",
    0.1,
    defaults={'mu': 0.1},
  ),
  _named(
    'fed_smoo',
    'FedSMOO',
    'FedDyn with sharpness-aware minimization whose perturbations agree between clients',
    "Sun et al., ICML 2023, Algorithm 1; as in the authors' code (FL-Simulator)",
    (dynamic_sam.DynamicSam, fed_dyn.FedDyn),
    defaults={'mu': 0.1},
  ),
)
# What these change is the clients' optimizer, and no correction.
_OF_CLIENTS = (
  _named(
    'diloco',
    'DiLoCo',
    'AdamW at the clients, which keep its state; Nesterov momentum on the server',
    'Douillard et al., "DiLoCo", 2023, Algorithm 1',
    server_optimizer='nesterov',
    settings={
      'client_optimizer': 'adamw',
      'client_optimizer_option': ('beta1=0.9', 'beta2=0.95', 'decay=0.1'),
      'client_optimizer_state': 'keep',
      'clip_norm': 1.0,
      'server_learning_rate': 0.7,
    },
    client_weighting='uniform',
  ),
  _named(
    'fed_ada2',
    'FedAda2',
    'Adagrad at the clients, with its sums reset in each round; Adam on the server',
    'Lee et al., "Efficient Adaptive Federated Optimization", 2024',
    server_optimizer='adam',
    settings={'client_optimizer': 'adagrad'},
  ),
  _named(
    'fed_lalr',
    'FedLALR',
    'AMSGrad at the clients; the server averages the AMSGrad states',
    'Sun et al., "FedLALR: Client-Specific Adaptive Learning Rates ...", 2023',
    server_optimizer='sgd',
    settings={'client_optimizer': 'amsgrad', 'client_optimizer_state': 'average'},
  ),
)

ALGORITHMS: Mapping[str, Algorithm] = by_name(*_OF_SERVERS, *_OF_PARTS, *_CHAINS, *_OF_CLIENTS)
# What federated results are compared with. No federated optimizer, so not in the tables of these.
BASELINES: Mapping[str, Algorithm] = by_name(
  Algorithm(
    'centralized',
    'Centralised',
    'one client, which has the examples of all and keeps the state of its optimizer',
    server_optimizer='sgd',
    settings={'server_learning_rate': 1.0},
    pools_clients=True,
  ),
)
