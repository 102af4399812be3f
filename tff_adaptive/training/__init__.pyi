from .callbacks import (
  Callback as Callback,
  PrivacyCallback as PrivacyCallback,
  RayCallback as RayCallback,
  RunInfo as RunInfo,
)
from .client_evaluation import ClientEvaluation as ClientEvaluation, Group as Group
from .client_losses import build_client_losses as build_client_losses
from .cohorts import older_models as older_models
from .config import Buffered as Buffered, TrainingConfig as TrainingConfig
from .initial_weights import initial_weights_from as initial_weights_from
from .loop import train as train
from .personalization import build_personalization as build_personalization
from .protocols import (
  ClientData as ClientData,
  Process as Process,
  Stop as Stop,
  TrainingResult as TrainingResult,
)
from .replay import ReplayedClient as ReplayedClient, replay_client as replay_client
from .stopping import read_best as read_best
from .trackers import MlflowCallback as MlflowCallback, WandbCallback as WandbCallback
