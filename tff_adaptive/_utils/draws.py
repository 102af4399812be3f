"""NumPy's random draws from a run's seed: each purpose has its own stream.

A round's cohort is drawn from (seed, round), its failures from (seed, round, purpose), and
everything else from a purpose that is no round's number. For TensorFlow's draws see `seeds`. Data
and initial weights have another generator, `np.random.default_rng([seed, tag])`.
"""

import numpy as np

# Of a round, or in asynchronous training of the n-th client that begins to train. They count
# from 1, for a seed sequence takes a last 0 as if it were not there.
AVAILABLE, FAILURE, SPEED, BANDWIDTH, PHASE, DISPATCH, DISPATCH_FAILURE = range(1, 8)
ALWAYS = 0  # The round of what a client keeps for the whole run; rounds count from 1.
# Rounds are below 2^31.
HELDOUT_CLIENTS, HELDOUT_EXAMPLES, EVALUATED_CLIENTS, FINE_TUNING = range(2**31, 2**31 + 4)


def generator(seed: int, *numbers: int) -> np.random.Generator:
  """Returns the generator of a seed, a round or purpose, and further numbers.

  If a number is drawn for every client, a client's number is the one at its position, and does not
  depend on the other drawn clients.
  """
  return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, *numbers])))
