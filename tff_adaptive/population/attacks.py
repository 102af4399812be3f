"""Clients that attack or are at fault, for experiments: which ones, and what they do."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tff_adaptive._utils import draws, hyperparameters, validation

# What attackers do: with their labels; with their updates; with the updates of the others.
LABEL_FLIP = 'label_flip'
INNER_PRODUCT = 'inner_product'
OF_UPDATES = ('sign_flip', 'scaling', 'noise', 'free_rider', INNER_PRODUCT)
ATTACKS = (LABEL_FLIP, *OF_UPDATES)
_SCALES = {'scaling': 10.0}  # Where s is not 1 by default.


@dataclasses.dataclass(frozen=True)
class Attackers:
  """A share of the clients that attacks whenever they take part.

  Attributes:
    share: The share of all clients, in (0, 1), rounded to a whole number of clients, at least 1.
    attack: What they do. 'label_flip': they train with the label C - 1 - y in place of y, of C
      classes. 'sign_flip': they send -s times their update. 'scaling': s times their update.
      'noise': their update plus Gaussian noise whose 2-norm is about s times that of the update.
      'free_rider': an update of zero, with their weight. 'inner_product': -s times the weighted
      mean of the updates of the others in the round ("Fall of Empires", Xie et al., UAI 2020).
    scale: s, above 0. None means 10 for 'scaling', else 1.
    classes: C for 'label_flip', at least 2.
  """

  share: float
  attack: str = hyperparameters.option('sign_flip', 'What attackers do', choices=ATTACKS)
  scale: float | None = None
  classes: int | None = None

  def __post_init__(self) -> None:
    validation.field(self, 'share', validation.in_unit_interval, 'give 0.2, say')
    if not self.share:
      raise ValueError('share must be above 0, found 0: leave the attackers out.')
    if self.attack not in ATTACKS:
      raise ValueError(f'attack is {self.attack!r}; it must be one of {", ".join(ATTACKS)}.')
    if self.scale is not None:
      validation.field(self, 'scale', validation.above_zero, 'give 1, say')
      if self.attack == LABEL_FLIP:
        raise ValueError(f'scale has no meaning for {LABEL_FLIP}: leave it out.')
    if self.attack == LABEL_FLIP:
      hint = 'give the number of classes, such as 10'
      validation.whole_number('classes', self.classes or 0, 2, hint)
    elif self.classes is not None:
      raise ValueError(f'classes has no meaning for {self.attack}: leave it out.')

  @property
  def of_updates(self) -> str | None:
    """The attack if it is one on updates, which `ClientTraining.attack` needs; else None."""
    return self.attack if self.attack in OF_UPDATES else None

  @property
  def strength(self) -> float:
    """s."""
    if self.scale is not None:
      return self.scale
    return _SCALES.get(self.attack, 1.0)

  def positions(self, num_clients: int, seed: int) -> np.ndarray:
    """Returns the positions of the attackers, int64; they depend on the arguments only."""
    count = max(1, round(self.share * num_clients))
    generator = draws.generator(seed, draws.ALWAYS, draws.ATTACKERS)
    # Of one permutation: with a larger share the same clients attack, and further ones.
    positions: np.ndarray = np.sort(generator.permutation(num_clients)[:count])
    return positions

  def flipped(self, labels: Any) -> np.ndarray:
    """Returns the labels C - 1 - y.

    Raises:
      ValueError: If labels are no whole numbers from 0 to C - 1.
    """
    assert self.classes is not None
    labels = np.asarray(labels)
    is_whole = labels.dtype.kind in 'iu'
    if not is_whole or (labels.size and not 0 <= labels.min() <= labels.max() < self.classes):
      raise ValueError(
        f'{LABEL_FLIP} needs labels from 0 to {self.classes - 1}, found {labels.dtype} from'
        f' {labels.min()} to {labels.max()}: give the number of classes, or another attack.'
      )
    flipped: np.ndarray = (self.classes - 1 - labels).astype(labels.dtype)
    return flipped


def ids_of(attackers: Attackers | None, client_ids: Sequence[str], seed: int) -> frozenset[str]:
  """Returns the ids of the clients that attack."""
  if attackers is None:
    return frozenset()
  return frozenset(client_ids[i] for i in attackers.positions(len(client_ids), seed))
