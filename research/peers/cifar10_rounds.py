"""Private federated averaging of CIFAR-10's images in pfl-research, in its own environment.

usage: PYTHON cifar10_rounds.py FILE SETTINGS

FILE has the images and labels of all clients, one after another, and of the test. SETTINGS is JSON.
Two processes of one thread each. A line of standard input asks for a round; the answer, a line of
JSON, has its seconds and, where the line says 'accuracy', the accuracy on the test images.
"""

import json
import os
import pathlib
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from pfl.privacy import CentrallyAppliedPrivacyMechanism, GaussianMechanism, PLDPrivacyAccountant
from torch import nn

SETTINGS = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding='utf-8'))
ROUNDS = 10**9  # As many as are asked for.


class Requests(TrainingProcessCallback):
  """Waits for a request before each round and answers after it; all processes wait together."""

  def __init__(self, module: nn.Module, test: tuple[torch.Tensor, torch.Tensor]) -> None:
    self._module, self._test, self._request, self._start = module, test, '', 0.0
    self._is_first = not int(os.environ['RANK'])

  def on_train_begin(self, *, model: Any) -> Metrics:
    """Waits for the first request."""
    self._wait()
    return Metrics()

  def after_central_iteration(
    self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
  ) -> tuple[bool, Metrics]:
    """Answers and waits; stops where no request comes."""
    if self._is_first:
      answer = {'seconds': time.perf_counter() - self._start}
      if 'accuracy' in self._request:
        self._module.eval()
        with torch.no_grad():
          parts = zip(*(each.split(1000) for each in self._test))
          right = sum((self._module(x).argmax(1) == y).sum() for x, y in parts)
        answer['accuracy'] = float(right) / len(self._test[1])
      print(json.dumps(answer), flush=True)
    return self._wait(), Metrics()

  def _wait(self) -> bool:
    if self._is_first:
      self._request = sys.stdin.readline()
    ended = torch.tensor(float(self._is_first and not self._request))
    torch.distributed.broadcast(ended, 0)
    self._start = time.perf_counter()
    return bool(ended)


def cnn() -> nn.Sequential:
  """Their CNN for CIFAR-10, with weights as their benchmark draws them."""
  layers = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2)]
  layers += [nn.Dropout(0.25), nn.Flatten(), nn.Linear(12544, 128), nn.ReLU(), nn.Dropout(0.5)]
  layers += [nn.Linear(128, 10)]
  for layer in layers:
    if isinstance(layer, (nn.Conv2d, nn.Linear)):
      nn.init.xavier_uniform_(layer.weight)
  return nn.Sequential(*layers)


def main() -> None:
  """Trains until standard input ends."""
  torch.set_num_threads(1)
  with np.load(sys.argv[1]) as file:
    x, x_test = (
      torch.from_numpy(file[k]).permute(0, 3, 1, 2).contiguous() for k in ('x', 'x_test')
    )
    y, y_test = (torch.from_numpy(file[k]).long() for k in ('y', 'y_test'))
  n, drawn = SETTINGS['examples'], iter([c for cohort in SETTINGS['cohorts'] for c in cohort])
  torch.manual_seed(SETTINGS['seed'])
  np.random.seed(SETTINGS['seed'] + int(os.environ['RANK']))
  module, loss = cnn(), nn.CrossEntropyLoss()

  def mean_loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    module.train()
    return loss(module(x), y)

  def metrics(x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
    return {'loss': Weighted(float(mean_loss(x, y)) * len(x), len(x))}

  module.loss, module.metrics = mean_loss, metrics
  clients = FederatedDataset(
    lambda c: Dataset(raw_data=[x[c * n : (c + 1) * n], y[c * n : (c + 1) * n]], user_id=str(c)),
    lambda: next(drawn),
  )
  accountant = PLDPrivacyAccountant(mechanism='gaussian', **SETTINGS['accountant'])
  noise = GaussianMechanism.from_privacy_accountant(accountant, SETTINGS['clip'])
  if not int(os.environ['RANK']):
    print(json.dumps({'noise_multiplier': noise.relative_noise_stddev}), flush=True)
  steps = [WeightByUser(), CentrallyAppliedPrivacyMechanism(noise)]
  FederatedAveraging().run(
    NNAlgorithmParams(
      central_num_iterations=ROUNDS,
      evaluation_frequency=ROUNDS,  # Only round 0 measures clients, and it is not counted.
      train_cohort_size=len(SETTINGS['cohorts'][0]),
      val_cohort_size=0,
    ),
    SimulatedBackend(clients, clients, postprocessors=steps),
    PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0)),
    NNTrainHyperParams(
      local_num_epochs=1,
      local_learning_rate=SETTINGS['rate'],
      local_batch_size=SETTINGS['batch_size'],
    ),
    callbacks=[Requests(module, (x_test, y_test))],
    send_metrics_to_platform=False,
  )


if __name__ == '__main__':
  if 'RANK' not in os.environ:
    group = {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': str(SETTINGS['port'])}
    group |= {'WORLD_SIZE': '2', 'LOCAL_WORLD_SIZE': '2', 'OMP_NUM_THREADS': '1'}
    os.environ.update(group, TORCHELASTIC_RUN_ID='rounds')
    subprocess.Popen(
      [sys.executable, *sys.argv],
      env=os.environ | {'RANK': '1', 'LOCAL_RANK': '1'},
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
    )
    os.environ.update(RANK='0', LOCAL_RANK='0')
    os.execv(sys.executable, [sys.executable, *sys.argv])  # pfl reads them when it is imported.
  main()
