"""Oort, which prefers clients with high losses that are quick ("Oort", Lai et al., OSDI 2021).

Where the paper and the authors' code differ (github.com/SymbioticLab/Oort, oort/oort.py at
f5fccf35), the formulas are those of the code. Left out are its list of clients that have taken part
too often, which the code does not use by default, and its bound on n_i, the examples of a round's
steps. A round without a client to explore exploits for its whole cohort; the code still draws the
share of exploration at random where such clients are away. The defaults of decay (0.95), threshold
(10), cut-off (0.7) and clip (0.98) in the code are others.
"""

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np

from tff_adaptive._utils import hyperparameters, validation
from tff_adaptive.population import choosing

_LEAST = 1e-4  # Of a range of utilities, a sum of scores and a duration, as in the authors' code.
_MOST = 3e38  # In place of a loss that is infinite.
_WHOLE = 100.0  # Percent of the clients.


@dataclasses.dataclass(frozen=True)
class Oort:
  """Draws clients by their utility, with exploration, and a preferred duration that is paced.

  The utility of a client that has taken part is U_i = n_i sqrt(mean of its squared losses), where
  the losses are those of its examples when it last began to train; its score is

    (min(U_i, clip) - min U) / (max U - min U) + sqrt(0.1 ln(t) / last round),

  times (T / t_i)^penalty if its duration t_i is above the preferred duration T. `threshold` percent
  of the clients are quicker than T. The pacer raises this number by `pacer_delta` when the sum of
  the utilities that were exploited over `pacer_step` rounds has become flat, and lowers it when the
  sum has changed much. The share of the cohort that explores clients without a score is
  `exploration`, which shrinks by `decay` each round, but not below `least_exploration`; it is 0 in
  a round in which every available client has a score. Explored clients are drawn by their numbers
  of examples, with the same penalty for slow ones.

  Without a population all durations are 0, and no client is slow.
  """

  needs: ClassVar[tuple[str, ...]] = ('train_losses', 'participation', 'memory')

  exploration: float = hyperparameters.option(
    0.9, 'The first share of clients that are explored', validation.up_to_one, 'give 0.9, say'
  )
  decay: float = hyperparameters.option(
    0.98, 'The factor of this share each round', validation.in_half_open_unit_interval
  )
  least_exploration: float = hyperparameters.option(
    0.2, 'The least share of clients that are explored', validation.up_to_one, 'give 0.2, say'
  )
  penalty: float = hyperparameters.option(
    2.0, 'alpha: the exponent of the penalty for slow clients', validation.at_least_zero
  )
  threshold: float = hyperparameters.option(
    30.0, 'Percent of the clients that are as quick as preferred at first', validation.above_zero
  )
  pacer_step: int = hyperparameters.option(
    20, 'Rounds between changes of the preferred duration', validation.count
  )
  pacer_delta: float = hyperparameters.option(
    5.0, 'By how many percent of the clients it changes', validation.at_least_zero
  )
  cut_off: float = hyperparameters.option(
    0.95, 'Scores that are at least this part of the last one count', validation.up_to_one
  )
  clip: float = hyperparameters.option(
    0.9, 'The quantile at which utilities are clipped', validation.up_to_one
  )
  window: float = hyperparameters.option(
    5.0, 'How many times as many clients as are explored are considered', validation.at_least_one
  )

  def __call__(self, situation: choosing.Situation) -> choosing.Choice:
    """Chooses the clients of a round."""
    known = situation.known
    memory = situation.memory
    now = situation.round_number
    has_score = known.times > 0
    utility = known.num_examples.astype(np.float64)
    losses = np.sqrt(known.squared_losses[has_score])
    utility[has_score] *= np.nan_to_num(losses, nan=0.0, posinf=_MOST)
    threshold = self._paced(memory, known, utility, now)
    preferred = self._preferred(known.seconds, threshold)
    generator = situation.generator()

    scored = situation.available[has_score[situation.available]]
    scores = self._scores(scored, situation.available, utility, known, now)
    scores *= self._slowness(known.seconds[scored], preferred)
    share = max(memory.get('exploration', self.exploration) * self.decay, self.least_exploration)
    memory['exploration'] = share
    unexplored = situation.available[~has_score[situation.available]]
    if not len(unexplored):
      share = 0.0  # Of this round only: clients that are away may still be without a score.
    exploit = self._exploited(scored, scores, int(situation.size * (1 - share)), generator)

    rewards = utility[unexplored] * self._slowness(known.seconds[unexplored], preferred)
    explore = self._explored(unexplored, rewards, situation.size - len(exploit), generator)
    memory['exploited'] = exploit.tolist()
    drawn = np.concatenate([exploit, explore])
    left = np.setdiff1d(situation.available, drawn)
    rest = generator.choice(left, situation.size - len(drawn), replace=False)
    return choosing.Choice(np.concatenate([drawn, rest]).astype(np.int64))

  def _paced(
    self, memory: dict[str, Any], known: choosing.Known, utility: np.ndarray, now: int
  ) -> float:
    """Returns the percentage of clients that are as quick as preferred, and keeps it in memory."""
    last = np.array(memory.get('exploited', ()), np.int64)
    # The utilities of the exploited clients whose updates counted in the round before.
    counted = last[known.last_round[last] == now - 1]
    history = memory.setdefault('exploited_utility', [])
    history.append(float(utility[counted].sum() / (len(counted) + _LEAST)))
    del history[: -2 * self.pacer_step]
    threshold = float(memory.get('threshold', min(self.threshold, _WHOLE)))
    if now >= 2 * self.pacer_step and now % self.pacer_step == 0:
      before = sum(history[: -self.pacer_step])
      change = abs(sum(history[-self.pacer_step :]) - before)
      if change <= 0.1 * before:
        threshold = min(_WHOLE, threshold + self.pacer_delta)
      elif change >= 5 * before:
        threshold = max(self.pacer_delta, threshold - self.pacer_delta)
    memory['threshold'] = threshold
    return threshold

  def _preferred(self, seconds: np.ndarray, threshold: float) -> float:
    """Returns the preferred duration."""
    if threshold >= _WHOLE:
      return math.inf
    at = min(int(len(seconds) * threshold / _WHOLE), len(seconds) - 1)
    return float(np.sort(seconds)[at])

  def _slowness(self, seconds: np.ndarray, preferred: float) -> np.ndarray:
    """Returns the factors of the scores of clients with these durations."""
    ratio = preferred / np.maximum(seconds, _LEAST)
    factors: np.ndarray = np.where(seconds > preferred, ratio**self.penalty, 1.0)
    return factors

  def _scores(
    self,
    scored: np.ndarray,
    available: np.ndarray,
    utility: np.ndarray,
    known: choosing.Known,
    now: int,
  ) -> np.ndarray:
    """Returns the scores of clients that have taken part, without the penalty for slow ones."""
    rewards = np.sort(utility[available])
    rewards = rewards[rewards > 0]
    if not len(rewards) or not len(scored):
      return np.zeros(len(scored))
    clip = rewards[min(int(len(rewards) * self.clip), len(rewards) - 1)]
    least = rewards[0] * 0.999
    spread = max(rewards[-1] - least, _LEAST)
    uncertainty = np.sqrt(0.1 * math.log(now) / known.last_round[scored])
    scores: np.ndarray = (np.minimum(utility[scored], clip) - least) / spread + uncertainty
    return np.maximum(scores, 0.0)  # A client without a loss must not have a negative chance.

  def _exploited(
    self, scored: np.ndarray, scores: np.ndarray, wanted: int, generator: np.random.Generator
  ) -> np.ndarray:
    """Draws clients by their scores, among those near or above the score of the last one wanted."""
    wanted = min(wanted, len(scored))
    if not wanted:
      return np.zeros(0, np.int64)
    order = np.argsort(-scores, kind='stable')
    cut_off = self.cut_off * scores[order[min(wanted, len(order) - 1)]]
    eligible = order[scores[order] >= cut_off]
    return scored[_drawn(eligible, scores[eligible], wanted, generator)]

  def _explored(
    self, unexplored: np.ndarray, rewards: np.ndarray, wanted: int, generator: np.random.Generator
  ) -> np.ndarray:
    """Draws clients that have not taken part, among those with the highest rewards."""
    wanted = min(wanted, len(unexplored))
    if not wanted:
      return np.zeros(0, np.int64)
    order = np.argsort(-rewards, kind='stable')[: int(self.window * wanted)]
    return unexplored[_drawn(order, rewards[order], wanted, generator)]


def _drawn(
  among: np.ndarray, chances: np.ndarray, wanted: int, generator: np.random.Generator
) -> np.ndarray:
  """Draws without replacement in proportion to chances; those of chance 0 only fill the rest."""
  (likely,) = np.nonzero(chances)
  if len(likely) < wanted:
    unlikely = np.setdiff1d(np.arange(len(among)), likely)
    filling = generator.choice(unlikely, wanted - len(likely), replace=False)
    return among[np.concatenate([likely, filling])]
  return generator.choice(among, wanted, replace=False, p=chances / chances.sum())
