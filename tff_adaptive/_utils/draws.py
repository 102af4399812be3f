"""What NumPy draws from a run's seed: a stream for each purpose, a function of its numbers alone.

A round's cohort comes from (seed, round), what becomes of it from (seed, round, purpose), all else
from a purpose that no round has as its number. What TensorFlow draws in a round is in `seeds`; data
and initial weights have another kind of generator, `np.random.default_rng([seed, tag])`.
"""

import numpy as np

# Of a round, or of the n-th client that begins to train, in rounds that do not wait. They count
# from 1, for a seed sequence takes a last 0 as if it were not there.
AVAILABLE, FAILURE, SPEED, BANDWIDTH, PHASE, DISPATCH, DISPATCH_FAILURE = range(1, 8)
ALWAYS = 0  # The round of what a client keeps for the whole run; rounds count from 1.
# Rounds are below 2^31.
HELDOUT_CLIENTS, HELDOUT_EXAMPLES, EVALUATED_CLIENTS, FINE_TUNING = range(2**31, 2**31 + 4)


def generator(seed: int, *numbers: int) -> np.random.Generator:
  """Returns the generator of a seed, a round or purpose, and what else tells draws apart.

  Where all clients have a number each, a client's is that at its position, whoever else is drawn.
  """
  return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *numbers])))
