"""Random numbers of a population: functions of (seed, round, purpose, client) and nothing else."""

import numpy as np

# What a draw is for; from 1, for a seed sequence takes a last 0 as if it were not there.
AVAILABLE, FAILURE, SPEED, BANDWIDTH, PHASE = range(1, 6)
ALWAYS = 0  # The round of what a client keeps for the whole run; rounds count from 1.


def generator(seed: int, round_number: int, purpose: int) -> np.random.Generator:
  """Returns the generator of a round's draws, or `ALWAYS`, for one purpose of this module.

  A client's numbers are those at its position, whoever else is drawn.
  """
  sequence = np.random.SeedSequence([seed, round_number, purpose])
  return np.random.Generator(np.random.Philox(sequence))
