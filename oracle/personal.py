"""Methods with a model for each client in plain NumPy and float64; see `oracle`.

`own` has what client i keeps: a model v_i, or the weights of its own among those of a model.
"""

import numpy as np

from oracle.algorithms import FedAvg


class Kept(FedAvg):
  """FedPer, LG-FedAvg and FedBN: the weights where `mask` holds stay at the client.

  Args:
    mask: Bools like theta.
    head_share: Of FedRep, the share of the steps that train these weights alone; None for the
      others, which train all together.
    is_frozen: Whether these weights never change (FedBABU).
  """

  def __init__(self, *args, mask, head_share=None, is_frozen=False, **options):
    super().__init__(*args, **options)
    self.mask = np.asarray(mask, bool)
    self.head_share = head_share
    self.is_frozen = is_frozen
    self.own = np.tile(self.theta, (self.num_clients, 1))

  def train(self, i, rate, limit=np.inf):
    received = self.theta
    _, y = self.clients[i]
    batches = -(-len(y) // (self.batch_size or len(y)))
    planned = min(self.epochs * batches, limit)
    self.step = 0
    self.of_head = np.round((self.head_share or 0) * planned)
    if planned > 1 and self.head_share not in (None, 0, 1):
      self.of_head = min(max(self.of_head, 1), planned - 1)
    self.theta = self.first = np.where(self.mask, self.own[i], received)
    theta_i, steps = super().train(i, rate, limit)
    self.theta = received
    self.own[i] = theta_i
    return np.where(self.mask, received, theta_i), steps

  def corrected(self, i, theta_i, g, batch):
    self.step += 1
    if self.is_frozen:
      return np.where(self.mask, 0.0, g)
    if self.head_share is None:
      return g
    trains_head = self.step <= self.of_head
    return np.where(self.mask == trains_head, g, 0.0)

  def kept(self, i):
    return {'own': self.own[i]}

  def state(self, i):
    if self.is_frozen:
      return {}
    return {'own': self.own[i][self.mask]}

  def personal(self, i):
    """Client i's own model."""
    return np.where(self.mask, self.own[i], self.theta)


class WithOwnModel(FedAvg):
  """The base class of methods whose clients keep a whole model."""

  def __init__(self, *args, **options):
    super().__init__(*args, **options)
    self.own = np.tile(self.theta, (self.num_clients, 1))
    self.rate = None

  def begin(self, i, rate):
    self.rate = rate

  def kept(self, i):
    return {'own': self.own[i]}

  def personal(self, i):
    """Client i's own model."""
    return self.own[i]


class Ditto(WithOwnModel):
  """Algorithm 1 of Ditto (Li et al., 2021); v_i takes the same batches as the other model."""

  def __init__(self, *args, lam, **options):
    super().__init__(*args, **options)
    self.lam = lam

  def corrected(self, i, theta_i, g, batch):
    v = self.own[i]
    slope = self.sharp(v, batch) + self.lam * (v - self.theta)
    self.own[i] = v - self.rate * slope
    return g


class APFL(WithOwnModel):
  """Algorithm 1 of APFL (Deng et al., 2020), and equation (11) for a learnt alpha."""

  def __init__(self, *args, alpha_mix, learn_alpha=False, **options):
    super().__init__(*args, **options)
    self.alpha = np.full(self.num_clients, float(alpha_mix))
    self.learn_alpha = learn_alpha

  def kept(self, i):
    return {'own': self.own[i], 'alpha': self.alpha[i]}

  def corrected(self, i, theta_i, g, batch):
    a = self.alpha[i]
    v = self.own[i].copy()
    slope = self.sharp(a * v + (1 - a) * theta_i, batch)
    self.own[i] = v - self.rate * a * slope
    if self.learn_alpha:
      self.alpha[i] = min(max(a - self.rate * (v - theta_i) @ slope, 0.0), 1.0)
    return g

  def personal(self, i):
    return self.alpha[i] * self.own[i] + (1 - self.alpha[i]) * self.theta


class PFedMe(WithOwnModel):
  """Algorithm 1 of pFedMe (T. Dinh et al., 2020); p goes on from batch to batch."""

  def __init__(self, *args, moreau_lam, inner_steps, inner_rate, **options):
    super().__init__(*args, **options)
    self.lam = moreau_lam
    self.inner_steps = inner_steps
    self.inner_rate = inner_rate

  def begin(self, i, rate):
    self.own[i] = self.theta

  def corrected(self, i, theta_i, g, batch):
    p = self.own[i]
    for _ in range(self.inner_steps):
      p = p - self.inner_rate * (self.sharp(p, batch) + self.lam * (p - theta_i))
    self.own[i] = p
    return self.lam * (theta_i - p)


class PerFedAvg(FedAvg):
  """Algorithm 1 of Per-FedAvg (Fallah et al., 2020), first order: two batches for one move."""

  def __init__(self, *args, inner_rate, **options):
    super().__init__(*args, **options)
    self.inner_rate = inner_rate

  def begin(self, i, rate):
    self.first = None

  def corrected(self, i, theta_i, g, batch):
    if self.first is None:
      self.first = batch
      return 0.0 * g
    ahead = theta_i - self.inner_rate * self.sharp(theta_i, self.first)
    self.first = None
    return self.sharp(ahead, batch)


class FedALA(FedAvg):
  """Algorithm 1 of FedALA (Zhang et al., 2023); W is learnt by the first steps of a round.

  Args:
    mask: Bools like theta, which hold in the last layers.
    ala_share, ala_rate: The share of the steps that learn W, and their rate.
  """

  def __init__(self, *args, mask, ala_share, ala_rate, **options):
    super().__init__(*args, **options)
    self.mask = np.asarray(mask, bool)
    self.ala_share = ala_share
    self.ala_rate = ala_rate
    self.w = np.ones((self.num_clients, self.theta.size))
    self.ended = [None] * self.num_clients

  def begun(self, i):
    """Where client i begins its steps."""
    if self.ended[i] is None:
      return self.theta
    mixed = self.ended[i] + (self.theta - self.ended[i]) * self.w[i]
    return np.where(self.mask, mixed, self.theta)

  def train(self, i, rate, limit=np.inf):
    received = self.theta
    self.client = i
    self.step = 0
    self.received = received
    self.theta = self.begun(i)
    theta_i, steps = super().train(i, rate, limit)
    self.theta = received
    self.ended[i] = theta_i
    return theta_i, steps

  def corrected(self, i, theta_i, g, batch):
    is_first = self.ended[i] is None
    self.learns = not is_first and self.step < np.round(self.ala_share * self.planned)
    self.step += 1
    if not self.learns:
      return g
    slope = g * (self.received - self.ended[i])
    self.w[i] = np.clip(self.w[i] - self.ala_rate * slope, 0, 1)
    return 0.0 * g

  def moved(self, before, after):
    if not self.learns:
      return after
    begin = self.theta
    self.theta = self.received
    moved = self.begun(self.client)
    self.theta = begin
    return moved

  def kept(self, i):
    return {'w': self.w[i], 'ended': self.ended[i]}

  def state(self, i):
    return {'ended': self.ended[i][self.mask], 'share': self.w[i][self.mask]}

  def personal(self, i):
    """Client i's own model, which begins its next round."""
    return self.begun(i)


class FedProto(Kept):
  """Algorithm 1 of FedProto (Tan et al., 2022); all weights stay.

  Args:
    features: (theta, x) -> the features [B, size].
    loss: (theta, x, y) -> the mean loss.
    slope: (function, theta) -> the gradient of the function.
  """

  def __init__(self, *args, proto_weight, features, loss, slope, classes, **options):
    super().__init__(*args, **options)
    self.weight = proto_weight
    self.classes = classes
    self.features = features
    self.loss = loss
    self.slope = slope
    size = features(self.theta, self.clients[0][0]).shape[1]
    self.prototypes = np.zeros((classes, size))
    self.known = np.zeros(classes)

  def sharp(self, theta_i, batch):
    x, y = batch

    def whole(theta):
      distance = ((self.features(theta, x) - self.prototypes[y]) ** 2).mean(1)
      return self.loss(theta, x, y) + self.weight * (self.known[y] * distance).mean()

    return self.slope(whole, theta_i)

  def round(self, cohort, limits=None):
    begun = {i: self.own[i].copy() for i in cohort}
    super().round(cohort, limits)
    for c in range(self.classes):
      rows = []
      for i in cohort:
        x, y = self.clients[i]
        rows.append(self.features(begun[i], x)[y == c])
      rows = np.concatenate(rows)
      if len(rows):
        self.prototypes[c] = rows.mean(0)
        self.known[c] = 1.0
