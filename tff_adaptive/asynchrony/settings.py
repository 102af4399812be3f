"""The settings of asynchronous training, which a run's config and its process share.

They follow FedBuff ("Federated Learning with Buffered Asynchronous Aggregation", Nguyen et al.,
2022) and, with a buffer of one, FedAsync ("Asynchronous Federated Optimization", Xie et al., 2019).
"""

import dataclasses
from typing import Any

from tff_adaptive._utils import validation
from tff_adaptive.population import rounds

STALENESS = ('none', 'polynomial', 'hinge', 'constant')
# Entries of a client's data: the row of its model among the older models of the step, and the
# factor of its update. The name of the factor says whether updates are relative to the present
# model, so that the type of a process shows for which it was built.
OLDER_MODEL = 'older_model'
STALENESS_FACTOR = 'staleness_factor'
MIXING_FACTOR = 'mixing_factor'
_A = {'polynomial': 0.5, 'hinge': 10.0}  # FedBuff's and FedAsync's.
_RECORDED_FACTORS = 64  # The first factors of a subclass tell its formula from another.


@dataclasses.dataclass(frozen=True)
class Buffered:
  """Settings of asynchronous training: the server does not wait for all of its clients.

  A subclass may override `factor`.

  Some clients are always training, each from the model that was current when it began. The server
  takes a step when B = `TrainingConfig.clients_per_round` clients have arrived; B is the size of
  the buffer. tau is a client's staleness, the number of server steps since it began.

  The run and its process get the same object: `TrainingConfig(asynchrony=...)` and the argument
  `asynchrony` of the builders. Of a process only `mixing` changes anything.

  Attributes:
    concurrency: M, the number of clients that train at a time, from B to the number of clients.
    staleness: The kind of factor s(tau) of a client's update. 'none' is 1. 'polynomial' is
      (1 + tau)^-a, FedBuff's with a = 1/2. 'hinge' is 1 up to tau = b, then 1 / (a (tau - b) + 1).
      'constant' is 1 for tau = 0, else c.
    a: The a of 'polynomial' (default 0.5) and 'hinge' (default 10), above 0.
    b: The b of 'hinge', at least 0.
    c: The c of 'constant', in (0, 1].
    max_staleness: An update with a larger tau is dropped when it arrives; None keeps all updates.
    mixing: Whether an update is theta - theta_i, with the present model theta and the client's
      model theta_i. With SGD of rate eta at the server, theta becomes FedAsync's average
      (1 - eta s) theta + eta s theta_i. If False, an update is theta_0 - theta_i, with the model
      theta_0 that the client began with, as in FedBuff.

  Raises:
    ValueError: If `staleness` is unknown, or a number is out of its range.
  """

  concurrency: int
  staleness: str = 'polynomial'
  a: float | None = None
  b: float = 4.0
  c: float = 0.5
  max_staleness: int | None = None
  mixing: bool = False

  def __post_init__(self) -> None:
    validation.whole_number('concurrency', self.concurrency, 1, 'give 50, say')
    if self.staleness not in STALENESS:
      raise ValueError(
        f'staleness is {self.staleness!r}; it must be one of {", ".join(STALENESS)}.'
      )
    if self.a is not None:
      validation.field(self, 'a', validation.above_zero, 'give 0.5, or None')
    validation.field(self, 'b', validation.at_least_zero, 'give 4, say')
    validation.field(self, 'c', validation.in_half_open_unit_interval, 'give 0.5, say')
    if self.max_staleness is not None:
      validation.whole_number('max_staleness', self.max_staleness, 0, 'give 20, say, or None')

  @property
  def factor_entry(self) -> str:
    """Returns the name of the entry of a client's data that has the factor of its update."""
    return MIXING_FACTOR if self.mixing else STALENESS_FACTOR

  def factor(self, tau: int) -> float:
    """Returns s(tau), the factor of an update that is tau server steps old."""
    a = self.a
    if a is None:
      a = _A.get(self.staleness, 1.0)
    if self.staleness == 'polynomial':
      return float((1.0 + tau) ** -a)
    if self.staleness == 'hinge' and tau > self.b:
      return 1.0 / (a * (tau - self.b) + 1.0)
    if self.staleness == 'constant' and tau > 0:
      return self.c
    return 1.0

  def record(self) -> dict[str, Any]:
    """Returns the settings for config.json. A subclass is recorded with its own factors."""
    if type(self) is Buffered:
      return dataclasses.asdict(self)
    settings: dict[str, Any] = dict(rounds.record(self))
    if type(self).factor is not Buffered.factor:
      num_factors = _RECORDED_FACTORS
      if self.max_staleness is not None:
        num_factors = min(num_factors, self.max_staleness + 1)
      settings['staleness'] = 'own'
      settings['factors'] = [float(self.factor(tau)) for tau in range(num_factors)]
    return settings
