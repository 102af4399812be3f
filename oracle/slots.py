"""Methods that average slots of the client optimizer, in plain NumPy; see `oracle`.

Each step also moves along D, the mean update of the last round.
"""

import numpy as np

from oracle.algorithms import FedAvg


class WithLastUpdate(FedAvg):
  """What FedAdamW, FedMuon and FedLADA share.

  Args:
    global_share: The share of D that the steps of a round repeat.
    shapes: The shapes of the tensors that theta consists of.
  """

  def __init__(self, *args, global_share, shapes, **options):
    super().__init__(*args, **options)
    self.share = global_share
    self.shapes = shapes
    self.last = np.zeros_like(self.theta)

  def moved(self, before, after):
    local = before + self.local_share() * (after - before)
    return local - self.share * self.last / self.planned

  def local_share(self):
    """The factor of the optimizer's own step."""
    return 1 - self.share

  def server_step(self, cohort, g, g_bar, steps, rate):
    self.last = g_bar
    super().server_step(cohort, g, g_bar, steps, rate)

  def pass_on_optimizers(self, cohort):
    means = self.means(cohort)
    self.optimizers.clear()
    for i in range(self.num_clients):
      self.set_slots(self.optimizers[i], means)

  def mean_of(self, cohort, name):
    """The cohort's mean of a slot."""
    return self.mean(cohort, {i: getattr(self.optimizers[i], name) for i in cohort})

  def tensors(self, vector):
    """The parts of a vector that are one tensor each."""
    sizes = [int(np.prod(shape)) for shape in self.shapes]
    return np.split(vector, np.cumsum(sizes)[:-1])


class FedAdamW(WithLastUpdate):
  """Algorithm 2 of FedAdamW (Liu et al., 2025), with a block for each tensor."""

  def local_share(self):
    return 1.0

  def means(self, cohort):
    blocks = self.tensors(self.mean_of(cohort, 'v'))
    v = np.concatenate([np.full(block.size, block.mean()) for block in blocks])
    return v, int(np.round(self.mean_of(cohort, 't')))

  def set_slots(self, optimizer, means):
    optimizer.v, optimizer.t = means


class FedLADA(WithLastUpdate):
  """FedLADA (Sun et al., 2023) with the maximum of v."""

  def means(self, cohort):
    return self.mean_of(cohort, 'v'), self.mean_of(cohort, 'v_max')

  def set_slots(self, optimizer, means):
    optimizer.v, optimizer.v_max = means


class FedMuon(WithLastUpdate):
  """Algorithm 1 of FedMuon (Liu et al., 2025); the optimizer is one of each tensor."""

  def means(self, cohort):
    return self.tensors(self.mean_of(cohort, 'm'))

  def set_slots(self, optimizer, means):
    for part, shape, mean in zip(optimizer.parts, self.shapes, means):
      if len(shape) >= 2 and not part.adamw:
        part.m = mean.reshape(shape)
