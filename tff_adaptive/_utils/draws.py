"""NumPy's random draws from a run's seed, with a separate stream for each purpose.

A round's cohort is drawn from (seed, round), and its failures from (seed, round, purpose). Draws
for the whole run have, in place of the round, a number that no round has. For TensorFlow's draws
see `seeds`. Data and initial weights use another generator, `np.random.default_rng([seed, tag])`.
"""

import numpy as np

# Purposes of draws in a round or, in asynchronous training, for the n-th client that begins to
# train. They count from 1, because a seed sequence ignores a 0 at its end.
AVAILABLE, FAILURE, SPEED, BANDWIDTH, PHASE, DISPATCH, DISPATCH_FAILURE = range(1, 8)
COHORT, ATTACKERS, ATTACK = range(8, 11)
ALWAYS = 0  # In place of the round, for a client's properties in the whole run.
# Further purposes, in place of the round; rounds are from 1 to 2^31 - 1.
HELDOUT_CLIENTS, HELDOUT_EXAMPLES, EVALUATED_CLIENTS, FINE_TUNING = range(2**31, 2**31 + 4)


def generator(seed: int, *numbers: int) -> np.random.Generator:
  """Returns the NumPy generator of a seed and numbers, such as a round and a purpose.

  Callers often draw a number for every client of the run and use the one at a client's position.
  The number then does not depend on which other clients take part.
  """
  # Named, because the generator of `np.random.default_rng` may change with NumPy's version.
  return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *numbers])))
