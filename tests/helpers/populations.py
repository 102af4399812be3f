"""Small populations: a client takes 1 s for 10^6 bytes each way, and between them its steps."""

from tff_adaptive import population
from tff_adaptive.asynchrony import simulation as asynchrony_lib
from tff_adaptive.training import cohorts


def speed(*seconds_per_step):
  """The speed of clients c0, c1, ... with so many seconds a step."""
  profile = {f'c{i}': s for i, s in enumerate(seconds_per_step)}
  return population.Speed(downlink=1.0, uplink=1.0, profiles={'seconds_per_step': profile})


def simulation(of_clients, steps, cohort_size, seed=0, asynchrony=None):
  """A simulation of clients c0, c1, ... with so many steps."""
  clients = of_clients, [f'c{i}' for i in range(len(steps))], steps
  options = {'seed': seed, 'cohort_size': cohort_size, 'draw': cohorts.sample}
  options.update(bytes_down=1_000_000, bytes_up=1_000_000)
  if asynchrony is None:
    return population.Simulation(*clients, **options)
  return asynchrony_lib.BufferedSimulation(asynchrony, *clients, **options)
